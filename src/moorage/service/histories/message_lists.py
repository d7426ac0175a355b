"""Lists of messages: conversations as programs for chat APIs store them.

A file holds one list, or an object with a list and further fields (`session_id`, `task_id`, `agent`), or lines with a
message each or a conversation each. In a folder `TASK/agent/conversation_history.json` the conversation belongs to
that task, and remains the same conversation after every rewrite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from msgspec import Struct, field

from moorage.core.codec import NOT_JSON, canonical
from moorage.core.errors import InvalidRequest, MoorageError
from moorage.core.ids import check_label, check_session_id
from moorage.core.session import check_metadata
from moorage.service.histories.blocks import NotOurs
from moorage.service.histories.conversations import Conversation
from moorage.service.histories.letters import decoded
from moorage.service.histories.openai_messages import Listener, OpenaiMessage, is_message, time_of
from moorage.service.histories.scribe import Scribe, Speaker
from moorage.service.importing import History

INTERFACE = "openai"
KEPT = "imported"  # metadata key for fields that we do not have
LISTS = ("messages", "conversation", "conversation_history", "history", "items", "input")
IDS = ("session_id", "conversation_id", "thread_id", "id")
AGENTS = ("agent_name", "agent")
MAX_LIST = 64 * 1024 * 1024  # bytes of a file that does not consist of lines

NumberedLine = tuple[int, bytes]


class ListedConversation(Struct, kw_only=True):
    """One conversation of a file: its messages, each with its line number, and its other fields."""

    messages: list[tuple[int | None, Any]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    name: str | None = None  # its name in the list that holds it


def is_list_of_messages(value: object) -> bool:
    """Return whether a whole document, or one line, is a conversation or a list of conversations."""
    if isinstance(value, list) and value:
        return any(map(is_message, value)) or all(isinstance(each, dict) and _listed(each) for each in value)
    return isinstance(value, dict) and _listed(value) is not None


def read_messages(
    file: str, lines: Iterable[bytes], *, now: datetime, task_id: str | None = None, session_id: str | None = None
) -> History:
    """Return the sessions of one file. Its path may give the `task_id` and the name of the session."""
    history = History(file=file)
    chats = list(_chats(history, lines))
    has_told = history.notes.left_out_total > 0
    for chat in chats:
        alone = session_id if len(chats) == 1 else None
        try:
            _write(history, chat, now, task_id, alone)
        except MoorageError as error:
            history.leave_out(f"{chat.name or 'the conversation'}: {error.message}")
    if not chats and not has_told:
        history.leave_out("there is no message in it")
    return history


# Reading ----------------------------------------------------------------------------------------


def _chats(history: History, lines: Iterable[bytes]) -> Iterator[ListedConversation]:
    """Yield the conversations of a file: from its lines, if its first line shows that form, else from a document."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        return iter(())
    every = chain([first], numbered)
    return _from_lines(history, every) if _is_one(first[1]) else _from_document(history, every)


def _from_lines(history: History, lines: Iterable[NumberedLine]) -> Iterator[ListedConversation]:
    """Yield one conversation with a message on each line, or one for each line. Leave out broken lines."""
    loose = ListedConversation()
    for number, line in lines:
        try:
            value = decoded(line)
        except NOT_JSON as error:
            history.leave_out(f"not JSON ({error})", number)
            continue
        if is_list_of_messages(value) and not is_message(value):
            yield from _conversations(value, f"line {number}")
        else:
            loose.messages.append((number, value))
    if loose.messages:
        yield loose


def _from_document(history: History, lines: Iterable[NumberedLine]) -> Iterator[ListedConversation]:
    """Yield the conversations of one value on several lines; if it cannot be read, those of the readable lines."""
    kept, size = [], 0
    for number, line in lines:
        kept.append((number, line))
        size += len(line)
        if size > MAX_LIST:
            history.leave_out(f"longer than {MAX_LIST >> 20} MiB, and not made of lines")
            return
    try:
        value = decoded(b"".join(line for _, line in kept))
    except NOT_JSON as error:
        if any(_is_one(line) for _, line in kept):
            yield from _from_lines(history, kept)
        else:
            history.leave_out(f"not JSON ({error})")
        return
    if is_list_of_messages(value):
        yield from _conversations(value, None)


def _is_one(line: bytes) -> bool:
    """Return whether a line alone is a message or a conversation."""
    try:
        value = decoded(line)
    except NOT_JSON:
        return False
    return is_message(value) or is_list_of_messages(value)


def _conversations(value: Any, where: str | None) -> Iterator[ListedConversation]:
    if isinstance(value, list) and not any(map(is_message, value)):
        for place, each in enumerate(value, 1):
            yield from _conversations(each, f"conversation {place}" if where is None else where)
        return
    said = value if isinstance(value, list) else value[_listed(value)]
    about = {} if isinstance(value, list) else {key: each for key, each in value.items() if key != _listed(value)}
    yield ListedConversation(messages=[(None, message) for message in said], about=about, name=where)


def _listed(value: dict[str, Any]) -> str | None:
    """Return the key under which an object has its messages."""
    for name in LISTS:
        listed = value.get(name)
        if isinstance(listed, list) and any(map(is_message, listed)):
            return name
    return None


# Writing ----------------------------------------------------------------------------------------


def _write(
    history: History, chat: ListedConversation, now: datetime, task_id: str | None, session_id: str | None
) -> None:
    conversation = Conversation()
    listener = Listener(conversation, history.notes)
    for place, (line, message) in enumerate(chat.messages, 1):
        _hear(history, listener, message, line, f"{chat.name}, message {place}" if chat.name else f"message {place}")
    if not conversation.drafts:
        history.leave_out(f"{chat.name or 'the conversation'}: there is no message in it")
        return
    birth = _birth(history, chat, task_id, session_id)
    began = time_of(chat.about)
    history.bundles.append(Scribe(conversation, birth, history).bundle(began or now))


def _hear(history: History, listener: Listener, message: OpenaiMessage, line: int | None, name: str) -> None:
    try:
        if not isinstance(message, dict):
            raise NotOurs("it is not an object")
        listener.hear(message, line)
    except NotOurs as error:
        reason = str(error) if line is not None else f"{name}: {error}"
        history.leave_out(reason, line)


def _birth(history: History, chat: ListedConversation, task_id: str | None, session_id: str | None) -> Speaker:
    about = dict(chat.about)
    own = session_id or _taken(about, IDS, check_session_id) or _digest(chat)
    task = _taken(about, ("task_id",), lambda text: check_label("task_id", text)) or task_id or own
    agent = _taken(about, AGENTS, lambda text: check_label("agent_name", text))
    metadata = {"host": INTERFACE, **({KEPT: about} if about else {})}
    try:
        check_metadata(metadata)
    except InvalidRequest as error:
        history.leave_out(f"what is said of the conversation besides: {error.message}")
        metadata = {"host": INTERFACE}
    return Speaker(session_id=own, task_id=task, agent=agent, metadata=metadata, interface=INTERFACE)


def _taken(about: dict[str, Any], names: tuple[str, ...], check: Any) -> str | None:
    """Return the first valid value of these names, and remove it from the fields to keep."""
    for name in names:
        if isinstance(about.get(name), str):
            try:
                found: str = check(about[name])
            except InvalidRequest:
                continue
            del about[name]
            return found
    return None


def _digest(chat: ListedConversation) -> str:
    """Return an id that is equal for equal conversations."""
    from hashlib import sha256

    return f"messages-{sha256(canonical([message for _, message in chat.messages])).hexdigest()[:32]}"


def session_of_task(task_id: str) -> str:
    """Return the session id of a task's conversation; every import gives the same."""
    from hashlib import sha256

    try:
        return check_session_id(f"{task_id}:conversation")
    except InvalidRequest:
        return f"task-{sha256(task_id.encode('utf-8', 'replace')).hexdigest()[:32]}:conversation"
