"""Convert rows to values and back. Instants are microseconds since 1970; JSON is decoded by type.

Sealed bodies are opened with the key that sealed them; new ones are sealed if there is a key. The first characters
identify a sealed body: no JSON begins with them, and a text of a head that does is stored with a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from moorage.core.approval import Approval
from moorage.core.entry import Entry, Kind
from moorage.core.errors import EncryptionKeyMissing, InvalidCursor, SessionCorrupt
from moorage.core.family import Tombstone
from moorage.core.policy import Span
from moorage.core.query import MAX_POSITION, make_cursor, read_cursor
from moorage.core.session import Session, Stamp
from moorage.stores import SEALED

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

Row = tuple[Any, ...]
Fields = dict[str, Any]  # a row by its columns
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SYSTEM = "system"
TILDE, _PLAIN = SEALED[0], "~plain:"  # prefix of a head's text that only looks sealed

ENTRY = "number, kind, at, role, content, data, by, interface, client_key"
ENTRY_OF_E = ", ".join(f"e.{column}" for column in ENTRY.split(", "))
RARE = "kind <> 'message' AND kind <> 'created'"  # the condition of the partial index on kinds
PINNED = ("system", "summary")  # kinds that windows always include
OPEN = "state IN ('queued', 'running')"  # of runs, the condition of the partial indexes
ITEM = "id, kind, state, given, turn, run, entry, is_joined, created_at"  # without the body, which few callers need
WHOLE_ITEM_OF_T = ", ".join(f"t.{column}" for column in [*ITEM.split(", "), "body"])
TOMBSTONE = "n, id, name, agent, task, state, root_of_deletion, deleted_at, deleted_by, reason"
TOMBSTONE_OF_T = ", ".join(f"t.{column}" for column in TOMBSTONE.split(", ")[1:])

_from_timestamp = datetime.fromtimestamp
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_parts = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


_decode_approval = msgspec.json.Decoder(Approval).decode


def micros(at: datetime) -> int:
    """Return an instant as stored."""
    delta = at - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def micros_or_none(at: datetime | None) -> int | None:
    """Return an optional instant as stored."""
    return None if at is None else micros(at)


def instant(stored: int) -> datetime:
    """Return a stored instant. A float of this size is exact to the microsecond until the year 2242."""
    return _from_timestamp(stored / 1e6, UTC)


def instant_or_none(stored: int | None) -> datetime | None:
    """Return a stored optional instant."""
    return None if stored is None else _from_timestamp(stored / 1e6, UTC)


# Sealing ----------------------------------------------------------------------------------------


def opened(sealer: Sealer | None, text: str, about: str) -> str:
    """Return the plain text of a body that may be encrypted. Raises EncryptionKeyMissing or ValueError."""
    if not text.startswith(SEALED):
        return text
    if sealer is not None:
        return sealer.open(text, about)
    from moorage.stores.sealing import key_id_of  # most stores have no sealed bodies

    raise EncryptionKeyMissing(key_id_of(text))


def head_text(sealer: Sealer | None, text: str, session_id: str, column: str) -> str:
    """Return a text of a head as stored: sealed, or plain with a prefix if it looks sealed."""
    if sealer is not None:
        return sealer.seal(text, about_head(session_id, column))
    return _PLAIN + text if text.startswith((SEALED, _PLAIN)) else text


def opened_head_text(sealer: Sealer | None, text: str, session_id: str, column: str) -> str:
    """Return the plain text of a stored head text that is sealed or prefixed."""
    if text.startswith(SEALED):
        return opened(sealer, text, about_head(session_id, column))
    return plain_head_text(text)


def plain_head_text(text: str) -> str:
    """Return the plain text of a head column that is not encrypted."""
    return text.removeprefix(_PLAIN)


def kept(sealer: Sealer | None, body: str, what: str, id_: str) -> str:
    """Return the stored body of a run, a turn, an item or an approval."""
    return body if sealer is None else sealer.seal(body, about_body(what, id_))


def about_head(session_id: str, column: str) -> str:
    """Return the associated data of an encrypted head column; the functions below do so for other tables."""
    return f"{column} of session {session_id}"


def about_entry(number: int, kind: str, at: int) -> str:
    """Return the associated data of an entry, without its session: forks share entries and may outlive their source.

    The time of an entry is practically unique.
    """
    return f"entry {number} {kind} {at}"


def about_record(owner: str, session: int, namespace: str, key: str, version: int) -> str:
    """Return the associated data of a record of a session (by its key in the store), or of its owner if that is 0."""
    return f"record {session or owner} {version} {namespace}/{key}"


def about_body(what: str, id_: str) -> str:
    """Return the associated data of a run, a turn or an approval by its id, of an item by its session's and its own."""
    return f"{what} {id_}"


# Entries ----------------------------------------------------------------------------------------


def entry_row(entry: Entry, segment: int, at: int, sealer: Sealer | None) -> Row:
    """Return the segment and the columns of ENTRY for an entry; `at` is its time as stored.

    If sealed, the whole body is in `data`, even plain text: there it cannot be mistaken for unsealed text.
    """
    kind, content, data = entry.kind, entry.content, entry.data
    if kind == "message":
        if entry.role == "system":
            kind = _SYSTEM
        if type(content) is str and "\0" not in content:  # PostgreSQL's text has no NUL: such text is stored as JSON
            text, json = content, None
        else:
            text, json = None, _encode(content).decode()
    else:
        text, json = None, None if data is None else _encode(data).decode()
    if sealer is not None and (text is not None or json is not None):
        body = json if json is not None else _encode(text).decode()
        text, json = None, sealer.seal(body, about_entry(entry.number, kind, at))
    return (
        segment, entry.number, kind, at, entry.role, text, json, entry.by, entry.interface, entry.client_key,
    )  # fmt: skip


def entry_of(row: Row, session_id: str, task_id: str, sealer: Sealer | None) -> Entry:
    """Return an entry from the columns of ENTRY. Raises SessionCorrupt if they are invalid."""
    return entries_of([row], session_id, task_id, sealer)[0]


def entries_of(rows: list[Row], session_id: str, task_id: str, sealer: Sealer | None) -> list[Entry]:
    """Return entries from the columns of ENTRY, in one loop: this dominates the cost of reading a history."""
    entries, last_at, when = [], None, _EPOCH
    for number, kind, at, role, content, data, by, interface, client_key in rows:
        if data is not None:
            content, data = _decoded(session_id, (number, kind, at), role, content, data, sealer)
        if at != last_at:  # messages appended together have the same time
            last_at, when = at, _from_timestamp(at / 1e6, UTC)
        shown = "message" if kind == _SYSTEM else kind
        entries.append(Entry(number, shown, when, role, content, data, by, interface, client_key, session_id, task_id))
    return entries


def _decoded(
    session_id: str, place: tuple[int, str, int], role: str | None, content: Any, data: str, sealer: Sealer | None
) -> tuple[Any, Any]:
    """Return content and data of an entry that is more than text. Plain text is sealed as JSON, too."""
    try:
        if data[:1] == TILDE:
            data = opened(sealer, data, about_entry(*place))
        if role is not None and data[:1] == '"':  # text that the store could not keep in the text column
            return _decode_any(data), None
        return (content, _decode_object(data)) if role is None else (_decode_parts(data), None)
    except ValueError as error:  # DecodeError is one
        raise SessionCorrupt(session_id, f"entry {place[0]}: {error}") from error


def stored_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Return kinds as stored in the column: messages have two."""
    known = tuple(kind for kind in kinds if kind != _SYSTEM)
    return (*known, _SYSTEM) if Kind.MESSAGE in known else known


# The rest ---------------------------------------------------------------------------------------


def readable(rows: Iterable[Row], read: Callable[[Row], T]) -> list[T]:
    """Return the values that can be read. A damaged one must not hide the others; `check` names it."""
    found = []
    for row in rows:
        with suppress(SessionCorrupt):
            found.append(read(row))
    return found


def json_text(value: Any) -> str:
    """Return a JSON value as stored."""
    return _encode(value).decode()


Getters = dict[str, Callable[[T], Any]]  # how to read each column's value from an object


class Table(Generic[T]):
    """How approvals, runs, turns or items are stored: an id, columns to search by, and a body of JSON.

    Fixed columns are written once, the others with every change.
    """

    def __init__(
        self,
        name: str,
        id_of: Callable[[T], str],
        body_of: Callable[[T, Sealer | None], str],
        *,
        fixed: Getters[T],
        moving: Getters[T],
        is_body_fixed: bool = False,
    ) -> None:
        self.name, self.id_of, self._body_of, self._is_body_fixed = name, id_of, body_of, is_body_fixed
        self._moving = tuple(moving.values())
        self._all = (id_of, *fixed.values(), *self._moving)
        self.moving = [*moving] if is_body_fixed else [*moving, "body"]
        self.columns = ["id", *fixed, *moving, "body"]

    def new(self, value: T, sealer: Sealer | None) -> list[Any]:
        """Return the values of `columns` for an object."""
        return [*[get(value) for get in self._all], self._body_of(value, sealer)]

    def changed(self, value: T, sealer: Sealer | None) -> list[Any]:
        """Return the values of `moving` for an object."""
        row = [get(value) for get in self._moving]
        if not self._is_body_fixed:
            row.append(self._body_of(value, sealer))
        return row

    def new_by_name(self, value: T, sealer: Sealer | None) -> Fields:
        """Return the values of `columns` for an object, by column name."""
        return dict(zip(self.columns, self.new(value, sealer), strict=True))


APPROVALS: Table[Approval] = Table(
    "approvals",
    attrgetter("approval_id"),
    lambda approval, sealer: kept(sealer, json_text(approval), "approval", approval.approval_id),
    fixed={"expires_at": lambda approval: micros_or_none(approval.expires_at)},
    moving={"state": attrgetter("state")},
)


def approval_of(row: Row, sealer: Sealer | None) -> Approval:
    """Return an approval from its body, its id and its session's. Raises SessionCorrupt if they are invalid."""
    body, id_, session_id = row
    try:
        return _decode_approval(opened(sealer, body, about_body("approval", id_)))
    except ValueError as error:  # it is no JSON, or cannot be opened
        raise SessionCorrupt(session_id, f"approval {id_}: {error}") from error


def tombstone_of(row: Row) -> Tombstone:
    """Return a tombstone from the columns of TOMBSTONE without the first, which are in the order of its fields."""
    fields = dict(zip(Tombstone.__struct_fields__, row, strict=True))
    return Tombstone(**{**fields, "deleted_at": instant(fields["deleted_at"])})


def tombstone_for(session: Session, root_id: str, stamp: Stamp, reason: str) -> Tombstone:
    """Return the tombstone of a session deleted with the tree of `root_id`."""
    return Tombstone(
        session_id=session.session_id, session_name=session.session_name, agent_name=session.agent_name,
        task_id=session.task_id, state=session.state.value, root_of_deletion=root_id, deleted_at=stamp.at,
        deleted_by=stamp.by, reason=reason,
    )  # fmt: skip


# Lists ordered by time --------------------------------------------------------------------------

SortPlace = tuple[int, int]  # a time as stored and, among rows of the same time, a key


def start(span: Span, cursor: str | None, mark: int) -> SortPlace:
    """Return where a list begins: after the cursor's place, else at the beginning of the span."""
    if cursor is None:
        return (-MAX_POSITION if span.created_after is None else micros(span.created_after)), -1
    text, _, rest = str(cursor).rpartition(".")
    key = read_cursor(rest, mark)
    try:
        at = int(text, 16)
    except ValueError:
        raise InvalidCursor from None
    if text != f"{at:x}" or not -MAX_POSITION < at < MAX_POSITION:
        raise InvalidCursor
    return at, key


def cursor_at(place: SortPlace, mark: int) -> str:
    """Return a cursor for a page that ended here."""
    at, key = place
    return f"{at:x}.{make_cursor(key, mark)}"
