"""Every command: help with examples that parse, and the options that all share."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import moorage
from moorage.core.errors import MoorageError
from moorage.doors.cli.app import COMMON, App, Command, Group
from moorage.doors.cli.app import cli as root
from tests.doors.cli.running import Cli

STAGE = (
    "create update rename get show list tree children log send suspend resume release fork finalize delete cleanup "
    "audit should-resume context memory checkpoint approvals approve reject request-approval compact search export "
    "import migrate doctor completion hooks stats agent agents run attach runs result stop retry inbox launcher "
    "launchers drain watch replay keys serve encryption-key sample mcp continue help"
)


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Walk all commands, by the words people type."""
    context = click.Context(group)
    yield " ".join(words), group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(commands(root))
EXAMPLES = [
    (name, example)
    for name, command in COMMANDS.items()
    if isinstance(command, Command | Group)
    for example in command.examples
]


def test_all_commands_are_there() -> None:
    assert set(STAGE.split()) == set(root.list_commands(click.Context(root)))
    assert {name.split()[1] for name in COMMANDS if name.startswith("context ")} == {"get", "set", "delete"}
    assert {name.split()[1] for name in COMMANDS if name.startswith("memory ")} == {"get", "set", "list", "delete"}
    assert {name.split()[1] for name in COMMANDS if name.startswith("checkpoint ")} == {"save", "show", "list"}
    hooks = {name.split()[1] for name in COMMANDS if name.startswith("hooks ")}
    assert hooks == {"install", "uninstall", "test", "deliver"}
    assert {name.split()[1] for name in COMMANDS if name.startswith("agents ")} == {
        "list",
        "show",
        "add",
        "remove",
        "check",
    }
    assert {name.split()[1] for name in COMMANDS if name.startswith("agent ")} == {
        *("run", "list-sessions", "show-session", "resume", "suspend", "cleanup")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_explains_and_shows_examples(cli: Cli, name: str) -> None:
    done = cli(*name.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: {' '.join(['moorage', *name.split()])}")
    examples = done.out.partition("\nExamples:\n")[2].splitlines()
    assert [line for line in examples if "moorage " in line]
    for option in ("--url", "--json"):
        assert option in done.out
    assert not [line for line in done.lines[2:] if line.endswith("...")], "a summary does not fit on its line"


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_examples_parse(name: str, example: str) -> None:
    kept = ("checkpoints.sqlite", "conversations.db", "sessions.db")
    for file in ("checkpoint.json", "plan.json", "sessions.jsonl", "chat.json", *kept):
        Path(file).write_text("{}")
    for folder in (".claude/session", "~/.claude/projects/my-project"):
        Path(folder).mkdir(parents=True)
    for words in command_lines(example):
        parse(root, words, click.Context(root, obj=App()))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name])
def test_every_example_of_a_command_is_one_of_it(name: str) -> None:
    command = COMMANDS[name]
    assert isinstance(command, Command | Group)
    own = {found for found, other in COMMANDS.items() if other is command}
    for example in command.examples:
        words = [word for line in command_lines(example) for word in line if word != "--json"]
        assert any(f" {known} " in f" {' '.join(words)} " for known in own), example


def command_lines(example: str) -> Iterator[list[str]]:
    """Return the arguments of each `moorage` in a line of a shell."""
    words = shlex.split(example)
    while words:
        end = next((place for place, word in enumerate(words) if word in ("|", ">")), len(words))
        if words[0] == "moorage":
            yield words[1:end]
        words = words[end + 1 :]


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse a command line to its end, and do nothing."""
    context = command.make_context(command.name, words, parent=parent)
    if isinstance(command, click.Group):
        known = vars(context)
        rest = [*known.get("_protected_args", known.get("protected_args", ())), *context.args]  # renamed in click 8.2
        assert rest or command.invoke_without_command, "an example ends with a command"
        if not rest:
            return
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        parse(found, rest, context)


def test_an_example_that_does_not_parse_would_be_noticed() -> None:
    for words in (["list", "--no-such-option"], ["get"], ["nonsense"], ["context", "set", "a", "b"]):
        with pytest.raises((click.UsageError, MoorageError)):
            parse(root, words)


# Options of all commands ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ["--url", "sqlite:///here.db", "--json", "list"],
        ["list", "--url", "sqlite:///here.db", "--json"],
        ["--json", "list", "--url=sqlite:///here.db"],
        ["agent", "--url", "sqlite:///here.db", "--json", "list-sessions"],
        ["--url", "sqlite:///elsewhere.db", "list", "--json", "--url", "sqlite:///here.db"],
    ],
    ids=" ".join,
)
def test_url_and_json_stand_before_or_after_the_command(cli: Cli, args: list[str]) -> None:
    session_id = cli("create", "--url", "sqlite:///here.db").id
    assert [item["session_id"] for item in cli(*args).json["items"]] == [session_id]


def test_the_url_may_come_from_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_URL", "sqlite:///here.db")
    cli("create")
    assert Path("here.db").exists()


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"moorage {moorage.__version__}\n"
    assert cli("--version", "--json").json == cli("--json", "--version").json == {"version": moorage.__version__}


@pytest.mark.parametrize(
    "args", [[], ["context"], ["nonsense"], ["list", "--bogus"], ["get"], ["list", "--limit", "0"]]
)
def test_a_wrong_command_line_is_one_document_and_exit_code_2(cli: Cli, args: list[str]) -> None:
    done = cli(*args, "--json")
    assert (done.code, done.json["code"]) == (2, "usage")
    assert done.err.splitlines()[-1].startswith("moorage: ")


def test_bare_moorage_is_one_screen_with_the_common_commands(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.err) == (0, "")
    assert len(done.lines) <= 40
    assert [line.split()[0] for line in section(done.out, "Common commands")] == list(COMMON)
    assert "moorage help all" in done.out


def section(text: str, title: str) -> list[str]:
    """Return the lines below a title."""
    return text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()


def test_help_all_lists_every_command_once_in_one_line_of_its_own(cli: Cli) -> None:
    lines = [line for line in cli("help", "all").lines if line.startswith("  ")][:-1]  # the exit codes come last
    names, texts = zip(*(line.split(maxsplit=1) for line in lines), strict=True)
    assert sorted(names) == sorted(root.list_commands(click.Context(root)))
    assert len(texts) == len(set(texts))
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


def test_help_of_a_command_is_that_of_its_option(cli: Cli) -> None:
    assert cli("help", "approvals", "show").out == cli("approvals", "show", "--help").out
    assert cli("help").out == cli("--help").out == cli().out


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["lst"], "moorage list"),
        (["approvals", "shwo"], "moorage approvals show"),
        (["help", "aprove"], "moorage approve"),
    ],
)
def test_misspelt_command_gets_the_nearest(cli: Cli, args: list[str], meant: str) -> None:
    done = cli(*args)
    assert (done.code, f"did you mean `{meant}`?" in done.err) == (2, True)


@pytest.mark.parametrize(
    "command", ["show", "create --parent", "approve", "approvals show", "run echo-agent x --parent"]
)
def test_misspelt_session_gets_the_nearest(cli: Cli, plan: str, command: str) -> None:
    done = cli(*command.split(), "plan-pord")
    assert (done.code, done.err.splitlines()[-1]) == (3, "Did you mean plan-prod?")


@pytest.mark.parametrize("command", ["show", "check", "remove"])
def test_misspelt_agent_gets_the_nearest(cli: Cli, command: str) -> None:
    done = cli("agents", command, "ehco-agent")
    assert (done.code, "did you mean echo-agent?" in done.err) == (3, True)


EVERY_COMMAND = [
    "create",
    "get {plan}",
    "show {plan}",
    "list",
    "update {plan} --phase planning",
    "fork {plan}",
    "suspend {plan}",
    "resume {plan}",
    "resume",
    "release {plan}",
    "should-resume {plan}",
    "checkpoint save {plan} {{}}",
    "checkpoint list {plan}",
    "send {plan} hello",
    "log {plan}",
    "search change",
    "context set {plan} key value",
    "context get {plan}",
    "context delete {plan} key",
    "tree {plan}",
    "children {plan}",
    "request-approval {plan} really?",
    "approvals",
    "cleanup --dry-run",
    "stats --by day",
    "audit",
    "export {plan}",
    "export {plan} -o out.jsonl",
    "migrate",
    "doctor",
    "completion bash",
    "agent list-sessions",
    "finalize {plan} completed",
    "delete {plan}",
]


@pytest.mark.parametrize("line", EVERY_COMMAND)
def test_json_is_one_document_and_nothing_else(cli: Cli, plan: str, line: str) -> None:
    done = cli("--json", *line.format(plan=plan).split())
    assert done.code in (0, 1)
    assert isinstance(done.json, dict)
    assert done.err == ""
