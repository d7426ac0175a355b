"""export, import."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.client import LocalMoorage
from tests.doors.cli.running import Cli, Terminal, contents

ELSEWHERE = "sqlite:///elsewhere.db"


@pytest.fixture
def child(cli: Cli, plan: str) -> str:
    return cli("create", "--parent", plan).id


def test_export_and_import_give_the_same_again(cli: Cli, plan: str, child: str) -> None:
    exported = cli("export", "plan-prod", "--tree").out
    report = cli("import", "-", "--url", ELSEWHERE, "--json", stdin=exported.encode()).json
    assert report["imported"] == [plan, child]
    for ref in (plan, child):
        assert cli("log", ref, "--url", ELSEWHERE).out == cli("log", ref).out
    assert cli("export", plan, "--tree", "--url", ELSEWHERE).out == exported


def test_export_all_is_one_file_with_one_header(cli: Cli, plan: str, child: str) -> None:
    alone = cli("create").id
    assert cli("export", "--all", "-o", "all.jsonl").out == "all.jsonl\n"
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert [line["type"] for line in lines].count("moorage") == 1
    assert cli("import", "all.jsonl", "--url", ELSEWHERE).lines == [plan, alone, child]


def test_export_all_has_each_session_once_with_or_without_its_tree(cli: Cli, plan: str, child: str) -> None:
    cli("create", "--parent", child)
    for form in ("jsonl", "markdown"):
        assert cli("export", "--all", "--tree", "--format", form).out == cli("export", "--all", "--format", form).out
    assert [json.loads(line)["type"] for line in cli("export", "--all", "--tree").lines].count("session") == 3


@pytest.mark.parametrize("lines_before", [0, 2])
def test_export_all_leaves_out_what_is_deleted_meanwhile(
    cli: Cli, plan: str, monkeypatch: pytest.MonkeyPatch, lines_before: int
) -> None:
    alone = cli("create").id
    export = LocalMoorage.export

    async def deleting(moor: LocalMoorage, ref: str, **how: Any) -> AsyncIterator[str]:
        left = lines_before
        if ref == plan and left == 0:
            await moor.delete(plan)
        async for line in export(moor, ref, **how):
            yield line
            left -= 1
            if ref == plan and left == 0:
                await moor.delete(plan)

    monkeypatch.setattr(LocalMoorage, "export", deleting)
    done = cli("export", "--all")
    assert done.code == 0
    assert done.err.startswith(f"moorage: warning: left out: session {plan} was deleted")
    assert cli("import", "-", "--url", ELSEWHERE, stdin=done.out.encode()).lines == [alone]


def test_a_message_that_looks_like_a_header_stays_in_the_markdown(cli: Cli, plan: str) -> None:
    for _ in range(2):
        cli("send", plan, '{"type":"moorage"}')
    assert cli("export", plan, "--format", "markdown").out.count('{"type":"moorage"}') == 2


def test_importing_twice_changes_nothing(cli: Cli, plan: str, database: Path) -> None:
    cli("export", plan, "-o", "plan.jsonl")
    before = contents(database)
    report = cli("import", "plan.jsonl", "--json").json
    assert (report["imported"], report["already_there"]) == ([], [plan])
    assert contents(database) == before


def test_dry_run_lists_imports_and_stores_nothing(cli: Cli, plan: str) -> None:
    exported = cli("export", plan).out.encode()
    assert cli("import", "-", "--dry-run", "--url", ELSEWHERE, stdin=exported).lines == [plan]
    assert cli("import", "-", "--dry-run", stdin=exported).lines == []
    assert cli("list", "--url", ELSEWHERE).lines == []


def test_a_child_needs_its_parent_or_to_be_detached(cli: Cli, child: str) -> None:
    exported = cli("export", child).out.encode()
    for dry in ([], ["--dry-run"]):
        refused = cli("import", "-", *dry, "--url", ELSEWHERE, "--json", stdin=exported)
        assert (refused.code, refused.json["code"]) == (3, "parent_not_found")
    assert cli("import", "-", "--detach", "--url", ELSEWHERE, stdin=exported).lines == [child]
    assert cli("get", child, "--url", ELSEWHERE, "--json").json["parent_session_id"] is None


def test_a_file_that_was_cut_short_brings_nothing_at_all(cli: Cli, plan: str, child: str) -> None:
    lines = cli("export", plan, "--tree").lines
    cut = "\n".join(lines[:-1]).encode()
    refused = cli("import", "-", "--url", ELSEWHERE, "--json", stdin=cut)
    assert (refused.code, refused.json["code"]) == (2, "invalid_import")
    assert cli("list", "--url", ELSEWHERE).lines == []


@pytest.mark.parametrize("text", [b"", b"hello\n", b"\xff\xfe\n", b'{"type": "other"}\n'])
def test_invalid_export_is_refused(cli: Cli, text: bytes) -> None:
    done = cli("import", "-", "--json", stdin=text)
    assert (done.code, done.json["code"]) == (2, "invalid_import")


def test_markdown_is_for_reading(cli: Cli, plan: str) -> None:
    out = cli("export", plan, "--format", "markdown").out
    assert out.startswith("# plan-prod\n")
    assert "Plan the change" in out


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_export_as_json_is_one_document(cli: Cli, plan: str, form: str) -> None:
    document = cli("--json", "export", plan, "--format", form).json
    assert document["format"] == form
    if form == "jsonl":
        assert [line["type"] for line in document["lines"]] == ["moorage", "session", "entry", "entry", "entry", "end"]


def test_a_file_is_written_whole_or_not_at_all(cli: Cli, plan: str) -> None:
    Path("kept.jsonl").write_text("what was there")
    assert cli("export", plan, "no-such-session", "-o", "kept.jsonl").code == 3
    assert Path("kept.jsonl").read_text() == "what was there"
    refused = cli("export", plan, "-o", "no/such/folder/x.jsonl", "--json")
    assert (refused.code, refused.json["code"]) == (2, "invalid_output")
    assert [path.name for path in Path.cwd().iterdir()] == ["kept.jsonl"]


def test_export_wants_to_know_what(cli: Cli, plan: str) -> None:
    assert cli("export").code == 2
    assert cli("export", plan, "--all").code == 2


def test_a_file_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    done = cli("import", "nothing.jsonl")
    assert done.code == 2
    assert "nothing.jsonl" in done.err


# Files of others -------------------------------------------------------------------------------

DATA = Path(__file__).parents[2] / "data"
HOST, EXPLORER, READER = "5e9a0c1e-7d3b-4f60-9a1c-2b8d4e6f7a01", "a3f9c2d41b7e60585", "a77b10c9e2d4f6031"
STATE_ID = "agent-20260108-180530-abc12345"


def a_tree_of_states() -> None:
    """Two states in the current folder, one of them cut short."""
    whole = DATA / "state" / STATE_ID / "state.json"
    for name, text in ((STATE_ID, whole.read_text()), ("agent-cut", whole.read_text()[:300])):
        folder = Path(".claude") / "session" / name
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(text)


def test_a_folder_of_transcripts_comes_in_with_its_sub_agents(cli: Cli) -> None:
    done = cli("import", str(DATA / "claude-code"))
    assert (done.code, done.lines, done.err) == (0, [HOST, EXPLORER, READER], "")
    assert [line.split("\t")[0] for line in cli("children", HOST).lines] == [EXPLORER]
    assert "kubectl get pod" in cli("log", HOST).out


def test_a_corrupt_state_is_told_and_the_exit_code_says_so(cli: Cli) -> None:
    a_tree_of_states()
    done = cli("import", ".")
    assert (done.code, done.lines) == (1, [STATE_ID])
    assert done.err.startswith("moorage: left out: ./.claude/session/agent-cut/state.json: not JSON")
    assert cli("get", STATE_ID, "--json").json["phase"] == "approval"


def test_the_report_as_json_tells_all_of_it(cli: Cli) -> None:
    a_tree_of_states()
    done = cli("import", ".claude", str(DATA / "claude-code"), "--json")
    assert done.code == 1
    report = done.json
    assert report["imported"] == [STATE_ID, HOST, EXPLORER, READER]
    assert (report["already_there"], report["left_out_total"]) == ([], 1)
    assert report["left_out"][0]["file"] == ".claude/session/agent-cut/state.json"
    assert report["left_out"][0]["line"] is None
    assert report["passed_over"] == {"host": 5, "attachment": 3, "thinking": 1, "image": 1}


def test_importing_what_others_kept_twice_changes_nothing(cli: Cli, database: Path) -> None:
    sources = [str(DATA / "claude-code"), str(DATA / "claude-code-1.0"), str(DATA / "state")]
    cli("import", *sources)
    before = contents(database)
    done = cli("import", *sources, "--json")
    assert (done.code, done.json["imported"], len(done.json["already_there"])) == (0, [], 6)
    assert contents(database) == before


def test_a_dry_run_of_what_others_kept_brings_nothing(cli: Cli) -> None:
    a_tree_of_states()
    done = cli("import", ".claude", str(DATA / "claude-code"), "--dry-run")
    assert (done.code, done.lines) == (1, [STATE_ID, HOST, EXPLORER, READER])
    assert cli("list").lines == []


@pytest.mark.parametrize("source", ["auto", "claude-code"])
def test_a_transcript_may_come_by_standard_input(cli: Cli, source: str) -> None:
    data = (DATA / "claude-code" / f"{HOST}.jsonl").read_bytes()
    cut = cli("import", "-", "--from", source, stdin=data[:-100])
    assert (cut.code, cut.lines) == (1, [HOST])
    assert cut.err.startswith("moorage: left out: -:")
    assert "the last line was cut short" in cut.err


def test_unknown_format_changes_nothing(cli: Cli) -> None:
    Path("notes.txt").write_text("hello")
    done = cli("import", str(DATA / "state"), "notes.txt", "--json")
    assert (done.code, done.json["code"], done.json["file"]) == (2, "invalid_import", "notes.txt")
    assert cli("list").lines == []


def test_a_person_at_a_terminal_is_told_in_one_line(cli: Cli, terminal: Terminal) -> None:
    done = terminal.run("import", str(DATA / "claude-code"))
    assert done.code == 0
    assert done.out.splitlines()[-1] == (
        "Imported 3 sessions, 25 entries; 0 already there; passed over 5 host, 3 attachment, 1 thinking, 1 image."
    )


def test_terminal_is_not_obeyed_by_what_an_agent_wrote(cli: Cli, terminal: Terminal, plan: str) -> None:
    cli("send", plan, "red \x1b[31malert\x07", "--role", "assistant")
    for form in ("markdown", "jsonl"):
        assert "\x1b" not in terminal.run("export", plan, "--format", form).out
    assert "\x1b[31m" in cli("export", plan, "--format", "markdown").out  # a file gets every byte


@pytest.mark.parametrize("framework", ["langgraph", "openai", "adk"])
def test_url_that_is_no_postgresql_is_refused(cli: Cli, framework: str) -> None:
    refused = cli("import", f"--{framework}-postgres", "mysql://anna:secret@host/agents")
    assert refused.code == 2
    assert "postgresql://USER@HOST/DATABASE" in refused.err
    assert "secret" not in refused.err
