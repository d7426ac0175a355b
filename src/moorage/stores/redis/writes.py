"""Write a unit with one script call: guards, then rows, places in lists, entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.json import Decoder

from moorage.core.approval import Approval, ApprovalState
from moorage.core.codec import encode_text
from moorage.core.errors import IdTaken, KeyReused, NameTaken
from moorage.core.inbox import OPEN_ITEMS, Item
from moorage.core.once import Once
from moorage.core.run import Run
from moorage.core.session import Session
from moorage.core.turn import Turn
from moorage.stores import Stale
from moorage.stores.redis import lists
from moorage.stores.redis.books import MEMORY, Book, write_ops
from moorage.stores.redis.db import CommitGuard, Op, Plan, RedisDb
from moorage.stores.redis.heads import OUT, read_tombstone
from moorage.stores.redis.keys import Keys
from moorage.stores.redis.values import APPROVALS, BODIES, ITEMS, RUNS, TURNS, Rows, entry_body, head_fields, label_of
from moorage.stores.redis.values import HeadGuard as Held
from moorage.stores.rows import json_text, micros
from moorage.stores.seam import LIVE_TURNS, Loaded, Out, Unit, Value

_read_once = Decoder(Once).decode
ROWS: dict[type, tuple[Rows[Any], str, str]] = {  # rows, the session's hash of open ones, and their letter there
    Run: (RUNS, "w", "r"),
    Turn: (TURNS, "w", "t"),
    Approval: (APPROVALS, "o", "a"),
}


async def commit(db: RedisDb, unit: Unit, tokens: Mapping[tuple[str, str], str]) -> None:
    """Write a unit; `tokens` are those of our locks. Raises Stale, AlreadyDone, KeyReused, IdTaken, NameTaken."""
    work = CommitPlan(db, unit, tokens)
    await work.check_once()
    await work.number()
    for loaded in unit.sessions.values():
        work.put(loaded)
        await work.put_records(loaded)
    await work.put_memory()
    for session_id, tombstone in unit.tombstones.items():
        work.write_tombstone(session_id, encode_text(tombstone))
    work.plan.guards += unit.guards
    work.plan.writes += unit.writes
    if not work.plan.is_empty:
        await db.commit(work.plan)


def stale(what: str, session_id: str | None = None) -> Any:
    """Return a refusal that makes the caller read again."""
    return lambda _: Stale(what, session_id)


class CommitPlan:
    """Builds the plan of a commit."""

    def __init__(self, db: RedisDb, unit: Unit, tokens: Mapping[tuple[str, str], str]) -> None:
        self.db, self.unit, self.plan, self._tokens = db, unit, Plan(), tokens
        self.keys: Keys = db.keys(unit.owner)
        self._next = 0
        self._numbers: dict[tuple[type, str], int] = {}  # serial numbers of new values

    # Requests under a key -----------------------------------------------------------------------

    async def check_once(self) -> None:
        """Refuse a request that was made before; record this one."""
        once = self.unit.once
        if once is None:
            return
        name, key = f"{once.operation}\0{once.key}", self.keys("once")
        known = await self.db.one("HGET", key, name)
        if known is not None and (kept := _read_once(known)).lives(once.at):
            await self.db.settle(self.keys("settled"))
            kept.check_repeats(once)
        text = None if known is None else known.decode()
        self.plan.guards.append(CommitGuard("HGET", key, name, text, stale("a request under the same key")))
        self.plan.writes.append(("HSET", key, name, encode_text(once)))
        self.plan.writes.append(("ZADD", self.keys.list("once"), str(micros(once.at)), name))

    # Numbers ------------------------------------------------------------------------------------

    async def number(self) -> None:
        """Reserve numbers for new values. Within a session they follow the order of commits: it is guarded by then."""
        new: list[tuple[type, str]] = []
        has_birth = False
        for session_id, loaded in self.unit.sessions.items():
            held: Held = loaded.guard or Held()
            loaded.guard = held
            has_birth = has_birth or loaded.is_new
            new += [(Session, session_id)] if loaded.is_new and not held.serial else []
            new += [key for key in loaded.now if key not in held.numbers]
        new += [(Unit, session_id) for session_id in self.unit.tombstones]
        if not new:
            return
        owners: list[Op] = [("SADD", self.db.shared("owners"), self.unit.owner)] if has_birth else []
        first = await self.db.numbers(len(new), *owners)
        self._numbers = {key: first + place for place, key in enumerate(new)}

    def _number(self, held: Held, kind: type, id_: str) -> int:
        known = held.numbers.get((kind, id_))
        return self._numbers[kind, id_] if known is None else known

    # Sessions -----------------------------------------------------------------------------------

    def put(self, loaded: Loaded) -> None:
        """Guard a session and write its changes."""
        held: Held = loaded.guard
        session_id = loaded.session_id
        if loaded.is_new:
            held.serial = held.serial or self._numbers[Session, session_id]
            self._check_free(loaded.session)
        else:
            self._guard(session_id, held.revision)
        if loaded.is_touched and session_id not in self.unit.tombstones:
            self._put_head(loaded, held)
            for (kind, id_), value in loaded.now.items():
                self._put_value(loaded, held, kind, id_, value)
            self._put_out(loaded, held)
            self._put_entries(loaded, held)

    def _guard(self, session_id: str, revision: int) -> None:
        """Guard that a session is unchanged since it was loaded, and that no lock of another caller is on it."""
        head, lock = self.keys.of("h", session_id), self.keys.of("t", session_id)
        token = self._tokens.get((self.unit.owner, session_id))
        changed, locked = (stale(f"session {session_id} {why}", session_id) for why in ("has changed", "is locked"))
        self.plan.guards.append(CommitGuard("HGET", head, "revision", str(revision), changed))
        self.plan.guards.append(CommitGuard("GET", lock, None, token, locked))

    def _check_free(self, new: Session) -> None:
        """Guard that an id and a name are free."""
        id_, name, keys = new.session_id, new.session_name, self.keys
        guards = [
            CommitGuard("HGET", keys.of("h", id_), "serial", None, lambda _: IdTaken(id_)),
            CommitGuard("HGET", keys("dead"), id_, None, lambda tombstone: read_tombstone(tombstone or "").gone()),
            CommitGuard("HGET", keys("names"), id_, None, lambda _: IdTaken(id_)),
        ]
        if name is not None and not new.is_final:
            guards += self._name_guards(name)
        self.plan.guards += guards
        if self.unit.room is not None:
            root, most = self.unit.room
            grew = stale("the family grew")
            self.plan.guards.append(CommitGuard("MOST", keys.list("open_below", root), None, most, grew))

    def _name_guards(self, name: str) -> list[CommitGuard]:
        """Guard that no open session has this name, and that it is no session's id."""
        return [
            CommitGuard("HGET", self.keys("names"), name, None, lambda holder: NameTaken(name, holder or "")),
            CommitGuard("HGET", self.keys.of("h", name), "serial", None, lambda _: NameTaken(name, name)),
        ]

    def _put_head(self, loaded: Loaded, held: Held) -> None:
        from msgspec.structs import replace

        session, keys = replace(loaded.session, owner=self.unit.owner), self.keys
        id_, name = session.session_id, session.session_name
        fields = head_fields(self.db, session, held.revision + 1)
        if loaded.is_new:
            fields = [part for pair in zip(fields[::2], fields[1::2], strict=True) if pair[1] for part in pair]
            fields += ["task", session.task_id, "serial", str(held.serial)]
            if held.lineage:
                fields += ["lineage", json_text(held.lineage)]
                for _, log, upto in held.lineage:
                    self.plan.writes.append(("ZADD", keys.list("readers", log), str(upto), id_))
            self.plan.writes.append(("ZADD", keys.list("segments"), str(held.serial), id_))
            self.plan.writes += lists.moved({}, lists.of_session(keys, session, held.serial))
        else:
            self.plan.writes += lists.session_moved(keys, loaded.before, session, held.serial)
        self.plan.writes.append(("HSET", keys.of("h", id_), *fields))
        old = None if loaded.is_new or loaded.before.is_final else loaded.before.session_name
        open_name = None if session.is_final else name
        if old is not None and old != open_name:
            self.plan.writes.append(("HDEL", keys("names"), old))
        if open_name is not None and old != open_name:
            if not loaded.is_new:
                self.plan.guards += self._name_guards(open_name)
            self.plan.writes.append(("HSET", keys("names"), open_name, id_))

    # Rows of a session --------------------------------------------------------------------------

    def _put_value(self, loaded: Loaded, held: Held, kind: type, id_: str, value: Value) -> None:
        number = self._number(held, kind, id_)
        before = loaded.was.get((kind, id_))
        is_new = before is None
        if isinstance(value, Item):
            self._put_item(value, number, is_new=is_new)
        else:
            self._put_row(loaded.session_id, kind, id_, value, number)
            if isinstance(value, Run) and is_new:
                self._put_key(value)
        old = {} if before is None else places_of(self.keys, before, number, loaded.session)
        self.plan.writes += lists.moved(old, places_of(self.keys, value, number, loaded.session))

    def _put_row(self, session_id: str, kind: type, id_: str, value: Value, number: int) -> None:
        rows, hash_, letter = ROWS[kind]
        text = rows.text(self.db, id_, value, number)
        self.plan.writes.append(("HSET", self.keys(rows.where), id_, text))
        self._put_open(self.keys.of(hash_, session_id), letter + id_, text, is_open=_is_open(value))

    def _put_item(self, item: Item, number: int, *, is_new: bool) -> None:
        from msgspec.structs import replace

        session_id, id_ = item.session_id, item.item_id
        text = ITEMS.text(self.db, id_, replace(item, body={}), number)
        self.plan.writes.append(("HSET", self.keys.of("i", session_id), id_, text))
        if is_new:
            body = BODIES.text(self.db, f"{session_id} {id_}", item.body, number)
            self.plan.writes.append(("HSET", self.keys.of("b", session_id), id_, body))
        self._put_open(self.keys.of("w", session_id), "i" + id_, text, is_open=item.state in OPEN_ITEMS)

    def _put_open(self, key: str, name: str, text: str, *, is_open: bool) -> None:
        self.plan.writes.append(("HSET", key, name, text) if is_open else ("HDEL", key, name))

    def _put_key(self, run: Run) -> None:
        key = run.idempotency_key
        if key is not None:
            self.plan.guards.append(CommitGuard("HGET", self.keys("run_keys"), key, None, lambda _: KeyReused(key)))
            self.plan.writes.append(("HSET", self.keys("run_keys"), key, run.run_id))

    def _put_out(self, loaded: Loaded, held: Held) -> None:
        if loaded.out_was is None:
            return
        key = self.keys.of("o", loaded.session_id)
        for run_id in loaded.out_was.keys() - loaded.out.keys():
            self.plan.writes.append(("HDEL", key, f"c{run_id}"))
        for run_id, out in loaded.out.items():
            if loaded.out_was.get(run_id) != out:
                number = held.numbers.get((Out, run_id)) or self._numbers.get((Run, run_id), 0)
                self.plan.writes.append(("HSET", key, f"c{run_id}", OUT.text(self.db, run_id, out, number)))

    async def put_records(self, loaded: Loaded) -> None:
        """Write the records of a change; the session is guarded, so their names are current."""
        if loaded.records:
            book = Book(self.keys, loaded.session_id, loaded.guard.serial)
            self.plan.writes += await write_ops(self.db, self.keys, book, loaded.records)

    async def put_memory(self) -> None:
        """Write records of the owner, unless some were written since the decision read them."""
        unit, meta, lock = self.unit, self.keys("meta"), self.keys.of("t", MEMORY)
        if not unit.memory:
            return
        known, changed = unit.memory_revision, stale("the memory of an owner", MEMORY)
        if known is None:
            await self.db.one("SADD", self.db.shared("owners"), unit.owner)
        self.plan.guards += [
            CommitGuard("HGET", meta, "memory", known, changed),
            CommitGuard("GET", lock, None, self._tokens.get((unit.owner, MEMORY)), changed),
        ]
        self.plan.writes += await write_ops(self.db, self.keys, Book(self.keys), unit.memory)
        self.plan.writes.append(("HSET", meta, "memory", str(int(known or 0) + 1)))

    def _put_entries(self, loaded: Loaded, held: Held) -> None:
        if not loaded.entries:
            return
        keys, id_ = self.keys, loaded.session_id
        for entry in loaded.entries:
            if entry.client_key is not None:
                self.plan.writes.append(("HSET", keys.of("k", id_), entry.client_key, str(entry.number)))
        labelled = [each for e in loaded.entries for each in (label_of(e), entry_body(self.db, e, held.serial))]
        self.plan.entries.append((*entry_keys(keys, id_), id_, loaded.entries[0].number, *labelled))
        if loaded.is_new:
            self._shrink(keys.of("l", id_))

    def _shrink(self, log: str) -> None:
        """Shrink a new log to the room it needs: a server reserves 4 KiB for it, but a copy has no spare room."""
        self.plan.after += [("COPY", log, f"{log}+"), ("RENAME", f"{log}+", log)]

    # Deleting -----------------------------------------------------------------------------------

    def write_tombstone(self, session_id: str, tombstone: str) -> None:
        """Delete a session with all of its rows. Its log is deleted afterwards, step by step: see `families`."""
        loaded, keys = self.unit.sessions[session_id], self.keys
        held: Held = loaded.guard
        for (kind, id_), value in loaded.values.items():
            number = held.numbers[kind, id_]
            self.plan.writes += lists.moved(places_of(keys, value, number, loaded.before), {})
            if not isinstance(value, Item):
                self.plan.writes.append(("HDEL", keys(ROWS[kind][0].where), id_))
            if isinstance(value, Run) and value.idempotency_key is not None:
                self.plan.writes.append(("HDEL", keys("run_keys"), value.idempotency_key))
        self.plan.writes += lists.moved(lists.of_session(keys, loaded.before, held.serial), {})
        name = loaded.before.session_name
        if name is not None and not loaded.before.is_final:
            self.plan.writes.append(("HDEL", keys("names"), name))
        self.plan.writes += [("UNLINK", keys.of(what, session_id)) for what in "howibkrny"]
        self.plan.writes += [
            ("ZREM", keys.list("updated"), session_id),
            ("ZREM", keys.list("record_ends"), session_id),
            ("HSET", keys("dead"), session_id, tombstone),
            ("ZADD", keys.list("dead"), str(self._numbers[Unit, session_id]), session_id),
            ("HSET", keys("purge"), session_id, json_text([(held.serial, session_id, 0), *held.lineage])),
        ]
        self.plan.entries.append((*entry_keys(keys, session_id), session_id, 0))


def places_of(keys: Keys, value: Value, number: int, session: Session) -> lists.SortPlaces:
    """Return the lists that a value is in, with its places there."""
    if isinstance(value, Run):
        return lists.of_run(keys, value, number)
    if isinstance(value, Turn):
        return lists.of_turn(keys, value, number, session.root_session_id)
    if isinstance(value, Item):
        return lists.of_item(keys, value, number)
    return lists.of_approval(keys, value, number)


def entry_keys(keys: Keys, session_id: str) -> tuple[str, ...]:
    """Return the keys that entries are written to."""
    return keys.of("l", session_id), keys.of("e", session_id), keys("feed"), keys("meta"), keys.list("updated")


def _is_open(value: Value) -> bool:
    if isinstance(value, Run):
        return not value.is_settled
    if isinstance(value, Turn):
        return value.state in LIVE_TURNS
    return isinstance(value, Approval) and value.state is ApprovalState.PENDING
