"""Find the files to import, and detect their kinds.

A folder is searched for files known by name and place: `*/state.json`, the
transcripts of Claude Code with those of their sub-agents, and `TASK/agent/conversation_history.json`.
The content of a file is never used as a path.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from typing import IO, Any

from msgspec import Struct

from moorage.core.codec import NOT_JSON, check_items
from moorage.core.errors import InvalidField, InvalidImport
from moorage.service.histories.blocks import decoded
from moorage.service.histories.message_lists import MAX_LIST, is_list_of_messages, is_message, session_of_task
from moorage.service.histories.transcripts import MAX_LINE, spawn_depth

Source = str | os.PathLike[str] | IO[bytes]

MOORAGE = "moorage"
STATE = "state"
CLAUDE_CODE = "claude-code"
OPENAI = "openai"
CONTEXTS = "contexts"
KINDS = (MOORAGE, STATE, CLAUDE_CODE, OPENAI, CONTEXTS)
LOOK_AT = 200  # lines: a transcript may begin with many internal lines of the host
NOTHING = object()  # the value of a text that is not JSON
AUTO = "auto"
STDIN = "<stdin>"  # the name of that stream
SOURCES = (AUTO, *KINDS)
STATE_FILE = "state.json"
SESSION_FOLDER = "session"  # in .claude, a folder for every session
SUBAGENTS = "subagents"
NOT_LOOKED_INTO = (".git", "node_modules")
MAX_STATE = 16 * 1024 * 1024
CONVERSATION = "conversation_history.json"  # of a task, in its folder `agent`
TASK_AGENT = "agent"
UNKNOWN = (
    "neither an export of Moorage, nor a state.json, nor a transcript of Claude Code, nor a list of messages, "
    "nor rows of session_id and context"
)

_is_transcript = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.jsonl").fullmatch
_is_subagent = re.compile(r"agent-[A-Za-z0-9_-]+\.jsonl").fullmatch


class FoundFile(Struct, kw_only=True):
    """A file to import."""

    name: str  # its name in the report
    kind: str | None = None
    problem: str | None = None  # why it cannot be imported, if that is known before reading
    stream: IO[bytes] | None = None  # otherwise `name` is opened
    is_copy: bool = False  # of a pipe; we have to close it
    size: int = 0
    folder: str | None = None  # of a state: the id that it must have
    session_id: str | None = None  # of a transcript or a conversation: the id in its name or place
    task_id: str | None = None  # of a conversation: the task in its place
    agent_id: str | None = None  # of a sub-agent's transcript: the id in its name
    about: bytes | None = None
    rank: int = 0  # parents before children

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file at its beginning."""
        if self.stream is not None:
            self.stream.seek(0)
            yield self.stream
        else:
            with open(self.name, "rb") as file:
                yield file

    def close(self) -> None:
        """Close the copy, if this is one."""
        if self.is_copy and self.stream is not None:
            self.stream.close()

    def lines(self, advance: Callable[[int], None]) -> Generator[bytes, None, None]:
        """Yield the file line by line; a line above the limit is cut, so that it does not fill the memory."""
        with self.opened() as file:
            while line := file.readline(MAX_LINE + 1):
                yield line
                advance(len(line))
                while len(line) > MAX_LINE and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE + 1)
                    advance(len(line))
                    if not line:
                        return


# Finding ----------------------------------------------------------------------------------------


def find(sources: Iterable[Source], kind: str = AUTO) -> list[FoundFile]:
    """Return the files to import, in the order of import.

    Raises InvalidImport for a file of unknown kind, and for a folder without any known file.
    """
    if kind not in SOURCES:
        raise InvalidField("source", f"is {kind!r}; use one of {', '.join(SOURCES)}")
    found: list[FoundFile] = []
    try:
        for source in check_items(sources, "paths"):
            found += _found_in(source, kind)
    except InvalidImport:
        for each in found:
            each.close()
        raise
    once = {os.path.realpath(each.name) if each.stream is None else id(each): each for each in found}
    return sorted(once.values(), key=lambda each: each.rank)


def kind_of_stream(stream: IO[bytes], max_document: int = MAX_LIST) -> str | None:
    """Return the kind of a stream, one of KINDS; None if it is unknown, or one value larger than `max_document`."""
    return _kind_of(_from_stream(stream, None), max_document)


def _found_in(source: Source, kind: str) -> list[FoundFile]:
    try:
        if not isinstance(source, (str, os.PathLike)):
            if not hasattr(source, "seekable"):
                raise InvalidField("paths", "must have names of files, or open files")
            name = getattr(source, "name", None)
            is_pipe = name == STDIN or not source.seekable()
            return [_copied(source, name, kind) if is_pipe else _known(_from_stream(source, name), kind)]
        path = os.fspath(source)
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return _in_folder(path.rstrip(os.sep) or os.sep, kind)
        if stat.S_ISREG(mode):
            return _single(path, kind)
        with open(path, "rb") as pipe:
            return [_copied(pipe, path, kind)]
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidImport(f"it cannot be read ({why})", file=str(source)) from None


def _from_stream(stream: IO[bytes], name: object, *, is_copy: bool = False) -> FoundFile:
    called = name if isinstance(name, str) and name != STDIN else "-"
    return FoundFile(name=called, stream=stream, is_copy=is_copy, size=stream.seek(0, os.SEEK_END))


def _copied(pipe: IO[bytes], name: object, kind: str) -> FoundFile:
    """Return a copy of a pipe, which can be read only once."""
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    with ExitStack() as unless_known:
        copy = unless_known.enter_context(TemporaryFile())
        copyfileobj(pipe, copy)
        file = _known(_from_stream(copy, name, is_copy=True), kind)
        unless_known.pop_all()
    return file


def _single(path: str, kind: str) -> list[FoundFile]:
    """Return a file that was named; its kind must be clear."""
    file = _known(_file(path), kind)
    if file.kind == OPENAI:
        return [_conversation(file)]
    if file.kind != CLAUDE_CODE:
        return [file]
    folder = os.path.join(path.removesuffix(".jsonl"), SUBAGENTS)
    names = sorted(filter(_is_subagent, os.listdir(folder))) if os.path.isdir(folder) else []
    beside = filter(os.path.isfile, (os.path.join(folder, name) for name in names))
    return [_transcript(file), *(_transcript(_file(each)) for each in beside)]


def _known(file: FoundFile, kind: str) -> FoundFile:
    """Set the kind of a file: as given, or from its name or its beginning."""
    file.kind = kind if kind != AUTO else _kind_of(file)
    if file.kind is None:
        raise InvalidImport(UNKNOWN, file=file.name)
    return file


def _kind_of(file: FoundFile, max_document: int = MAX_LIST) -> str | None:
    if os.path.basename(file.name) == STATE_FILE:
        return STATE
    with closing(file.lines(lambda _: None)) as lines:
        shown = (_kind_of_line(_value(line)) for line in islice(lines, LOOK_AT))
        kind = next((kind for kind in shown if kind is not None), None)
    return kind or _kind_of_document(file, max_document)


def _kind_of_document(file: FoundFile, max_document: int = MAX_LIST) -> str | None:
    """Return the kind of a file that is one value over many lines."""
    if file.size > max_document:
        return None
    with file.opened() as opened:
        value = _value(opened.read())
    if _is_state(value):
        return STATE if file.size <= MAX_STATE else None
    return OPENAI if is_list_of_messages(value) else None


def _kind_of_line(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    if value.get("type") == "moorage":
        return MOORAGE
    if _is_state(value):
        return STATE
    if isinstance(value.get("type"), str) and any(map(value.get, ("sessionId", "parentUuid", "leafUuid"))):
        return CLAUDE_CODE  # each relevant line names its session or another line
    message = {name: value.get(name) for name in ("role", "type", "messages")}
    if is_message(message) or is_list_of_messages(message):
        return OPENAI
    is_row = isinstance(value.get("session_id"), str) and isinstance(value.get("context"), (str, dict))
    return CONTEXTS if is_row else None


def _is_state(value: object) -> bool:
    """Return whether this is the state of a session, as scripts store it."""
    return isinstance(value, dict) and value.get("agent_id") is not None and value.get("phase") is not None


def _value(text: bytes) -> Any:
    try:
        return decoded(text)
    except NOT_JSON:
        return NOTHING


def _in_folder(root: str, kind: str) -> list[FoundFile]:
    """Return the files of a folder and its subfolders that are known by name and place."""
    found: list[FoundFile] = []
    for folder, folders, names in os.walk(root, onerror=lambda error: found.append(_unreadable(error.filename, error))):
        folders[:] = sorted(name for name in folders if name not in NOT_LOOKED_INTO)
        paths = (os.path.join(folder, name) for name in sorted(names))
        found.extend(file for path in paths if (file := _candidate(path, root, kind)) is not None)
    if not found:
        raise InvalidImport(f"it contains nothing that can be imported: {UNKNOWN}", file=root)
    return found


def _candidate(path: str, root: str, kind: str) -> FoundFile | None:
    try:
        if not os.path.isfile(path):
            return None
        if os.path.basename(path) == STATE_FILE:
            return _state(path, root) if kind in (AUTO, STATE) else None
        if path.endswith(".json"):
            return _json(path, root) if kind in (AUTO, OPENAI) else None
        return _jsonl(path, root, kind) if path.endswith(".jsonl") and kind != STATE else None
    except OSError as error:
        return _unreadable(path, error)


def _unreadable(path: str, error: OSError) -> FoundFile:
    return FoundFile(name=path, problem=f"it cannot be read ({error.strerror})")


def _state(path: str, root: str) -> FoundFile | None:
    """Return a session's state, in a folder with the name of the session."""
    file, folder = _file(path), os.path.dirname(path)
    above = os.path.dirname(os.path.abspath(folder))
    file.kind, file.folder = STATE, os.path.basename(os.path.abspath(folder))
    if os.path.basename(above) == SESSION_FOLDER or folder == root:
        return file
    if above != os.path.abspath(root):
        return None
    with file.opened() as opened:
        value = _value(opened.read(MAX_STATE))
    return file if value is NOTHING or _is_state(value) else None  # damaged, maybe; other programs have such files too


def _jsonl(path: str, root: str, kind: str) -> FoundFile | None:
    """Return a transcript by its name, in any folder; any other file by its content, if it is at the top."""
    name, folder = os.path.basename(path), os.path.dirname(path)
    is_named_so = bool(_is_transcript(name) or _is_subagent(name))
    if not is_named_so and folder != root:
        return None
    file = _file(path)
    file.kind = kind if kind != AUTO else _kind_of(file)
    if file.kind is None:
        file.problem = "not a transcript of Claude Code, though it is called like one"
        return file if is_named_so and file.size else None
    return _transcript(file) if file.kind == CLAUDE_CODE else file


def _json(path: str, root: str) -> FoundFile | None:
    """Return a task's conversation by its name and place; any other file by its content, if it is at the top."""
    file = _conversation(_file(path))
    if file.task_id is not None or os.path.basename(path) == CONVERSATION:
        return file
    return file if os.path.dirname(path) == root and _kind_of_document(file) == OPENAI else None


def _conversation(file: FoundFile) -> FoundFile:
    """Return a list of messages, with the task named by its place."""
    folder, name = os.path.split(os.path.abspath(file.name))
    file.kind = OPENAI
    if name == CONVERSATION and os.path.basename(folder) == TASK_AGENT:
        file.task_id = os.path.basename(os.path.dirname(folder)) or None
        file.session_id = None if file.task_id is None else session_of_task(file.task_id)
    return file


def _file(path: str) -> FoundFile:
    return FoundFile(name=path, size=os.stat(path).st_size)


def _transcript(file: FoundFile) -> FoundFile:
    """Return a transcript, with the facts from its name, its place and the file beside it."""
    folder, name = os.path.split(os.path.abspath(file.name))
    stem = name.removesuffix(".jsonl")
    file.kind, file.session_id, file.rank = CLAUDE_CODE, stem, 1
    if _is_subagent(name):
        file.session_id = os.path.basename(os.path.dirname(folder)) if os.path.basename(folder) == SUBAGENTS else None
        file.agent_id = stem.removeprefix("agent-")
        file.about = _beside(os.path.join(folder, f"{stem}.meta.json"))
        file.rank = 2 + spawn_depth(file.about)
    return file


def _beside(path: str) -> bytes | None:
    with suppress(OSError), open(path, "rb") as file:
        return file.read(MAX_STATE)
    return None
