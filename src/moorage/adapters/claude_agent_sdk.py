"""Claude Agent SDK: `MoorageSessionStore`, to which the SDK mirrors its transcripts and from which it resumes.

::

    options = ClaudeAgentOptions(session_store=MoorageSessionStore("sqlite:///moorage.db"))

A session of a project is a session here. Lines of its transcript are records, in batches; their messages are also
in the log. Transcripts of subagents are records of the same session. A repeated line (the SDK repeats a failed batch)
is read once: its `uuid` identifies it.
"""

from __future__ import annotations

from moorage.adapters.adapter import require
from moorage.core.entry import Message

require("claude-agent-sdk", "claude-agent-sdk", "0.2.183")

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any

from claude_agent_sdk import fold_session_summary

from moorage.adapters.adapter import Adapter
from moorage.adapters.batches import appended, read_all
from moorage.adapters.foreign_ids import as_text, required_id
from moorage.adapters.formats import claude
from moorage.adapters.payload import form_of, packed, unpacked
from moorage.adapters.projection import with_distinct_keys
from moorage.api import Moorage
from moorage.core.errors import InvalidField, SessionNotFound, VersionConflict
from moorage.core.query import each_item
from moorage.core.record import RecordRequest
from moorage.records import Drop, Put, Record

__all__ = ["MoorageSessionStore"]

MAIN, SUBPATHS, SUMMARY = "main/", "sub/", "summary"
NAMES = "subkeys/"  # a record for each subpath
PAGE = 1000

TranscriptEntry = dict[str, Any]
SdkKey = Any  # of the SDK: project_key, session_id and, of a subagent, subpath


class MoorageSessionStore(Adapter):
    """Transcripts of sessions in the interface of `claude_agent_sdk.SessionStore`."""

    framework = claude.FRAMEWORK

    async def append(self, key: SdkKey, entries: list[TranscriptEntry]) -> None:
        """Add lines to a transcript, all of them or none."""
        self._check_open()
        _parts(key)  # refuses a key without an id
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise InvalidField(f"entries[{number}]", f"is {entry!r}; a line of a transcript is a mapping")
        if entries:
            await self._write(lambda moor: self._append(moor, key, entries))

    async def load(self, key: SdkKey) -> list[TranscriptEntry] | None:
        """Return the lines of a transcript; None if there are none."""
        read = self._if_known(_parts(key), lambda moor, ref: read_all(moor, ref, self.framework, _prefix(key)))
        found = await self._read(read)
        return None if found is None else list(_once(found[0])) or None

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """Return the sessions of a project with the times of their latest lines, in milliseconds."""
        return [{"session_id": name, "mtime": _mtime(record)} for name, record in await self._summaries(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """Return the SDK's own summaries of the sessions of a project."""
        return [
            {"session_id": name, "mtime": _mtime(record), "data": unpacked(record.value)}
            for name, record in await self._summaries(project_key)
        ]

    async def delete(self, key: SdkKey) -> None:
        """Delete a session with all its transcripts, or the transcript of one subagent."""
        await self._write(self._if_known(_parts(key), lambda moor, ref: self._delete(moor, ref, key)))

    async def list_subkeys(self, key: SdkKey) -> list[str]:
        """Return the subpaths of a session."""
        return await self._read(self._if_known(_parts(key), self._subkeys)) or []

    # Writing ----------------------------------------------------------------------------------------

    async def _append(self, moor: Moorage, key: SdkKey, entries: list[TranscriptEntry]) -> None:
        writes: list[RecordRequest] = [*appended(self.framework, _prefix(key), entries, "entries")]
        if _subpath(key):
            data = packed(_subpath(key), "subpath")
            name = NAMES + as_text(_subpath(key))
            writes.append(Put(namespace=self.framework, key=name, value=data, form=form_of(data), keep=True))
            await self._commit(moor, _parts(key), writes, labels=[self._label(key["project_key"])])
            return
        messages = with_distinct_keys(chain.from_iterable(map(claude.said, entries))) if self._projection else []
        await self._append_with_summary(moor, key, entries, writes, messages)

    async def _append_with_summary(
        self,
        moor: Moorage,
        key: SdkKey,
        entries: list[TranscriptEntry],
        writes: list[RecordRequest],
        messages: list[Message],
    ) -> None:
        while True:
            summary = self._folded(key, await self._summary(moor, key), entries)
            try:
                await self._commit(
                    moor, _parts(key), [*writes, summary], messages, labels=[self._label(key["project_key"])]
                )
            except VersionConflict:
                continue
            return

    async def _summary(self, moor: Moorage, key: SdkKey) -> Record | None:
        try:
            return await self._in_session(_parts(key), lambda ref: moor.records.get(ref, self.framework, SUMMARY))
        except SessionNotFound:
            return None

    def _folded(self, key: SdkKey, old: Record | None, entries: list[TranscriptEntry]) -> Put:
        before = None
        if old is not None:
            before = {"session_id": key["session_id"], "mtime": _mtime(old), "data": unpacked(old.value)}
        data = packed(fold_session_summary(before, key, entries)["data"], "summary")
        version = 0 if old is None else old.version
        return Put(namespace=self.framework, key=SUMMARY, value=data, form=form_of(data), version=version)

    async def _delete(self, moor: Moorage, ref: str, key: SdkKey) -> None:
        if not _subpath(key):
            await moor.delete(ref)
            return
        name = NAMES + as_text(_subpath(key))
        drops = [
            Drop(namespace=self.framework, key=_prefix(key), prefix=True),
            Drop(namespace=self.framework, key=name),
        ]
        await moor.records.write(ref, drops)

    # Reading ----------------------------------------------------------------------------------------

    async def _subkeys(self, moor: Moorage, ref: str) -> list[str]:
        ask = partial(moor.records.list, ref, self.framework, prefix=NAMES, limit=PAGE)
        return [unpacked(record.value) async for record in each_item(ask, by="after")]

    async def _summaries(self, project_key: str) -> list[tuple[str, Record]]:
        """Return the names of a project's sessions, and the records of their summaries."""

        async def read(moor: Moorage) -> list[tuple[str, Record]]:
            found = await self._with_record(moor, (project_key,), 2, SUMMARY)
            return [(name, record) for (_, name), _, record in found]

        return await self._read(read)


def _parts(key: SdkKey) -> tuple[str, str]:
    return required_id(key, "project_key"), required_id(key, "session_id")


def _subpath(key: SdkKey) -> str:
    return key.get("subpath") or ""


def _prefix(key: SdkKey) -> str:
    return f"{SUBPATHS}{as_text(_subpath(key))}/" if _subpath(key) else MAIN


def _mtime(record: Record) -> int:
    return int(record.updated_at.timestamp() * 1000)


def _once(entries: Iterable[TranscriptEntry]) -> Iterable[TranscriptEntry]:
    """Yield lines, each `uuid` once."""
    seen: set[str] = set()
    for entry in entries:
        uuid = entry.get("uuid")
        if not isinstance(uuid, str):
            yield entry
        elif uuid not in seen:
            seen.add(uuid)
            yield entry
