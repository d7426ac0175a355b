"""The context of sessions in a format that any program can read: one JSON object by session, with a time to live.

    session:ID              the context, as `SETEX session:ID 3600 '{"key": "value"}'` writes it
    session:@OWNER:ID       likewise, of an owner other than `local`; no id begins with `@`
    {session:ID}:versions   version and times of each key, in the same slot of a cluster

Another program may read the first key, and write it whole. Such a write counts as a change of all its keys: they get
versions when Moorage next reads them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from hashlib import sha1
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct, field

from moorage.core.context import ContextItem
from moorage.core.duration import duration
from moorage.core.errors import ContextUnavailable, SessionCorrupt, StoreCorrupt, StoreUnavailable
from moorage.stores.redis.connection import RedisCommand, Servers, read_url

DEFAULTS = {"ttl": "1h", "patience": "2"}
NEVER = "never"
VERSIONS_OUTLIVE = timedelta(days=1)  # so that no version is reused when a context expires and is created again
SAME = "="  # instead of the context: leave it unchanged
PLAIN_OWNER = "local"

# Write both keys if they are unchanged since they were read. Lifetimes are in seconds; empty: none.
_SAVE = """
for place = 1, 2 do
  local found = redis.call('GET', KEYS[place])
  if (found and redis.sha1hex(found) or '') ~= ARGV[place] then return 0 end
end
local function set(key, text, lifetime)
  if lifetime == '' then redis.call('SET', key, text) else redis.call('SET', key, text, 'EX', lifetime) end
end
if ARGV[3] == '' then redis.call('DEL', KEYS[1]) elseif ARGV[3] ~= '=' then set(KEYS[1], ARGV[3], ARGV[4]) end
set(KEYS[2], ARGV[5], ARGV[6])
return 1
"""


StoredContext: TypeAlias = list[tuple[bytes | None, int]]  # both keys, each with its lifetime in milliseconds


class _About(Struct, frozen=True, omit_defaults=True):
    """Version and times of one key."""

    version: int
    updated_at: datetime
    expires_at: datetime | None = None  # if it has its own time to live


class _Versions(Struct, frozen=True):
    """Versions and times of a context."""

    version: int = 0
    digest: str = ""  # of the context that the versions belong to
    ends_at: datetime | None = None  # for keys without their own time to live
    keys: dict[str, _About] = field(default_factory=dict)


class LoadedContext(Struct, frozen=True):
    """A context as it was read."""

    values: dict[str, Any]
    versions: _Versions
    digests: tuple[str, str]  # of the stored values; empty if there are none

    @property
    def version(self) -> int:
        """Return the version of the whole context."""
        return self.versions.version

    def items(self, at: datetime) -> dict[str, ContextItem]:
        """Return the items that live at that time."""
        found = {key: self._item(key, value) for key, value in self.values.items()}
        return {key: item for key, item in found.items() if item.lives(at)}

    def _item(self, key: str, value: Any) -> ContextItem:
        about = self.versions.keys[key]
        return ContextItem(
            value=value,
            version=about.version,
            updated_at=about.updated_at,
            expires_at=about.expires_at or self.versions.ends_at,
        )


class SessionContext:
    """Reads and writes contexts on a Redis or Valkey server. All methods raise ContextUnavailable while it is away."""

    def __init__(self, url: str) -> None:
        """Read the URL. Its `ttl` is the lifetime of a context after each write: `1h`, or `never` for no limit."""
        parts = urlsplit(url)
        options = DEFAULTS | dict(parse_qsl(parts.query, keep_blank_values=True))
        ttl = options.pop("ttl")
        self._ttl = None if ttl == NEVER else duration("context_url", ttl)
        self._servers = Servers(read_url(urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))))

    async def load(self, owner: str, session_id: str, at: datetime) -> LoadedContext:
        """Return a context. Raises SessionCorrupt if it is no JSON object."""
        keys = _keys(owner, session_id)
        while True:
            reads = [("GET", keys[0]), ("GET", keys[1]), ("PTTL", keys[0])]
            text, about, lifetime = await self._ask(session_id, keys, *reads)
            kept = _kept(session_id, text, about)
            if text is None or kept.versions.digest == kept.digests[0]:
                return kept
            ends_at = None if lifetime < 0 else at + timedelta(milliseconds=lifetime)
            given = _given_versions(kept, at, ends_at)
            if await self._write(session_id, keys, kept.digests, SAME, given, at):
                return msgspec.structs.replace(kept, versions=given)

    async def save(
        self,
        owner: str,
        session_id: str,
        kept: LoadedContext | None,
        version: int,
        items: dict[str, ContextItem],
        at: datetime,
    ) -> bool:
        """Store these items as the context, at this version; return False if it changed since it was read (None: new).

        An unchanged item keeps its own time to live; the lifetime of items without one is extended.
        """
        text = msgspec.json.encode({key: item.value for key, item in items.items()}).decode() if items else ""
        ends_at = None if self._ttl is None else at + self._ttl
        known = {} if kept is None else kept.versions.keys
        keys = {key: _about(known.get(key), item) for key, item in items.items()}
        new = _Versions(version, _digest(text.encode()) if text else "", ends_at, keys)
        was = ("", "") if kept is None else kept.digests
        return await self._write(session_id, _keys(owner, session_id), was, text, new, at)

    async def stored(self, owner: str, session_id: str) -> StoredContext:
        """Return a context as it is stored, for `put_stored`."""
        keys = _keys(owner, session_id)
        commands = [(name, key) for key in keys for name in ("GET", "PTTL")]
        text, ends, about, about_ends = await self._ask(session_id, keys, *commands)
        return [(text, ends), (about, about_ends)]

    async def put_stored(self, owner: str, session_id: str, stored: StoredContext) -> None:
        """Store a context as it was stored for another session."""
        keys = _keys(owner, session_id)
        for key, (text, lifetime) in zip(keys, stored, strict=True):
            if text is not None:
                ends = () if lifetime < 0 else ("PX", max(1, lifetime))
                await self._ask(session_id, keys, ("SET", key, text, *ends), writes=True)

    async def delete(self, owner: str, session_ids: Iterable[str]) -> None:
        """Delete contexts."""
        for session_id in session_ids:
            keys = _keys(owner, session_id)
            await self._ask(session_id, keys, ("DEL", *keys), writes=True)

    async def check(self) -> list[str]:
        """Return the server's problems, as text."""
        try:
            await self._ask("-", _keys(PLAIN_OWNER, "-"), ("GET", _keys(PLAIN_OWNER, "-")[0]))
        except ContextUnavailable as error:
            return [error.message]
        return []

    def hurry(self) -> None:
        """Wait only briefly from now on: this process is about to end."""
        self._servers.hurry()

    async def close(self) -> None:
        """Close every connection."""
        await self._servers.close()

    async def _write(
        self, session_id: str, keys: list[str], was: tuple[str, str], text: str, new: _Versions, at: datetime
    ) -> bool:
        ends = [about.expires_at or new.ends_at for about in new.keys.values()] or [new.ends_at]
        lives = None if None in ends else max(end for end in ends if end is not None) - at
        lifetimes = ("", "") if lives is None else (_seconds(lives), _seconds(lives + VERSIONS_OUTLIVE))
        about = msgspec.json.encode(new).decode()
        call = ("EVAL", _SAVE, 2, *keys, *was, text, lifetimes[0], about, lifetimes[1])
        [done] = await self._ask(session_id, keys, call, writes=True)
        return bool(done)

    async def _ask(self, session_id: str, keys: list[str], *commands: RedisCommand, writes: bool = False) -> list[Any]:
        async with _translated(session_id):
            return self._servers.checked(await self._servers.ask(keys[0], *commands, writes=writes))


@asynccontextmanager
async def _translated(session_id: str) -> AsyncIterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise ContextUnavailable(error.message) from error
    except StoreCorrupt as error:
        raise SessionCorrupt(session_id, f"context: {error.message}") from error


def _keys(owner: str, session_id: str) -> list[str]:
    key = f"session:{session_id}" if owner == PLAIN_OWNER else f"session:@{quote(owner, safe='')}:{session_id}"
    return [key, f"{{{key}}}:versions"]


def _kept(session_id: str, text: bytes | None, about: bytes | None) -> LoadedContext:
    try:
        values = {} if text is None else msgspec.json.decode(text, type=dict[str, Any])
        versions = _Versions() if about is None else msgspec.json.decode(about, type=_Versions)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise SessionCorrupt(session_id, f"context: {error}") from error
    return LoadedContext(values, versions, (_digest(text), _digest(about)))


def _given_versions(kept: LoadedContext, at: datetime, ends_at: datetime | None) -> _Versions:
    """Return versions for a context that another program wrote."""
    version = kept.version + 1
    return _Versions(version, kept.digests[0], ends_at, {key: _About(version, at) for key in kept.values})


def _about(known: _About | None, item: ContextItem) -> _About:
    """Return the metadata of a key if the item is unchanged: its end may be that of the whole context."""
    if known is not None and (known.version, known.updated_at) == (item.version, item.updated_at):
        return known
    return _About(item.version, item.updated_at, item.expires_at)


def _digest(text: bytes | None) -> str:
    return "" if text is None else sha1(text, usedforsecurity=False).hexdigest()


def _seconds(lifetime: timedelta) -> str:
    """Return whole seconds, as SETEX takes them; items that end earlier are hidden anyway."""
    return str(max(1, -(-lifetime // timedelta(seconds=1))))
