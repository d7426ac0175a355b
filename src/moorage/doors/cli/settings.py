"""The host's settings: insert and remove Moorage's hooks as text, so that all other text stays unchanged.

    {"hooks": {"Stop": [{"matcher": "…", "hooks": [{"type": "command", "command": "…", "timeout": 5}]}]}}
     root      hooks     list            entry      hook

A new hook follows the layout around it. A container that is empty after a removal is removed, too.
The file is read completely, and written completely or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import unified_diff
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from moorage.config import replacing
from moorage.core.errors import InvalidRequest

SCRIPT = "moorage-hook"
HOSTS_TIMEOUT = 60  # seconds, the host's default for a hook without a timeout
NOTHING = "\n"  # the text of empty settings
BYTE_ORDER_MARK = "\ufeff"

_BLANKS = re.compile(r"[ \t\r\n]*")
_COMMENTS = ("//", "/*", "#")


class Unreadable(Exception):
    """A text that does not have the expected form; `at` is the place, if known."""

    def __init__(self, why: str, at: int | None) -> None:
        self.why, self.at = why, at
        super().__init__(why)


class Hook(Struct, frozen=True):
    """One hook of Moorage: its event, its tools, its command, and its timeout in seconds."""

    event: str
    command: str
    timeout: float
    matcher: str | None = None

    @property
    def place(self) -> tuple[str, str | None]:
        """Return its place; one hook of ours is enough there."""
        return self.event, self.matcher


def installed(text: str, hooks: Sequence[Hook]) -> str:
    """Return the settings with exactly these hooks of ours. Raise Unreadable."""
    text = _without_others(text, hooks)
    for hook in hooks:
        text = _with(text, hook)
    return text


def uninstalled(text: str) -> str:
    return _without_others(text, ())


def hooks_of(text: str) -> list[Hook]:
    """Return our hooks in these settings. Raise Unreadable."""
    return [found.hook for found in _find(text)]


def are_switched_off(text: str) -> bool:
    """Return whether these settings disable all hooks of the host. Raise Unreadable."""
    return _read(text).get("disableAllHooks") is True


def is_ours(command: object) -> bool:
    """Return whether Moorage writes this command: the script, alone or with a URL."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # an unclosed quote
        return False
    return bool(words) and os.path.basename(words[0]) == SCRIPT and (len(words) == 1 or words[1:-1] == ["--url"])


# Reading ----------------------------------------------------------------------------------------


class _Part(Struct, frozen=True):
    """A member of an object or an item of a list: its start, and the start and the end of its value."""

    key: str | None
    start: int
    value: int
    end: int


class _Found(Struct, frozen=True):
    """A hook of ours and its position: for each container its place and its part, innermost first."""

    hook: Hook
    path: Sequence[tuple[int, _Part]]


def _read(text: str) -> dict[str, Any]:
    """Return the parsed settings. Raise Unreadable."""
    start = _start(text)
    if start == len(text):
        return {}
    try:
        settings = json.loads(text[start:], object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        at = start + error.pos
        raise Unreadable(
            "JSON has no comments; remove them" if text.startswith(_COMMENTS, at) else error.msg, at
        ) from None
    except RecursionError:
        raise Unreadable("it is nested too deeply", None) from None
    if not isinstance(settings, dict):
        raise Unreadable("settings must be an object, in braces", start)
    if not isinstance(settings.get("hooks", {}), dict):
        raise Unreadable('"hooks" must be an object, in braces', _part(text, start, "hooks").value)
    return settings


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for key, value in pairs:
        if key in read:
            raise Unreadable(f"the key {json.dumps(key)} is there twice", None)
        read[key] = value
    return read


def _start(text: str) -> int:
    return _behind_blanks(text, len(BYTE_ORDER_MARK) if text.startswith(BYTE_ORDER_MARK) else 0)


def _behind_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _parts(text: str, at: int) -> list[_Part]:
    """Return the parts of the object or list at a place; none for any other value."""
    parts: list[_Part] = []
    decode, opening, at = json.JSONDecoder().raw_decode, text[at], _behind_blanks(text, at + 1)
    while opening in "[{" and text[at] not in "]}":
        start, key = at, None
        if opening == "{":
            key, at = decode(text, at)
            at = _behind_blanks(text, text.index(":", at) + 1)
        parts.append(_Part(key, start, at, decode(text, at)[1]))
        at = _behind_blanks(text, parts[-1].end)
        at = _behind_blanks(text, at + 1) if text[at] == "," else at
    return parts


def _part(text: str, at: int, key: str) -> _Part:
    return next(part for part in _parts(text, at) if part.key == key)


def _find(text: str) -> Iterator[_Found]:
    """Yield our hooks, from top to bottom; a hook of another form than the host's is not ours."""
    if "hooks" not in _read(text):
        return
    root = _start(text)
    hooks = _part(text, root, "hooks")
    for event in _parts(text, hooks.value):
        for entry in _parts(text, event.value) if text[event.value] == "[" else ():
            said = json.loads(text[entry.value : entry.end])
            if not isinstance(said, dict) or not isinstance(said.get("hooks"), list):
                continue
            inside = _part(text, entry.value, "hooks").value
            for part, says in zip(_parts(text, inside), said["hooks"], strict=True):
                if (hook := _hook(str(event.key), said.get("matcher"), says)) is not None:
                    path = [(inside, part), (event.value, entry), (hooks.value, event), (root, hooks)]
                    yield _Found(hook, path)


def _hook(event: str, matcher: object, says: Any) -> Hook | None:
    if not isinstance(says, dict) or says.get("type") != "command" or not is_ours(says.get("command")):
        return None
    timeout = says.get("timeout")
    return Hook(
        event,
        says["command"],
        timeout if isinstance(timeout, int | float) else HOSTS_TIMEOUT,
        matcher if isinstance(matcher, str) and matcher not in ("", "*") else None,
    )


# Writing ----------------------------------------------------------------------------------------


def _without_others(text: str, wanted: Sequence[Hook]) -> str:
    """Return the text without those of our hooks that are misplaced or duplicated."""
    missing = {hook.place for hook in wanted}
    for found in _find(text):
        if found.hook.place not in missing:
            return _without_others(_without(text, found), wanted)
        missing.remove(found.hook.place)
    return text


def _without(text: str, found: _Found) -> str:
    """Return the text without a hook, and without the containers that held nothing else."""
    for container, part in found.path:
        parts = _parts(text, container)
        if parts[0] != part:  # remove the comma before it
            return text[: parts[parts.index(part) - 1].end] + text[part.end :]
        if len(parts) > 1:  # remove the comma after it
            return text[: part.start] + text[parts[1].start :]
    return NOTHING


def _with(text: str, hook: Hook) -> str:
    """Return the text with a hook: an existing hook in its place is updated, else a new one is added."""
    for found in _find(text):
        if found.hook == replace(hook, timeout=found.hook.timeout):
            return text
        if found.hook.place == hook.place:
            command = _part(text, found.path[0][1].value, "command")
            return text[: command.value] + _json(hook.command) + text[command.end :]
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    return _with_entry(
        text, hook.event, {**matcher, "hooks": [{"type": "command", "command": hook.command, "timeout": hook.timeout}]}
    )


def _with_entry(text: str, event: str, entry: dict[str, Any]) -> str:
    settings, root = _read(text), _start(text)
    if not settings:
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        return f"{mark}{_json({'hooks': {event: [entry]}}, '  ')}\n"
    if "hooks" not in settings:
        return _added(text, root, 1, '"hooks": ', {event: [entry]})
    hooks = _part(text, root, "hooks").value
    if event not in settings["hooks"]:
        return _added(text, hooks, 2, f"{_json(event)}: ", [entry])
    entries = _part(text, hooks, event).value
    if text[entries] != "[":
        raise Unreadable(f'"{event}" must be a list, in brackets', entries)
    return _added(text, entries, 3, "", entry)


def _added(text: str, container: int, depth: int, label: str, value: Any) -> str:
    """Return the text with one more part at the end of a container, laid out like the part before it."""
    parts, first = _parts(text, container), _parts(text, _start(text))[0]
    margin = text[_start(text) + 1 : first.start]  # before the first key of the file
    step = margin.rpartition("\n")[2] if "\n" in margin else None
    line = "" if step is None else "\r\n" if "\r\n" in text else "\n"
    if not parts:
        end = _behind_blanks(text, container + 1)
        lead, closing = line + (step or "") * depth, line + (step or "") * (depth - 1)
        return text[: container + 1] + lead + label + _laid_out(value, lead, step) + closing + text[end:]
    lead = (
        text[parts[-2].end : parts[-1].start].partition(",")[2] if parts[1:] else text[container + 1 : parts[0].start]
    )
    end = parts[-1].end
    return f"{text[:end]},{lead}{label}{_laid_out(value, lead, step)}{text[end:]}"


def _laid_out(value: Any, lead: str, step: str | None) -> str:
    """Return a value laid out behind this margin: on one line if the margin has no line feed."""
    if "\n" not in lead:
        return _json(value)
    return _json(value, step or "  ").replace("\n", ("\r\n" if "\r" in lead else "\n") + lead.rpartition("\n")[2])


def _json(value: Any, indent: str | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


# The file -----------------------------------------------------------------------------------------


class InvalidSettings(InvalidRequest):
    """A settings file that cannot be read or written, or that its owner has to fix."""

    def __init__(self, file: str, why: str, *, text: str = "", at: int | None = None) -> None:
        line = None if at is None else text.count("\n", 0, at) + 1
        column = None if at is None else at - text.rfind("\n", 0, at)
        place = "" if at is None else f", line {line}, column {column}"
        super().__init__(f"{file}{place}: {why}; nothing was changed", file=file, line=line, column=column)


class SettingsFile:
    """One settings file; with `brings_folder`, its folder is created and removed with it."""

    def __init__(self, path: str, *, brings_folder: bool) -> None:
        self.path, self.brings_folder = os.path.abspath(path), brings_folder

    def read(self) -> str:
        """Return the text, or NOTHING if there is no file. Raise InvalidSettings."""
        try:
            with open(self.path, "rb") as file:
                return file.read().decode()
        except FileNotFoundError:
            return NOTHING
        except UnicodeDecodeError as error:
            raise InvalidSettings(self.path, f"byte {error.start} is not valid UTF-8") from None
        except OSError as error:
            raise InvalidSettings(self.path, f"it cannot be read ({error.strerror})") from None

    def write(self, text: str) -> None:
        """Replace the file with the text; NOTHING removes the file. Raise InvalidSettings."""
        target = os.path.realpath(self.path)  # a link stays; its target is written
        try:
            if text == NOTHING:
                self._remove(target)
            else:
                self._replace(target, text.encode())
        except UnicodeEncodeError:
            raise InvalidSettings(self.path, "the path of a command is not valid UTF-8, and JSON has to be") from None
        except OSError as error:
            raise InvalidSettings(self.path, f"it cannot be written ({error.strerror})") from None

    def _remove(self, target: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(target)
        if self.brings_folder:
            with suppress(OSError):  # the folder is not empty
                os.rmdir(os.path.dirname(target))

    def _replace(self, target: str, data: bytes) -> None:
        if self.brings_folder:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        status = os.stat(target) if os.path.exists(target) else None
        mode = status.st_mode & 0o7777 if status else 0o666
        with replacing(target, mode=mode) as file:
            if status:
                with suppress(PermissionError):  # only root can give a file away
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
                os.fchmod(file.fileno(), mode)
            file.write(data)
        _sync_folder(os.path.dirname(target))


def _sync_folder(path: str) -> None:
    """Sync the folder, so that the renamed file survives a power failure."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Changing it ------------------------------------------------------------------------------------


class SettingsEdit:
    """A prepared edit of a settings file. Raises InvalidSettings if the file cannot be edited."""

    def __init__(self, file: SettingsFile, edit: Callable[[str], str]) -> None:
        self.file, self.before = file, file.read()
        with in_place(file, self.before):
            self.after = edit(self.before)

    @property
    def changes(self) -> bool:
        return self.before != self.after

    @property
    def diff(self) -> str:
        """Return the change as a unified diff; empty if there is none."""
        sides = [("", "/dev/null") if text == NOTHING else (text, self.file.path) for text in (self.before, self.after)]
        (before, old), (after, new) = sides
        lines = unified_diff(_lines(before), _lines(after), old, new)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def make(self) -> None:
        if self.changes:
            self.file.write(self.after)


@contextmanager
def in_place(file: SettingsFile, text: str) -> Iterator[None]:
    """Name the file, the line and the column of the error."""
    try:
        yield
    except Unreadable as problem:
        raise InvalidSettings(file.path, problem.why, text=text, at=problem.at) from None


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one."""
    return [line for line in re.split(r"(?<=\n)", text) if line]
