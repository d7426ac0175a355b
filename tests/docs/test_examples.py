"""Every example of README.md and docs/ is run; and the runner itself is shown to refuse what is wrong."""

import os
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.page import ROOT, PageError, examples_of
from tests.docs.runner import ExampleFailed, matches, run_page

ADAPTERS = ROOT / "docs" / "adapters"  # their examples need frameworks: tests/kits runs them
PAGES = sorted(
    path for path in (*ROOT.glob("README.md"), *ROOT.glob("docs/**/*.md")) if not path.is_relative_to(ADAPTERS)
)
REFERENCE = ROOT / "docs" / "reference"
CLI = ("sessions", "conversation", "families", "care", "agents", "servers")
CONTINUED = {  # pages whose examples continue in others
    REFERENCE / "cli.md": [REFERENCE / "cli" / f"{name}.md" for name in CLI],
    REFERENCE / "python.md": [REFERENCE / "python-data.md"],
}
FIRST_PAGES = [page for page in PAGES if not any(page in more for more in CONTINUED.values())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "sitting"
    folder.mkdir()
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_examples_run(page: Path, folder: Path) -> None:
    problem = None
    try:
        run_page(page, folder, *CONTINUED.get(page, []))
    except (ExampleFailed, PageError) as exc:
        problem = str(exc)
    if problem:  # the page's own lines say it all; a traceback through the runner would hide them
        pytest.fail(problem, pytrace=False)


def test_every_page_of_the_command_line_is_run() -> None:
    assert sorted(CONTINUED[REFERENCE / "cli.md"]) == sorted((REFERENCE / "cli").glob("*.md"))


def test_every_skipped_example_gives_a_reason() -> None:
    skipped = [example for page in PAGES for example in examples_of(page) if example.skip_reason is not None]
    assert [example.where for example in skipped if len((example.skip_reason or "").split()) < 3] == []


class TestRunner:
    @pytest.fixture(autouse=True)
    def sitting(self, tmp_path: Path, folder: Path) -> None:
        self.page, self.folder = tmp_path / "page.md", folder

    def run(self, text: str, *, patience: float = 60) -> None:
        self.page.write_text(dedent(text), encoding="utf-8")
        run_page(self.page, self.folder, patience=patience)

    def refusal(self, text: str, *, patience: float = 60) -> str:
        with pytest.raises((ExampleFailed, PageError)) as refused:
            self.run(text, patience=patience)
        return str(refused.value)

    def test_wrong_output_fails_with_place_command_expected_and_got(self) -> None:
        assert self.refusal("""\
            # Greeting

            ```console
            $ echo hello
            hello
            $ echo hello again
            good bye
            ```
            """) == dedent("""\
            page.md:6: the command prints something else
                $ echo hello again
            expected:
                good bye
            got:
                hello again""")

    def test_output_that_is_shown_only_in_part_fails(self) -> None:
        assert "prints something else" in self.refusal("""\
            ```console
            $ printf 'one\\ntwo\\n'
            one
            ```
            """)

    def test_output_not_shown_is_not_compared(self) -> None:
        self.run("""\
            ```console
            $ echo anything

            $ echo else
            else
            ```
            """)

    def test_output_on_stderr_counts(self) -> None:
        self.run("""\
            ```console
            $ echo oops >&2
            oops
            ```
            """)

    def test_commands_share_one_shell(self) -> None:
        self.run("""\
            ```console
            $ greeting=hello; mkdir inner; cd inner
            ```
            ```sh
            export name=you
            test "$(basename "$PWD")" = inner
            ```
            ```console
            $ echo "$greeting, $name" from "$(basename "$PWD")"
            hello, you from inner
            ```
            """)

    def test_a_command_may_go_on_in_the_next_line(self) -> None:
        self.run("""\
            ```console
            $ echo one \\
                two
            one two
            $ cat <<END
            > three
            > END
            three
            ```
            """)

    def test_a_command_cannot_eat_the_next_one(self) -> None:
        self.run("""\
            ```console
            $ cat
            $ echo still here
            still here
            ```
            """)

    def test_failing_command_fails(self) -> None:
        assert "page.md:2: the command ends with status 1, not 0" in self.refusal("""\
            ```console
            $ false
            $ true
            ```
            """)

    def test_expected_exit_status_is_that_of_the_last_command(self) -> None:
        self.run("""\
            <!-- example: exit 4 -->
            ```console
            $ true
            $ (echo refused; exit 4)
            refused
            ```
            """)

    def test_success_where_the_page_expects_a_failure_fails(self) -> None:
        assert "ends with status 0, not 4" in self.refusal("""\
            <!-- example: exit 4 -->
            ```console
            $ true
            ```
            """)

    @pytest.mark.parametrize("language", ["bash", "sh"])
    def test_script_that_fails_halfway_fails(self, language: str) -> None:
        refusal = self.refusal(f"""\
            ```{language}
            echo before
            (exit 7)
            echo after
            ```
            """)
        assert "page.md:2: the script ends with status 7, not 0" in refusal
        assert refusal.endswith("got:\n    before")

    def test_page_goes_on_after_a_script_that_fails_as_expected(self) -> None:
        self.run("""\
            <!-- example: exit 7 -->
            ```bash
            exit 7
            ```
            ```console
            $ echo next
            next
            ```
            """)

    def test_python_examples_share_one_namespace_and_one_event_loop(self) -> None:
        self.run("""\
            ```python
            import asyncio
            from contextlib import asynccontextmanager

            @asynccontextmanager
            async def opened():
                yield "open"

            async def loop():
                return asyncio.get_running_loop()

            first = await loop()
            ```
            Text between.
            ```python
            assert first is await loop()
            async with opened() as state:
                assert state == "open"
            ```
            """)

    def test_python_and_commands_meet_in_one_folder_in_the_order_of_the_page(self) -> None:
        self.run("""\
            ```console
            $ echo one > number
            ```
            ```python
            from pathlib import Path
            assert Path("number").read_text() == "one\\n"
            Path("number").write_text("two")
            ```
            ```console
            $ cat number
            two
            ```
            """)

    def test_failing_python_shows_the_line_of_the_page(self) -> None:
        refusal = self.refusal("""\
            Text.

            ```python
            print("before")
            assert 1 + 1 == 3
            ```
            """)
        assert refusal.startswith("page.md:4: the Python example fails")
        assert "before" in refusal
        assert "line 5" in refusal

    def test_examples_write_only_below_their_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MOORAGE_URL", "sqlite:///elsewhere.db")
        monkeypatch.setenv("AGENT_SESSION_ID", "an-outer-session")
        self.run("""\
            ```console
            $ echo "${MOORAGE_HOME#"$PWD"}, ${HOME#"$PWD"}, $MOORAGE_URL, $AGENT_SESSION_ID"
            /.moorage, , ,
            ```
            """)

    @pytest.mark.parametrize(("language", "source"), [("json", '{"a": }'), ("toml", "a = ")])
    def test_data_that_does_not_parse_fails(self, language: str, source: str) -> None:
        assert f"not valid {language}" in self.refusal(f"```{language}\n{source}\n```\n")

    def test_data_that_parses_and_blocks_that_are_not_code_pass(self) -> None:
        self.run('```json\n{"a": 1}\n```\n~~~toml\na = 1\n~~~\n```text\n$ false\n```\n```mermaid\ngraph\n```\n')

    @pytest.mark.parametrize("language", ["", "pyhton"])
    def test_unknown_language_fails(self, language: str) -> None:
        assert "the language is none of" in self.refusal(f"```{language}\nx = 1\n```\n")

    def test_example_in_a_list_is_run_without_its_indentation(self) -> None:
        item = "1. Do this:\n\n   ```python\n   x = 3\n   ```\n   ```bash\n   exit 3\n   ```\n"
        assert "status 3" in self.refusal(item)

    @pytest.mark.parametrize("start", ["> ```bash", "- ```bash", "1. ```bash"])
    def test_example_the_reader_of_the_page_would_miss_fails(self, start: str) -> None:
        assert "on a line of its own" in self.refusal(f"{start}\nfalse\n```\n")

    def test_block_without_an_end_fails(self) -> None:
        assert self.refusal("```bash\ntrue\n") == "page.md:1: this block never ends"

    def test_skip_with_a_reason_is_kept_from_running(self) -> None:
        self.run("<!-- example: skip, because it would fail -->\n```bash\nfalse\n```\n")
        assert [example.skip_reason for example in examples_of(self.page)] == ["it would fail"]

    @pytest.mark.parametrize("comment", ["skip", "skip, because", "skip because no comma"])
    def test_skip_without_a_reason_fails(self, comment: str) -> None:
        assert "say why" in self.refusal(f"<!-- example: {comment} -->\n```bash\nfalse\n```\n")

    @pytest.mark.parametrize("text", ["<!-- example: exit 1 -->\nText.\n", "<!-- example: exit 1 -->\n"])
    def test_comment_that_belongs_to_no_example_fails(self, text: str) -> None:
        assert "belongs to no example" in self.refusal(text)

    @pytest.mark.parametrize(("comment", "language"), [("exit 1", "python"), ("exit", "bash"), ("slow", "bash")])
    def test_comment_that_says_nothing_known_fails(self, comment: str, language: str) -> None:
        assert "says nothing" in self.refusal(f"<!-- example: {comment} -->\n```{language}\n```\n")

    def test_example_that_hangs_is_ended(self) -> None:
        assert "did not end within 0.5 s" in self.refusal("```console\n$ echo on && sleep 60\n```\n", patience=0.5)

    def test_background_process_ends_with_the_page_and_does_not_disturb_later_commands(self) -> None:
        self.run("""\
            ```console
            $ (while sleep 0.01; do echo noise; done) & echo $! > pid
            $ sleep 0.1; echo quiet
            quiet
            ```
            """)
        assert ended(int((self.folder / "pid").read_text()))


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("a …", "a b c\n"),
        ("…", ""),
        ("…", "a\nb\n"),
        ("a\n…\nd", "a\nb\nc\nd\n"),
        ("a\n…\nd", "a\nd\n"),
        ("id …, made … ago", "id 1, made 2 s ago  \n\n"),
        ("a.c", "a.c"),
    ],
)
def test_dots_stand_for_anything(expected: str, got: str) -> None:
    assert matches(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [("a …", "a b\nc\n"), ("a\n…\nd", "a\nb\n"), ("a.c", "abc"), ("a", ""), ("a", "a\nb"), ("a … c", "a b")],
)
def test_dots_do_not_stand_for_everything(expected: str, got: str) -> None:
    assert not matches(expected, got)


def ended(process: int) -> bool:
    """Wait until there is no such process, or for five seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False
