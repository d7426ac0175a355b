"""The registry of agents: those that come with Moorage, and one for each file in a folder.

A file that cannot be read, or is invalid, affects only its own agent. Files are read for every
request, so a change needs no restart.
"""

from __future__ import annotations

from typing import Any, Protocol

from moorage.agents.builtin import DEFINITIONS
from moorage.core.agent import AgentDefinition, AgentKind, AgentRole, TomlTable, definition_of, wrong
from moorage.core.errors import AgentBuiltIn, AgentExists, AgentNotFound, InvalidDefinition, InvalidField
from moorage.core.ids import check_is_text

SUFFIX = ".toml"
HEADINGS = tuple(role.value for role in AgentRole)
MAX_BYTES = 256 * 1024
MAX_ATTEMPTS = 200  # to find the end of a value
MAX_NESTING = 32  # levels of a value, parts of a key

SeenFile = tuple[tuple[int, ...], AgentDefinition | InvalidDefinition]  # its stamp, and what is in it


class DefinitionFiles(Protocol):
    """The folder of definition files."""

    def stamps(self) -> dict[str, tuple[int, ...]]:
        """Return the paths of the files, each with a stamp that changes when the file does."""

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises OSError."""

    def write(self, name: str, text: str) -> str:
        """Write a text to the file of that name, completely or not at all; return its path."""

    def remove(self, path: str) -> None:
        """Delete a file."""


class Registry:
    """All agents, by name."""

    def __init__(self, files: DefinitionFiles) -> None:
        self._files = files
        self._seen: dict[str, SeenFile] = {}

    def all(self) -> dict[str, AgentDefinition]:
        """Return all valid agents by name, in order of names."""
        found = {**DEFINITIONS, **{agent.name: agent for agent in self._defined().values()}}
        return dict(sorted(found.items()))

    def problems(self) -> list[InvalidDefinition]:
        """Return the errors found in definition files."""
        self._defined()
        return [found for _, found in self._seen.values() if isinstance(found, InvalidDefinition)]

    def find(self, name: str) -> AgentDefinition | None:
        """Return an agent by name, disabled or not, or None. Raises InvalidDefinition if its file is invalid."""
        check_is_text(name, "name")
        found = self.all().get(name)
        if found is None:
            for problem in self.problems():
                if problem.file.rpartition("/")[2] == f"{name}{SUFFIX}":
                    raise problem
        return found

    def texts(self) -> dict[str, str]:
        """Return the unchanged text of each agent's file, by the agents' names."""
        return {agent.name: decoded(self._files.read(path), path) for path, agent in self._defined().items()}

    def add(
        self,
        definition: str | TomlTable,
        *,
        source: str = "the definition",
        replace: bool = False,
        dry_run: bool = False,
    ) -> AgentDefinition:
        """Store a definition in a file of its own: a text unchanged, with its comments, or a table.

        Raises InvalidDefinition, AgentExists. With `dry_run`, only look whether it could be stored.
        """
        agent = read_definition(definition, source)
        present = {known.name: path for path, known in self._defined().items()}
        if agent.name in present and not replace:
            raise AgentExists(agent.name, present[agent.name])
        if dry_run:
            return agent
        text = definition if isinstance(definition, str) else toml_of(agent)
        path = self._files.write(f"{agent.name}{SUFFIX}", text)
        if (old := present.get(agent.name)) not in (None, path):
            self._files.remove(str(old))
        return read_definition(text, path)

    def remove(self, name: str) -> AgentDefinition:
        """Delete an agent that was added, and return it.

        Raises:
            AgentNotFound: there is no such agent.
            AgentBuiltIn: it comes with Moorage.
        """
        check_is_text(name, "name")
        for path, agent in self._defined().items():
            if agent.name == name:
                self._files.remove(path)
                return agent
        if name in DEFINITIONS:
            raise AgentBuiltIn(name)
        raise AgentNotFound.among(name, self.all())

    def _defined(self) -> dict[str, AgentDefinition]:
        """Return the definitions in files, by path; only changed files are read."""
        stamps = self._files.stamps()
        self._seen = {path: self._looked_at(path, stamp) for path, stamp in sorted(stamps.items())}
        agents = {path: found for path, (_, found) in self._seen.items() if isinstance(found, AgentDefinition)}
        first: dict[str, str] = {}
        for path, agent in agents.items():
            if first.setdefault(agent.name, path) != path:
                why = f"there is an agent {agent.name!r} in {first[agent.name]} already"
                self._seen[path] = ((), InvalidDefinition(path, None, why))
        return {path: agent for path, agent in agents.items() if first[agent.name] == path}

    def _looked_at(self, path: str, stamp: tuple[int, ...]) -> SeenFile:
        if path in self._seen and self._seen[path][0] == stamp:
            return self._seen[path]
        try:
            return stamp, read_definition(decoded(self._files.read(path), path), path)
        except InvalidDefinition as problem:
            return stamp, problem
        except OSError as error:
            return (), InvalidDefinition(path, None, f"it cannot be read ({error.strerror})")


# Reading a file ---------------------------------------------------------------------------------


def read_definition(definition: str | TomlTable, source: str = "the definition") -> AgentDefinition:
    """Return the definition in a text or a table. Raises InvalidDefinition, for a text with the line of the error."""
    heading, table = _in_text(definition, source) if isinstance(definition, str) else _in_table(definition)
    try:
        agent = definition_of(table, AgentRole(heading), source=source)
        if agent.kind is AgentKind.BUILTIN and agent.name not in DEFINITIONS:
            raise wrong(("name",), f"is {agent.name!r}; agents of kind builtin are {', '.join(DEFINITIONS)}")
    except InvalidField as error:
        path = (heading, *getattr(error, "path", ()))
        line = line_of(definition, path) if isinstance(definition, str) else None
        raise InvalidDefinition(source, line, error.message) from error
    return agent


def _in_text(text: str, source: str) -> tuple[str, Any]:
    """Return the heading of the definition in a text, and the table below it."""
    tables = _tables(text, source)
    headings = [name for name in HEADINGS if name in tables]
    if others := [name for name in tables if name not in HEADINGS]:
        why = f"{others[0]} is not a heading of a definition; write [agent], [worker] or [tool]"
        raise InvalidDefinition(source, line_of(text, (others[0],)), why)
    if len(headings) != 1:
        why = "write one of [agent], [worker] and [tool], and one only"
        raise InvalidDefinition(source, line_of(text, tuple(headings[1:2])), why)
    return headings[0], tables[headings[0]]


def _in_table(table: TomlTable) -> tuple[str, Any]:
    """Return the same for a table, with or without the heading of an agent."""
    if not isinstance(table, dict):
        raise InvalidField("definition", "must be a text or an object")
    heading = next(iter(table)) if len(table) == 1 and next(iter(table)) in HEADINGS else None
    return ("agent", table) if heading is None else (heading, table[heading])


def _tables(text: str, source: str) -> dict[str, Any]:
    import tomllib  # takes 18 milliseconds, needed only if there are files

    if len(text) > MAX_BYTES:
        raise InvalidDefinition(source, None, f"it has more than {MAX_BYTES:,} characters")
    _check_shape(text, source)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        message, _, place = str(error).partition(" (at line ")
        line = place.split(",")[0]
        last = text.count("\n") + 1
        raise InvalidDefinition(source, int(line) if line.isdigit() else last, f"not valid TOML: {message}") from None


def _check_shape(text: str, source: str) -> None:
    """Refuse keys of many parts and deeply nested values: tomllib takes minutes for them, or exhausts the stack."""
    import re

    strings = r"\"{3}.*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*"
    bare = re.sub(strings, lambda found: "x" + "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    depth = 0
    for number, line in enumerate(bare.split("\n"), 1):
        for sign in re.findall(r"[\[{}\]]", line):
            depth += 1 if sign in "[{" else -1
            if depth > MAX_NESTING:
                raise InvalidDefinition(source, number, f"nested more than {MAX_NESTING} levels deep")
        if any(part.count(".") >= MAX_NESTING for part in re.split(r"[=,\[\]{}]", line)):
            raise InvalidDefinition(source, number, f"a key has more than {MAX_NESTING} parts")


def decoded(data: bytes, source: str) -> str:
    """Return the text of a file. Raises InvalidDefinition."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidDefinition(source, data.count(b"\n", 0, error.start) + 1, "not valid UTF-8") from None


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Return the line on which a key of a TOML text is set; if it is not set, the line of the table it belongs to.

    tomllib reports no positions. But the text up to a given line is TOML too, unless the line is inside
    a value: the key is set on the first line that adds it.
    """
    lines, tries = text.splitlines(), 0
    for number, line in enumerate(lines, 1):
        if path and _may_set(line, path[-1]):
            if _adds(lines, number, path):
                return number
            if (tries := tries + 1) >= MAX_ATTEMPTS:  # each attempt parses the text again
                break
    return line_of(text, path[:-1]) if len(path) > 1 else 1


def _may_set(line: str, key: str) -> bool:
    """Return whether a line may set the key: each candidate costs a parse of all text before it."""
    import re

    return key in line and re.search(rf"""(?:^|[\[{{,.])\s*["']?{re.escape(key)}["']?\s*[=.\]]""", line) is not None


def _adds(lines: list[str], number: int, path: tuple[str, ...]) -> bool:
    before = _readable(lines[: number - 1])
    if before is None or _has(before, path):
        return False  # in the middle of a value, or too late in the text
    for end in range(number, min(len(lines), number + MAX_ATTEMPTS) + 1):
        if (with_it := _readable(lines[:end])) is not None:
            return _has(with_it, path)
    return True


def _readable(lines: list[str]) -> TomlTable | None:
    import tomllib

    try:
        return tomllib.loads("\n".join(lines))
    except ValueError:
        return None


def _has(table: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


# Writing one ------------------------------------------------------------------------------------


def toml_of(agent: AgentDefinition) -> str:
    """Return a definition as the text of a file."""
    return "\n".join(_table_lines((agent.role.value,), agent.table())) + "\n"


def _table_lines(path: tuple[str, ...], table: TomlTable) -> list[str]:
    lines = [f"[{'.'.join(_key(part) for part in path)}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", *_table_lines((*path, key), value)]
    return lines


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("-", "a").replace("_", "a").isalnum()
    return key if is_bare else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    return _text(str(value))


def _text(text: str) -> str:
    """Return a text in TOML's quotes, which differ from JSON's in one character."""
    import json

    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
