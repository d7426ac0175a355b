"""Everything a user can call, type, set or be told has its place in the reference."""

import ast
import inspect
import re
from collections.abc import Iterator

import click
import msgspec
import pytest

from moorage import agent_session
from moorage.api import Context, Moorage
from moorage.connecting import connect
from moorage.core import errors
from moorage.core.entry import Kind
from moorage.core.once import AlreadyDone
from moorage.core.session import PUBLIC_FIELDS
from moorage.doors.cli.app import cli
from moorage.service.deps import Settings
from tests.docs.page import ROOT

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "moorage"


def text_of(page: str) -> str:
    """Return the text of a page of the reference, with that of the pages which continue it."""
    parts = [REFERENCE / page, *sorted((REFERENCE / page).with_suffix("").glob("*.md"))]
    parts += sorted(REFERENCE.glob(page.replace(".md", "-data.md")))
    return "\n".join(path.read_text(encoding="utf-8") for path in parts)


def code_spans(page: str) -> str:
    """Return all inline code of a page of the reference, one span per line."""
    text = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.M | re.S)
    return "\n".join(re.findall(r"`([^`\n]+)`", text))


def missing(page: str, names: set[str]) -> list[str]:
    """Return the names which no inline code of the page has as a whole word."""
    spans = code_spans(page)
    return sorted(name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", spans))


# Python -----------------------------------------------------------------------------------------


def public_methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def rows_of(prefix: str = "") -> dict[str, str]:
    """Return the signatures of the tables of python.md by method name."""
    text = text_of("python.md")
    return dict(re.findall(rf"^\| `{re.escape(prefix)}(\w+)\(([^`]*)\)`", text, flags=re.M))


@pytest.mark.parametrize(("kind", "prefix"), [(Moorage, ""), (Context, "context.")])
def test_every_method_and_argument_is_in_the_reference(kind: type, prefix: str) -> None:
    documented = rows_of(prefix)
    methods = public_methods(kind)
    assert sorted(methods.keys() - documented.keys()) == []
    absent = {
        name: absent
        for name, signature in methods.items()
        if (absent := [arg for arg in signature.parameters if arg != "self" and not in_words(arg, documented[name])])
    }
    assert absent == {}


@pytest.mark.parametrize(("kind", "prefix"), [(Moorage, ""), (Context, "context.")])
def test_the_reference_tells_of_no_argument_there_is_not(kind: type, prefix: str) -> None:
    methods = public_methods(kind)
    for name, signature in rows_of(prefix).items():
        if name in methods:
            told = set(re.findall(r"(?<![\w\"-])([a-z_]+)(?=[=,]|$)", re.sub(r"=\s*[^,]+", "=", signature)))
            assert told <= methods[name].parameters.keys(), name


def test_every_argument_of_connect_is_in_the_reference() -> None:
    assert missing("python.md", set(inspect.signature(connect).parameters)) == []


def test_every_function_of_agent_session_is_in_the_reference() -> None:
    assert missing("agent-session.md", set(agent_session.__all__)) == []


def in_words(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


# Command line -----------------------------------------------------------------------------------


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Walk the commands that people see, by the words they type."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


def section_of(name: str) -> str:
    """Return the part of cli.md that tells of a command; that of `context get` is in `context`."""
    text = text_of("cli.md")
    for heading, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", text, flags=re.M | re.S):
        if name.split()[0] in re.findall(r"[\w-]+", heading):
            return str(body)
    return ""


def options_of(command: click.Command) -> set[str]:
    return {
        option
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--") and option != "--help"
    }


COMMANDS = dict(commands(cli))
ALIASES = {
    name for name, command in COMMANDS.items() if name != command.name and COMMANDS.get(str(command.name)) is command
}
SHARED = options_of(cli) | {"--wide"}  # every command or list takes them; cli.md tells of them once


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_the_reference(name: str) -> None:
    assert re.search(rf"\bmoorage {name}\b", section_of(name))


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - ALIASES))
def test_every_option_is_in_the_reference(name: str) -> None:
    section = section_of(name)
    assert [option for option in options_of(COMMANDS[name]) - SHARED if f"`{option}" not in section] == []


def test_every_shared_option_is_in_the_reference() -> None:
    spans = code_spans("cli.md").splitlines()
    assert [option for option in SHARED if not any(span.split()[0] == option for span in spans)] == []


def test_the_reference_tells_of_no_option_there_is_not() -> None:
    known = {option for command in COMMANDS.values() for option in options_of(command)} | SHARED | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text_of("cli.md"))) <= known


# Errors, settings, sessions ---------------------------------------------------------------------


def error_classes(kind: type[errors.MoorageError] = errors.MoorageError) -> Iterator[type[errors.MoorageError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from error_classes(child)


def calls(*names: str) -> Iterator[tuple[str, str]]:
    """Find calls of these functions in the source whose first argument is a plain text: the name, and the text."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
                continue
            if node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                yield node.func.id, node.args[0].value


def computed_codes() -> set[str]:
    """Codes that are made when the error is: from a field's name, or given by the rule that raises it."""
    found = {"invalid_id", "invalid_name", "approval_expired", "approval_withdrawn"}
    for name, text in calls("InvalidField", "TooLarge", "check_label", "check_text", "check_said", "FamilyLimit"):
        field = text.split(".")[0]
        if name in ("InvalidField", "check_label", "check_text", "check_said"):
            found.add(f"invalid_{field.replace('-', '_')}")
        if name in ("TooLarge", "check_text", "check_said"):
            found.add(f"{field.replace(' ', '_')}_too_large")
        if name == "FamilyLimit":
            found.add(field)
    return found


def test_every_error_code_is_in_the_reference() -> None:
    fixed = {kind.code for kind in error_classes() if kind not in (*errors.CODED_ONE_BY_ONE, AlreadyDone)}
    assert len(fixed) > 30
    assert missing("errors.md", fixed | computed_codes()) == []


def test_every_code_of_the_drawn_tree_is_in_the_reference() -> None:
    no_codes = {"session_id", "session_name", "too_large"}  # fields, and the end of `<what>_too_large`
    drawn = set(re.findall(r"[a-z]+(?:_[a-z]+)+", errors.__doc__ or "")) - no_codes
    assert missing("errors.md", drawn) == []


def test_the_exit_code_of_every_family_is_in_the_reference() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    for kind in (errors.InvalidRequest, errors.NotFound, errors.Conflict, errors.AccessError, errors.StoreError):
        exit_code = errors.edge_of(kind("")).exit_code
        assert re.search(rf"`moorage\.{kind.__name__}` \| {exit_code} \|", text), kind.__name__


OF_STORES = {"url", "context_url", "encryption.key_file", "encryption.seal"}  # read before there are any settings
ELSEWHERE = {"secret_words": "redact.words", "count_tokens": "window.counter"}


def settings_of() -> set[str]:
    """Return what may stand in the file, as `table.name`."""
    groups = [field for field in msgspec.structs.fields(Settings) if field.name not in ELSEWHERE]
    names = {f"{field.name}.{name}" for field in groups for name in field.type.__struct_fields__}
    return names | OF_STORES | set(ELSEWHERE.values())


def test_every_setting_is_in_the_reference() -> None:
    settings = settings_of()
    assert {"url", "resume.idle_limit", "resume.idle_limits", "redact.words"} <= settings
    assert missing("configuration.md", settings) == []


def test_file_may_have_the_tables_of_all_settings() -> None:
    from moorage import config

    assert {name.partition(".")[0] for name in settings_of()} == set(config.TABLES)


def test_every_environment_variable_is_in_the_reference() -> None:
    read = set(re.findall(r"\"((?:MOORAGE|AGENT|XDG)_[A-Z_]+)\"", (SOURCE / "config.py").read_text(encoding="utf-8")))
    assert {"MOORAGE_URL", "MOORAGE_HOME", "AGENT_SESSION_ID"} <= read
    assert missing("configuration.md", read) == []


def test_the_defaults_shown_are_the_defaults() -> None:
    import tomllib

    from moorage import config

    text = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    [shown] = [block for block in re.findall(r"^```toml\n(.*?)^```$", text, flags=re.M | re.S) if "[redact]" in block]
    file, defaults = tomllib.loads(shown), Settings()
    resume = file["resume"]
    assert config.duration("", resume["idle_limit"]) == defaults.resume.idle_limit
    assert {name: config.duration("", limit) for name, limit in resume["idle_limits"].items()} == (
        defaults.resume.idle_limits
    )
    assert resume["max_errors"] == defaults.resume.max_errors
    assert file["family"] == msgspec.to_builtins(defaults.family)
    assert file["window"] == {"last": defaults.window.last}
    retention = file["retention"]
    assert config.duration("", retention["age"]) == defaults.retention.age
    assert config.duration("", retention["every"]) == defaults.retention.every
    assert retention["ages"] == defaults.retention.ages
    assert tuple(file["redact"]["words"]) == defaults.secret_words


def test_every_field_and_kind_is_in_the_reference() -> None:
    assert missing("session.md", {*PUBLIC_FIELDS, *Kind}) == []
