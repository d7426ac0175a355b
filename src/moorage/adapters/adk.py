"""Google Agent Development Kit: `MoorageSessionService`, for sessions that several processes may share.

::

    runner = Runner(agent=agent, app_name="shop", session_service=MoorageSessionService("sqlite:///moorage.db"))

An event, the state after it and its messages for the log are one commit. The version of the record `state` tells
whether another writer committed first; then the append is stale and refused.

The state of an app or of a user belongs to many sessions, so it is a record of the owner's memory. Sessions that change
it concurrently do not make each other stale: the later one merges its values into the newer record.

`state` is the last key of a session, after all events. So a list of the namespace, in either direction, reads a state
together with the events that led to it.
"""

from __future__ import annotations

from moorage.adapters.adapter import require
from moorage.core.entry import Message

require("google-adk", "google-adk", "2.13")

from collections.abc import Sequence
from contextlib import suppress
from time import time
from typing import Any
from uuid import uuid4

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from pydantic_core import PydanticSerializationError, to_jsonable_python

from moorage.adapters.adapter import Adapter
from moorage.adapters.batches import in_batches, read_all, read_last
from moorage.adapters.foreign_ids import session_id_of
from moorage.adapters.formats import adk
from moorage.adapters.payload import form_of, packed, unpacked
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.errors import IdTaken, InvalidJson, SessionNotFound, VersionConflict
from moorage.core.record import MAX_WRITES, RecordRequest
from moorage.records import Append, Drop, Put, Record

__all__ = ["MoorageSessionService"]

STATE, EVENTS = "state", "events/"
STALE = "the session was changed since it was read; get it again and repeat"

Values = dict[str, Any]
Scopes = dict[str, Values]  # state by its scope: app, user, session
Parts = tuple[str, str, str]  # app, user, session


class MoorageSessionService(Adapter, BaseSessionService):
    """Sessions, events and state in the interface of ADK."""

    framework = adk.FRAMEWORK

    async def create_session(
        self, *, app_name: str, user_id: str, state: Values | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session. Raises AlreadyExistsError."""
        name = (session_id or "").strip() or str(uuid4())
        parts = (app_name, user_id, name)
        scopes = _by_scope(state or {})
        await self._write(lambda moor: self._create(moor, parts, scopes))
        found = await self.get_session(app_name=app_name, user_id=user_id, session_id=name)
        if found is None:
            raise SessionNotFoundError(f"Session {name} was deleted meanwhile; create it again.")
        return found

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its state and events, or None."""
        parts = (app_name, user_id, session_id.strip())
        return await self._read(self._if_known(parts, lambda moor, ref: self._load(moor, ref, parts, config)))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app, or of one of its users, without events; the last changed one is last."""

        async def read(moor: Moorage) -> list[Session]:
            start = (app_name,) if user_id is None else (app_name, user_id)
            held = await self._with_record(moor, start, 3, STATE)
            shared = await self._shared(moor, app_name, [user for (_, user, _), _, _ in held])
            found = [
                _session((app, user, name), session.session_id, record, shared[user], [])
                for (app, user, name), session, record in held
            ]
            return sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id))

        return ListSessionsResponse(sessions=await self._read(read))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its log and its children. The state of app and user stays."""
        parts = (app_name, user_id, session_id.strip())
        await self._write(self._if_known(parts, lambda moor, ref: moor.delete(ref)))

    async def get_user_state(self, *, app_name: str, user_id: str) -> Values:
        """Return the state of a user, without the prefix `user:`."""
        return await self._read(lambda moor: self._memory(moor, _user_key(app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event. Raises StaleSessionError if another writer changed the session since it was read."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        scopes = _by_scope(event.actions.state_delta if event.actions else {})
        parts = (session.app_name, session.user_id, session.id)

        async def add(moor: Moorage) -> str:
            return await self._in_session(parts, lambda ref: self._add(moor, ref, session, event, scopes))

        try:
            marker = await self._write(add)
        except SessionNotFound:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        session.last_update_time, session._storage_update_marker = event.timestamp, marker
        return self._commit_event_to_session(session, event)

    # Moving in --------------------------------------------------------------------------------------

    async def restore(self, parts: Parts, state: Values, at: float, events: Sequence[Event]) -> None:
        """Write a session as another service stored it. It appears only once it is complete."""
        labels = [self._label(parts[0]), self._label(*parts[:2])]

        async def write(moor: Moorage) -> None:
            # Remains of an interrupted restore.
            first: list[RecordRequest] = [Drop(namespace=self.framework, key=EVENTS, prefix=True)]
            await self._commit(moor, parts, first, labels=labels)
            for some in in_batches(events, MAX_WRITES):
                appends, said = self._appended(some)
                await self._commit(moor, parts, appends, said)
            await self._commit(moor, parts, [self._state(state, at, 0)])

        await self._write(write)

    async def restore_state(self, app: str, user: str | None, state: Values) -> None:
        """Write the state of an app or of a user, unless it has some."""
        data = packed(state, "state")
        key = _app_key(app) if user is None else _user_key(app, user)
        put = Put(namespace=self.framework, key=key, value=data, form=form_of(data), keep=True)
        await self._write(lambda moor: moor.memory.write([put]))

    def _appended(self, events: Sequence[Event]) -> tuple[list[RecordRequest], list[Message]]:
        texts = [event.model_dump_json(exclude_none=True).encode() for event in events]
        appends: list[RecordRequest] = [
            Append(namespace=self.framework, prefix=EVENTS, value=text, form=form_of(text)) for text in texts
        ]
        said = [one for text in texts for one in adk.said(msgspec.json.decode(text))] if self._projection else []
        return appends, with_distinct_keys(said)

    # Writing ----------------------------------------------------------------------------------------

    async def _create(self, moor: Moorage, parts: Parts, scopes: Scopes) -> None:
        app, user, name = parts
        labels = [self._label(app), self._label(app, user)]

        async def create(ref: str) -> None:
            with suppress(IdTaken):
                await moor.create(session_id=ref, **self._birth(parts, labels=labels))
            try:
                await self._commit_all(moor, ref, parts, [self._state(scopes["session"], time(), 0)], scopes)
            except VersionConflict:
                raise AlreadyExistsError(f"Session with id {name} already exists.") from None

        await self._in_session(parts, create)

    async def _add(self, moor: Moorage, ref: str, session: Session, event: Event, scopes: Scopes) -> str:
        record = await moor.records.get(ref, self.framework, STATE)
        if record is None:
            raise SessionNotFound(ref)
        _check_not_stale(session, ref, record)
        state = {**unpacked(record.value)["state"], **scopes["session"]}
        appends, messages = self._appended([event])
        writes = [*appends, self._state(state, event.timestamp, record.version)]
        try:
            await self._commit_all(moor, ref, (session.app_name, session.user_id, session.id), writes, scopes, messages)
        except VersionConflict:
            raise StaleSessionError(STALE) from None
        return _marker(ref, record.version + 1)

    async def _commit_all(
        self,
        moor: Moorage,
        ref: str,
        parts: Parts,
        writes: Sequence[RecordRequest],
        scopes: Scopes,
        messages: Sequence[Message] = (),
    ) -> None:
        """Write to a session and to the state of its app and user, in one commit.

        Raises VersionConflict if the session is not as expected. If only the state of the app or of the user has
        changed, merge into it again.
        """
        keys = {"app": _app_key(parts[0]), "user": _user_key(*parts[:2])}
        changes = {key: scopes[scope] for scope, key in keys.items() if scopes[scope]}
        while True:
            memory = await self._merged(moor, changes) if changes else []
            try:
                await moor.records.write(ref, writes, messages=messages, memory=memory)
            except VersionConflict as error:
                if error.facts.get("key") in changes:
                    continue
                raise
            return

    async def _merged(self, moor: Moorage, changes: dict[str, Values]) -> list[Put]:
        found = await moor.memory.get_many(self.framework, list(changes))
        return [
            self._put(key, {**(unpacked(old.value) if old else {}), **values}, old.version if old else 0)
            for (key, values), old in zip(changes.items(), found, strict=True)
        ]

    def _state(self, state: Values, at: float, version: int) -> Put:
        return self._put(STATE, {"state": state, "at": at}, version)

    def _put(self, key: str, value: Values, version: int) -> Put:
        data = packed(value, "state")
        return Put(namespace=self.framework, key=key, value=data, form=form_of(data), version=version)

    # Reading ----------------------------------------------------------------------------------------

    async def _load(self, moor: Moorage, ref: str, parts: Parts, config: GetSessionConfig | None) -> Session | None:
        most = None if config is None else config.num_recent_events
        after = None if config is None else config.after_timestamp
        if most is None or after:
            found, _ = await read_all(moor, ref, self.framework, "", decode=_one)
        else:
            found = await read_last(moor, ref, self.framework, "", most + 1, decode=_one)
        *values, state = found or [None]
        if state is None or state.key != STATE:
            return None
        events = [Event.model_validate_json(record.value) for record in values]
        events = [event for event in events if not after or event.timestamp >= after]
        chosen = events if most is None else events[len(events) - min(most, len(events)) :]
        shared = await self._shared(moor, parts[0], [parts[1]])
        return _session(parts, ref, state, shared[parts[1]], chosen)

    async def _shared(self, moor: Moorage, app: str, users: Sequence[str]) -> dict[str, Values]:
        """Return the state shared by all sessions of a user, for each of these users of an app."""
        users = list(dict.fromkeys(users))
        found: list[Record | None] = []
        for keys in in_batches([_app_key(app), *(_user_key(app, user) for user in users)], MAX_WRITES):
            found += await moor.memory.get_many(self.framework, keys)
        of_app = _prefixed(State.APP_PREFIX, found[0])
        of_users = zip(users, found[1:], strict=True)
        return {user: {**of_app, **_prefixed(State.USER_PREFIX, record)} for user, record in of_users}

    async def _memory(self, moor: Moorage, key: str) -> Values:
        record = await moor.memory.get(self.framework, key)
        return {} if record is None else dict(unpacked(record.value))


def _session(parts: Parts, ref: str, record: Record, shared: Values, events: list[Event]) -> Session:
    app, user, name = parts
    held = unpacked(record.value)
    session = Session(
        id=name, app_name=app, user_id=user, state={**held["state"], **shared}, events=events,
        last_update_time=held["at"],
    )  # fmt: skip
    session._storage_update_marker = _marker(ref, record.version)
    return session


def _check_not_stale(session: Session, ref: str, record: Record) -> None:
    marker = session._storage_update_marker
    if marker is None:
        is_stale = unpacked(record.value)["at"] > session.last_update_time
    else:
        is_stale = marker != _marker(ref, record.version)
    if is_stale:
        raise StaleSessionError(STALE)


def _marker(ref: str, version: int) -> str:
    return f"{ref}@{version}"


def _by_scope(state: Values) -> Scopes:
    """Return state by its scope, as JSON values. Raises InvalidJson."""
    scopes: Scopes = {"app": {}, "user": {}, "session": {}}
    try:
        plain = to_jsonable_python(state or {})
    except PydanticSerializationError as error:
        raise InvalidJson("state", str(error)) from error
    for name, value in plain.items():
        if name.startswith(State.APP_PREFIX):
            scopes["app"][name.removeprefix(State.APP_PREFIX)] = value
        elif name.startswith(State.USER_PREFIX):
            scopes["user"][name.removeprefix(State.USER_PREFIX)] = value
        elif not name.startswith(State.TEMP_PREFIX):
            scopes["session"][name] = value
    return scopes


def _prefixed(prefix: str, record: Record | None) -> Values:
    return {} if record is None else {prefix + name: value for name, value in unpacked(record.value).items()}


def _app_key(app: str) -> str:
    return f"app/{session_id_of(app)}"


def _user_key(app: str, user: str) -> str:
    return f"user/{session_id_of(app, user)}"


def _one(record: Record) -> list[Record]:
    return [record]
