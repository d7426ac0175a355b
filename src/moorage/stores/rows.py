"""Rows to values and back. Instants are microseconds since 1970; JSON is decoded by type.

Sealed bodies are opened whatever key sealed them; new ones are sealed if there is a key. The first characters tell a
sealed body: no JSON begins with them, and a text of a head that does is stored with a prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from moorage.core.approval import Approval
from moorage.core.entry import Entry, Kind
from moorage.core.errors import EncryptionKeyMissing, SessionCorrupt
from moorage.core.family import Tombstone
from moorage.core.session import Session, Stamp
from moorage.stores import SEALED

if TYPE_CHECKING:
    from moorage.stores.sealing import Sealer

Row = tuple[Any, ...]
Fields = dict[str, Any]  # a row by its columns
T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SYSTEM = "system"
TILDE, _PLAIN = SEALED[0], "~plain:"  # how a head's text may begin that is not what it seems

ENTRY = "number, kind, at, role, content, data, by, interface, client_key"
ENTRY_OF_E = ", ".join(f"e.{column}" for column in ENTRY.split(", "))
RARE = "kind <> 'message' AND kind <> 'created'"  # as the partial index on kinds says it
PINNED = ("system", "summary")  # kinds that windows keep
OPEN = "state IN ('queued', 'running')"  # of runs, as the partial indexes say it
ITEM = "id, kind, state, given, turn, run, entry, is_joined, created_at"  # without the body: few need it
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
    """An instant as stored."""
    delta = at - _EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def micros_or_none(at: datetime | None) -> int | None:
    """An instant that may be missing, as stored."""
    return None if at is None else micros(at)


def instant(stored: int) -> datetime:
    """A stored instant. A float of this size still tells microseconds apart until the year 2242."""
    return _from_timestamp(stored / 1e6, UTC)


def instant_or_none(stored: int | None) -> datetime | None:
    """A stored instant that may be missing."""
    return None if stored is None else _from_timestamp(stored / 1e6, UTC)


# Sealing ----------------------------------------------------------------------------------------


def opened(sealer: Sealer | None, text: str, about: str) -> str:
    """Return the plain text of a body that may be encrypted. Raises EncryptionKeyMissing or ValueError."""
    if not text.startswith(SEALED):
        return text
    if sealer is not None:
        return sealer.open(text, about)
    from moorage.stores.sealing import key_id_of  # most stores have nothing of the kind

    raise EncryptionKeyMissing(key_id_of(text))


def head_text(sealer: Sealer | None, text: str, session_id: str, column: str) -> str:
    """A text of a head as stored: sealed, or plain and not to be taken for a sealed one."""
    if sealer is not None:
        return sealer.seal(text, about_head(session_id, column))
    return _PLAIN + text if text.startswith((SEALED, _PLAIN)) else text


def opened_head_text(sealer: Sealer | None, text: str, session_id: str, column: str) -> str:
    """Return what a text of a head says that is not what it seems."""
    if text.startswith(SEALED):
        return opened(sealer, text, about_head(session_id, column))
    return plain_head_text(text)


def plain_head_text(text: str) -> str:
    """Return the plain text of a head column that is not encrypted."""
    return text.removeprefix(_PLAIN)


def kept(sealer: Sealer | None, body: str, what: str, id_: str) -> str:
    """The body of a run, a turn, an item or an approval as stored."""
    return body if sealer is None else sealer.seal(body, about_body(what, id_))


def about_head(session_id: str, column: str) -> str:
    """Return the associated data of an encrypted head column; those of other tables are below."""
    return f"{column} of session {session_id}"


def about_entry(number: int, kind: str, at: int) -> str:
    """Not its session: forks share entries, and outlive who wrote them. Its time is as good as unique."""
    return f"entry {number} {kind} {at}"


def about_record(owner: str, session: int, namespace: str, key: str, version: int) -> str:
    """Of a record: of a session (by its key in the store), or of its owner if that is 0."""
    return f"record {session or owner} {version} {namespace}/{key}"


def about_body(what: str, id_: str) -> str:
    """Of a run, a turn, an approval, by its id; of an item, by its session's and its own."""
    return f"{what} {id_}"


# Entries ----------------------------------------------------------------------------------------


def entry_row(entry: Entry, segment: int, at: int, sealer: Sealer | None) -> Row:
    """An entry as its segment and the columns of ENTRY; `at` is its time, as stored.

    Sealed, the whole body is in `data`, plain text too: there it cannot be mistaken.
    """
    kind, content, data = entry.kind, entry.content, entry.data
    if kind == "message":
        if entry.role == "system":
            kind = _SYSTEM
        if type(content) is str and "\0" not in content:  # PostgreSQL has no text with NUL in it: that is kept as JSON
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
    """An entry from the columns of ENTRY; SessionCorrupt if they make none."""
    return entries_of([row], session_id, task_id, sealer)[0]


def entries_of(rows: list[Row], session_id: str, task_id: str, sealer: Sealer | None) -> list[Entry]:
    """Entries from the columns of ENTRY, one loop for all: this is what reading a history costs."""
    entries, last_at, when = [], None, _EPOCH
    for number, kind, at, role, content, data, by, interface, client_key in rows:
        if data is not None:
            if data[:1] == TILDE:
                content, data = _opened_entry(session_id, (number, kind, at), role, data, sealer)
            else:
                content, data = _decoded(session_id, number, role, content, data)
        if at != last_at:  # what was said together has one time
            last_at, when = at, _from_timestamp(at / 1e6, UTC)
        shown = "message" if kind == _SYSTEM else kind
        entries.append(Entry(number, shown, when, role, content, data, by, interface, client_key, session_id, task_id))
    return entries


def _decoded(session_id: str, number: int, role: str | None, content: Any, data: str) -> tuple[Any, Any]:
    """Content and data of an entry that is more than text."""
    try:
        if role is not None and data[:1] == '"':  # only text, but none that this store could keep as such
            return _decode_any(data), None
        return (content, _decode_object(data)) if role is None else (_decode_parts(data), None)
    except msgspec.DecodeError as error:
        raise SessionCorrupt(session_id, f"entry {number}: {error}") from error


def _opened_entry(
    session_id: str, place: tuple[int, str, int], role: str | None, sealed: str, sealer: Sealer | None
) -> tuple[Any, Any]:
    """The same, of a sealed one; there a message that is only text is sealed as JSON, too."""
    try:
        body = opened(sealer, sealed, about_entry(*place))
    except ValueError as error:
        raise SessionCorrupt(session_id, f"entry {place[0]}: {error}") from error
    return _decoded(session_id, place[0], role, None, body)


def stored_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds as the column has them: messages are of two."""
    known = tuple(kind for kind in kinds if kind != _SYSTEM)
    return (*known, _SYSTEM) if Kind.MESSAGE in known else known


# The rest ---------------------------------------------------------------------------------------


def json_text(value: Any) -> str:
    """A JSON value as stored."""
    return _encode(value).decode()


Getters = dict[str, Callable[[T], Any]]  # by column, what it holds of a value


class Table(Generic[T]):
    """How approvals, runs, turns or items are kept: an id, columns to look for, and a body of JSON.

    Fixed columns are written once. The others are written again with every change.
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
        """Return what `columns` hold of a value."""
        return [*[get(value) for get in self._all], self._body_of(value, sealer)]

    def changed(self, value: T, sealer: Sealer | None) -> list[Any]:
        """Return what `moving` hold of a value."""
        row = [get(value) for get in self._moving]
        if not self._is_body_fixed:
            row.append(self._body_of(value, sealer))
        return row

    def new_by_name(self, value: T, sealer: Sealer | None) -> Fields:
        """Return what `columns` hold of a value, by their names."""
        return dict(zip(self.columns, self.new(value, sealer), strict=True))

    def changed_by_name(self, value: T, sealer: Sealer | None) -> Fields:
        """Return what `moving` hold of a value, by their names."""
        return dict(zip(self.moving, self.changed(value, sealer), strict=True))


APPROVALS: Table[Approval] = Table(
    "approvals",
    attrgetter("approval_id"),
    lambda approval, sealer: kept(sealer, json_text(approval), "approval", approval.approval_id),
    fixed={"expires_at": lambda approval: micros_or_none(approval.expires_at)},
    moving={"state": attrgetter("state")},
)


def approval_of(row: Row, sealer: Sealer | None) -> Approval:
    """An approval from its body, its id and its session's; SessionCorrupt if it makes none."""
    body, id_, session_id = row
    try:
        return _decode_approval(opened(sealer, body, about_body("approval", id_)))
    except ValueError as error:  # it is not JSON, or does not open
        raise SessionCorrupt(session_id, f"approval {id_}: {error}") from error


def tombstone_of(row: Row) -> Tombstone:
    """A tombstone from the columns of TOMBSTONE, without the first."""
    id_, name, agent, task, state, root, deleted_at, deleted_by, reason = row
    return Tombstone(
        session_id=id_,
        session_name=name,
        agent_name=agent,
        task_id=task,
        state=state,
        root_of_deletion=root,
        deleted_at=instant(deleted_at),
        deleted_by=deleted_by,
        reason=reason,
    )


def tombstone_row(tombstone: Tombstone) -> Row:
    """Return the columns of TOMBSTONE, without the first."""
    return (
        tombstone.session_id, tombstone.session_name, tombstone.agent_name, tombstone.task_id, tombstone.state,
        tombstone.root_of_deletion, micros(tombstone.deleted_at), tombstone.deleted_by, tombstone.reason,
    )  # fmt: skip


def tombstone_for(session: Session, root_id: str, stamp: Stamp, reason: str) -> Tombstone:
    """Return the tombstone of a session deleted with the tree of `root_id`."""
    return Tombstone(
        session_id=session.session_id,
        session_name=session.session_name,
        agent_name=session.agent_name,
        task_id=session.task_id,
        state=session.state.value,
        root_of_deletion=root_id,
        deleted_at=stamp.at,
        deleted_by=stamp.by,
        reason=reason,
    )
