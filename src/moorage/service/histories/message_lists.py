"""Lists of messages: conversations as programs for chat APIs store them.

A file holds one list, or an object with a list and further fields (`session_id`, `task_id`, `agent`), or lines with a
message each or a conversation each. In a folder `TASK/agent/conversation_history.json` the conversation belongs to
that task, and remains the same conversation after every rewrite.

Three ways of writing the same message are read: chat completions (`tool_calls`, the role `tool`, and what came before
them, `function_call` and the role `function`), the items of responses (`function_call`, `function_call_output`), and
blocks of content (`tool_use`, `tool_result`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from typing import Any

from msgspec import Struct, field

from moorage.core.codec import NOT_JSON, canonical, decode
from moorage.core.errors import InvalidRequest, MoorageError
from moorage.core.ids import check_label, check_session_id
from moorage.core.session import check_metadata
from moorage.service.histories.blocks import NotOurs, Part, by_speaker, decoded, output_of, parts_of
from moorage.service.histories.scribe import Conversation, EntryDraft, Scribe, Speaker, as_utc
from moorage.service.transfer import History, Notes

INTERFACE = "openai"
KEPT = "imported"  # metadata key for fields that we do not have
LISTS = ("messages", "conversation", "conversation_history", "history", "items", "input")
IDS = ("session_id", "conversation_id", "thread_id", "id")
AGENTS = ("agent_name", "agent")
MAX_LIST = 64 * 1024 * 1024  # bytes of a file that does not consist of lines

_NAMES_OF_ROLES = {
    "system": ("system", "developer"),
    "user": ("user", "human"),
    "assistant": ("assistant", "ai", "model"),
    "tool": ("tool", "function"),
}
ROLES = {name: role for role, names in _NAMES_OF_ROLES.items() for name in names}
ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_TYPES_OF_FILES = {
    "image": ("image_url", "input_image", "image_file"),
    "audio": ("input_audio", "audio"),
    "document": ("file", "input_file"),
}
FILES = {name: kind for kind, names in _TYPES_OF_FILES.items() for name in names}
THOUGHTS = ("reasoning", "reasoning_content", "thinking")
TIMES = ("timestamp", "created_at", "created", "create_time", "at", "ts", "time")
KNOWN = {"role", "content", "tool_calls", "function_call", "tool_call_id", "refusal", "type", "name", "id", "status"}
ITEM_FIELDS = {"call_id", "arguments", "input", "output"}

NumberedLine = tuple[int, bytes]
OpenaiMessage = dict[str, Any]


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
    for chat in chats:
        alone = session_id if len(chats) == 1 else None
        try:
            _write(history, chat, now, task_id, alone)
        except MoorageError as error:
            history.leave_out(f"{chat.name or 'the conversation'}: {error.message}")
    if not chats and not history.notes.left_out_total:
        history.leave_out("there is no message in it")
    return history


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
    lists = (name for name in LISTS if isinstance(value.get(name), list))
    return next((name for name in lists if any(map(is_message, value[name]))), None)


def _write(
    history: History, chat: ListedConversation, now: datetime, task_id: str | None, session_id: str | None
) -> None:
    conversation = Conversation()
    listener = Listener(conversation, history.notes)
    for place, (line, message) in enumerate(chat.messages, 1):
        try:
            listener.hear(message, line)
        except NotOurs as error:
            name = f"{chat.name}, message {place}" if chat.name else f"message {place}"
            history.leave_out(str(error) if line is not None else f"{name}: {error}", line)
    if not conversation.drafts:
        history.leave_out(f"{chat.name or 'the conversation'}: there is no message in it")
        return
    speaker = _speaker(history, chat, task_id, session_id)
    history.bundles.append(Scribe(conversation, speaker, history).bundle(time_of(chat.about) or now))


def _speaker(history: History, chat: ListedConversation, task_id: str | None, session_id: str | None) -> Speaker:
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
    return f"messages-{sha256(canonical([message for _, message in chat.messages])).hexdigest()[:32]}"


def session_of_task(task_id: str) -> str:
    """Return the session id of a task's conversation; every import gives the same."""
    try:
        return check_session_id(f"{task_id}:conversation")
    except InvalidRequest:
        return f"task-{sha256(task_id.encode('utf-8', 'replace')).hexdigest()[:32]}:conversation"


# Messages ---------------------------------------------------------------------------------------


class Listener:
    """Collects messages one after another as drafts of a conversation."""

    def __init__(self, conversation: Conversation, notes: Notes) -> None:
        self._conversation, self._notes = conversation, notes
        self._functions: list[tuple[str, str]] = []  # name and id of calls with neither an own id nor a result

    def hear(self, message: object, line: int | None) -> None:
        """Add one message, or one item. Raises NotOurs."""
        if not isinstance(message, dict):
            raise NotOurs("it is not an object")
        kind, role = message.get("type"), ROLES.get(_word(message, "role") or "")
        if kind in ITEMS:
            role, parts = _item(message)
        elif kind in THOUGHTS:
            self._notes.pass_over("thinking")
            return
        elif role is None:
            raise NotOurs(f"a message whose role is {message.get('role')!r}")
        else:
            parts = [self._result(message)] if role == "tool" else self._parts(message)
        known = KNOWN | ITEM_FIELDS if kind in ITEMS else KNOWN
        for key, value in message.items():
            if value is not None and key not in known and key not in TIMES:
                self._notes.pass_over("thinking" if key in THOUGHTS else f"field {key}")
        if not parts:
            self._notes.pass_over("empty")
        for speaker, said in by_speaker(role, parts):
            self._conversation.add(EntryDraft(line=line, at=time_of(message), role=speaker, parts=said), None)

    def _parts(self, message: OpenaiMessage) -> list[Part]:
        parts = parts_of(_blocks(message.get("content")), None, self._notes)
        if isinstance(message.get("refusal"), str) and message["refusal"]:
            parts.append({"type": "text", "text": message["refusal"]})
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise NotOurs("'tool_calls' is not a list")
        parts += map(_call, calls)
        if isinstance(message.get("function_call"), dict):
            call_id = f"function-{len(self._conversation.drafts) + 1}"
            call = _call_part(call_id, message["function_call"], "arguments")
            self._functions.append((call["name"], call_id))
            parts.append(call)
        return parts

    def _result(self, message: OpenaiMessage) -> Part:
        output = message.get("content")
        if isinstance(output, list):
            output = output_of(_blocks(output), None, self._notes)
        return _result_part(message.get("tool_call_id") or self._called(message.get("name")), output)

    def _called(self, name: object) -> str | None:
        """Return the id of the call that this function result belongs to: the oldest without a result."""
        known = next((call for call in self._functions if call[0] == name), None)
        if known is None:
            return None
        self._functions.remove(known)
        return known[1]


def is_message(value: object) -> bool:
    """Return whether something looks like a message or an item of such a list."""
    return isinstance(value, dict) and (_word(value, "role") in ROLES or value.get("type") in ITEMS)


def time_of(message: OpenaiMessage) -> datetime | None:
    """Return the time of a message, if it has one: RFC 3339, or seconds or milliseconds since 1970."""
    values = (message.get(name) for name in TIMES)
    value = next((each for each in values if isinstance(each, (str, int, float)) and not isinstance(each, bool)), None)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            at = as_utc(datetime.fromisoformat(value))
        else:
            at = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return at if 1970 <= at.year < 2242 else None


def _word(value: dict[str, Any], name: str) -> str | None:
    word = value.get(name)
    return word if isinstance(word, str) else None


def _item(item: OpenaiMessage) -> tuple[str, list[Part]]:
    if str(item["type"]).endswith("_output"):
        return "tool", [_result_part(item.get("call_id"), item.get("output"))]
    call_id = item.get("call_id") or item.get("id")
    return "assistant", [_call_part(call_id, item, "arguments" if item["type"] == "function_call" else "input")]


def _call(call: object) -> Part:
    if not isinstance(call, dict):
        raise NotOurs("a call of a tool that is not an object")
    kind = "custom" if isinstance(call.get("custom"), dict) else "function"
    return _call_part(call.get("id"), call.get(kind), "input" if kind == "custom" else "arguments")


def _call_part(call_id: object, called: object, arguments: str) -> Part:
    if not isinstance(called, dict) or not isinstance(called.get("name"), str):
        raise NotOurs("a call that names no function")
    if not isinstance(call_id, str) or not call_id:
        raise NotOurs(f"a call of {called['name']!r} without an id")
    return {"type": "tool_call", "id": call_id, "name": called["name"], "input": _arguments(called.get(arguments))}


def _arguments(text: object) -> Any:
    """Return the arguments parsed as JSON, or as text where a model wrote something else."""
    if not isinstance(text, str):
        return {} if text is None else text
    try:
        return decode(text) if text.strip() else {}
    except NOT_JSON:
        return text


def _result_part(call_id: object, output: object) -> Part:
    if not isinstance(call_id, str) or not call_id:
        raise NotOurs("the result of a call without the id of the call")
    return {"type": "tool_result", "call_id": call_id, "output": "" if output is None else output}


def _blocks(content: object) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content or None
    if not isinstance(content, list):
        raise NotOurs("a message whose content is neither text nor a list of parts")
    return [_block(part) for part in content]


def _block(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise NotOurs("a part that is not an object")
    kind = _word(part, "type")
    if kind in TEXTS:
        text = part.get(TEXTS[kind])
        return {"type": "text", "text": text.get("value") if isinstance(text, dict) else text}
    return {"type": FILES[kind], "source": _source(part)} if kind in FILES else part


def _source(part: dict[str, Any]) -> dict[str, Any]:
    """Return the source of an image or file as blocks have it: its address, its id, or its bytes."""
    said = part.get(str(part["type"])) or part
    facts = {"url": said} if isinstance(said, str) else said if isinstance(said, dict) else {}
    url = facts.get("url") or facts.get("image_url")
    data = facts.get("data") or facts.get("file_data")
    if isinstance(url, str) and url.startswith("data:"):
        kind, _, data = url.removeprefix("data:").partition(",")
        return {"media_type": kind.partition(";")[0], "data": data}
    found = {"url": url, "file_id": facts.get("file_id"), "media_type": facts.get("format"), "data": data}
    return {name: value for name, value in found.items() if isinstance(value, str)}
