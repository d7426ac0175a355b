"""Keys, and the secret that servers sign with."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from moorage.core.errors import KeyNotFound, StoreCorrupt
from moorage.core.key import Key
from moorage.core.token import SigningSecret
from moorage.stores.postgres import heads
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import json_text

SIGNING = "session tokens"

_decode_key = msgspec.json.Decoder(Key).decode
_decode_secret = msgspec.json.Decoder(SigningSecret).decode


async def save(db: Connection, key: Key, digest: str) -> None:
    """A new key."""
    sql = "INSERT INTO moor.keys (id, owner, digest, body) VALUES (?, ?, ?, ?)"
    await db.run(sql, (key.key_id, key.owner, digest, json_text(key)))


async def find(db: Connection, key_id: str) -> tuple[Key, str] | None:
    """A key by its id, and the digest of its secret."""
    if not heads.may_be_ref(key_id):
        return None
    lock = " FOR UPDATE" if db.is_locking else ""
    row = await db.one(f"SELECT body, digest FROM moor.keys WHERE id = ?{lock}", (key_id,))
    return None if row is None else (key_of(db, row[0]), row[1])


async def keys(db: Connection, owner: str | None) -> list[Key]:
    """Keys, oldest first."""
    if owner is None:
        rows = await db.all("SELECT body FROM moor.keys ORDER BY n")
    else:
        rows = await db.all("SELECT body FROM moor.keys WHERE owner = ? ORDER BY n", (owner,))
    return [key_of(db, row[0]) for row in rows]


async def exist(db: Connection) -> bool:
    """Whether there is any, revoked ones too."""
    return await db.one("SELECT 1 FROM moor.keys LIMIT 1") is not None


async def revoke(db: Connection, key_id: str, at: datetime, owner: str | None) -> Key:
    """Let a key count no more; one that was revoked before stays as it is. Within a transaction."""
    found = await find(db, key_id)
    if found is None or owner not in (None, found[0].owner):
        raise KeyNotFound(key_id)
    return found[0] if found[0].revoked_at is not None else await _write(db, replace(found[0], revoked_at=at))


async def note_use(db: Connection, key_id: str, at: datetime) -> None:
    """Remember that a key was used. Within a transaction."""
    found = await find(db, key_id)
    if found is not None and (found[0].last_used_at is None or found[0].last_used_at < at):
        await _write(db, replace(found[0], last_used_at=at))


async def _write(db: Connection, key: Key) -> Key:
    await db.run("UPDATE moor.keys SET body = ? WHERE id = ?", (json_text(key), key.key_id))
    return key


def key_of(db: Connection, body: str) -> Key:
    """A key from its body; StoreCorrupt if it makes none."""
    try:
        return _decode_key(body)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"a key: {error}") from error


# What servers sign with -------------------------------------------------------------------------


async def signing_secret(db: Connection) -> SigningSecret | None:
    """The secret of this store; None if nobody needed one yet."""
    row = await db.one("SELECT body FROM moor.secrets WHERE purpose = ?", (SIGNING,))
    try:
        return None if row is None else _decode_secret(row[0])
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"the signing secret: {error}") from error


async def keep_signing_secret(db: Connection, proposed: SigningSecret) -> SigningSecret:
    """The secret of this store, which is this one if nobody was faster."""
    sql = "INSERT INTO moor.secrets (purpose, body) VALUES (?, ?) ON CONFLICT (purpose) DO NOTHING"
    await db.run(sql, (SIGNING, json_text(proposed)))
    return await signing_secret(db) or proposed
