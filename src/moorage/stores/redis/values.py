"""Convert values to their stored form and back. A row is a number, a state and a body of JSON, which may be sealed.

A session's head is one JSON value. The fields that an append changes are stored beside it, and take precedence: an
append writes them and leaves the JSON unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec.json import Decoder
from msgspec.structs import replace

from moorage.core.approval import Approval
from moorage.core.entry import Entry
from moorage.core.errors import SessionCorrupt
from moorage.core.inbox import Item
from moorage.core.run import Run
from moorage.core.session import Session, State
from moorage.core.turn import Turn
from moorage.stores.redis.db import RedisDb
from moorage.stores.rows import instant, json_text, micros, opened

T = TypeVar("T")

HEAD = ("revision", "serial", "last", "state", "activity", "updated", "until", "head", "lineage")
_STATES = {state.value.encode(): state for state in State}
_read_session = Decoder(Session).decode
_read_entry = Decoder(Entry).decode
_read_lineage = Decoder(list[tuple[int, str, int]]).decode

Lineage = list[tuple[int, str, int]]  # of a fork: segments by serial number and log, and their last shared entries


def kept(db: RedisDb, text: str, about: str) -> str:
    """Return a body as stored."""
    return text if db.sealer is None else db.sealer.seal(text, about)


def read(db: RedisDb, text: bytes, about: str) -> str | bytes:
    """Return the plain text of a body. Raises EncryptionKeyMissing, or ValueError if it cannot be decrypted."""
    return opened(db.opener, text.decode(), about) if text[:1] == b"~" else text


class HeadGuard:
    """The revision and the row numbers of a loaded session, which its commit checks."""

    def __init__(self, revision: int = 0, serial: int = 0, lineage: Lineage | None = None) -> None:
        self.revision, self.serial, self.lineage = revision, serial, lineage or []
        self.numbers: dict[tuple[type, str], int] = {}


def head_of(db: RedisDb, session_id: str, fields: list[bytes | None]) -> tuple[Session, HeadGuard]:
    """Return a session and its guard from the fields of HEAD. Raises SessionCorrupt."""
    try:
        revision, serial, last, state, activity, updated, until, head, lineage = fields
        session = _read_session(read(db, head or b"", _about_head(session_id)))
        session = replace(
            session,
            last_entry=int(last or b""),
            state=_STATES[state or b""],
            last_activity_at=instant(int(activity or b"")),
            updated_at=instant(int(updated or b"")),
            hold=None if session.hold is None else replace(session.hold, until=instant(int(until or b""))),
        )
        guard = HeadGuard(int(revision or b""), int(serial or b""), _read_lineage(lineage) if lineage else [])
        return session, guard
    except (ValueError, KeyError, TypeError, OverflowError) as error:  # DecodeError is a ValueError
        raise SessionCorrupt(session_id, f"its head: {error}") from error


def head_fields(db: RedisDb, session: Session, revision: int) -> list[str]:
    """Return the changing fields of a head, and their values."""
    hold = session.hold
    return [
        "revision", str(revision), "version", str(session.version), "last", str(session.last_entry),
        "state", session.state.value, "activity", str(micros(session.last_activity_at)),
        "updated", str(micros(session.updated_at)), "until", "" if hold is None else str(micros(hold.until)),
        "token", "" if hold is None or not isinstance(hold.token, str) else hold.token,
        "live", session.live_turn or "",
        "head", kept(db, json_text(session.as_kept()), _about_head(session.session_id)),
    ]  # fmt: skip


def _about_head(session_id: str) -> str:
    return f"head of session {session_id}"


def label_of(entry: Entry) -> str:
    """Return the label that an entry can be found by besides its number; nothing for a plain message."""
    if not entry.is_message:
        return entry.kind
    return "system" if entry.role == "system" else ""


def entry_body(db: RedisDb, entry: Entry, serial: int) -> str:
    """Return an entry of a segment as stored, without the facts that its place implies."""
    text = json_text(replace(entry, number=0, session_id=None, task_id=None))
    return kept(db, text, _about_entry(entry.number, serial))


def entry_of(db: RedisDb, item: tuple[bytes, list[bytes]], session_id: str, task_id: str | None, serial: int) -> Entry:
    """Return an entry of a segment as a session shows it. Raises SessionCorrupt."""
    number = int(item[0].partition(b"-")[0])
    try:
        entry = _read_entry(read(db, item[1][1], _about_entry(number, serial)))
    except ValueError as error:
        raise SessionCorrupt(session_id, f"entry {number}: {error}") from error
    return Entry(
        number, entry.kind, entry.at, entry.role, entry.content, entry.data, entry.by, entry.interface,
        entry.client_key, session_id, task_id,
    )  # fmt: skip


def _about_entry(number: int, serial: int) -> str:
    return f"entry {number} of segment {serial}"


class Rows(Generic[T]):
    """How values of one kind are stored as rows; `where` is the owner's hash of all of them, if there is one."""

    def __init__(self, kind: type[T], what: str, where: str = "") -> None:
        self.kind, self.where, self._what = kind, where, what
        self._decode: Callable[[str | bytes], T] = Decoder(kind).decode

    def text(self, db: RedisDb, id_: str, value: T, number: int) -> str:
        """Return a value as stored."""
        return f"{number} {kept(db, json_text(value), f'{self._what} {id_}')}"

    def value(self, db: RedisDb, id_: str, row: bytes, session_id: str | None = None) -> tuple[int, T]:
        """Return the number and the value of a row. Raises SessionCorrupt."""
        number, _, body = row.partition(b" ")
        try:
            return int(number), self._decode(read(db, body, f"{self._what} {id_}"))
        except ValueError as error:
            raise SessionCorrupt(session_id or "-", f"{self._what} {id_}: {error}") from error


RUNS, TURNS, ITEMS = Rows(Run, "run", "runs"), Rows(Turn, "turn", "turns"), Rows(Item, "item")
APPROVALS: Rows[Approval] = Rows(Approval, "approval", "approvals")
BODIES: Rows[dict[str, Any]] = Rows(dict[str, Any], "body")
