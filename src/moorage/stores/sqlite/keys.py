"""Keys, and the secret that servers sign with. Each function runs inside a transaction."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec.structs import replace

from moorage.core.errors import KeyNotFound, StoreCorrupt
from moorage.core.key import Key
from moorage.core.token import SigningSecret
from moorage.stores.rows import json_text
from moorage.stores.sqlite import heads
from moorage.stores.sqlite.connection import Connection

SIGNING = "session tokens"

_decode_key = msgspec.json.Decoder(Key).decode
_decode_secret = msgspec.json.Decoder(SigningSecret).decode


def save(db: Connection, key: Key, digest: str) -> None:
    """A new key."""
    sql = "INSERT INTO keys (id, owner, digest, body) VALUES (?, ?, ?, ?)"
    db.execute(sql, (key.key_id, key.owner, digest, json_text(key)))


def find(db: Connection, key_id: str) -> tuple[Key, str] | None:
    """A key by its id, and the digest of its secret."""
    row = db.one("SELECT body, digest FROM keys WHERE id = ?", (key_id,)) if heads.may_be_ref(key_id) else None
    return None if row is None else (key_of(db, row[0]), row[1])


def keys(db: Connection, owner: str | None) -> list[Key]:
    """Keys, oldest first."""
    if owner is None:
        rows = db.all("SELECT body FROM keys ORDER BY n")
    else:
        rows = db.all("SELECT body FROM keys WHERE owner = ? ORDER BY n", (owner,))
    return [key_of(db, row[0]) for row in rows]


def exist(db: Connection) -> bool:
    """Whether there is any, revoked ones too."""
    return db.one("SELECT 1 FROM keys LIMIT 1") is not None


def revoke(db: Connection, key_id: str, at: datetime, owner: str | None) -> Key:
    """Let a key count no more; one that was revoked before stays as it is."""
    found = find(db, key_id)
    if found is None or owner not in (None, found[0].owner):
        raise KeyNotFound(key_id)
    return found[0] if found[0].revoked_at is not None else _write(db, replace(found[0], revoked_at=at))


def note_use(db: Connection, key_id: str, at: datetime) -> None:
    """Remember that a key was used."""
    if (found := find(db, key_id)) is not None:
        _write(db, replace(found[0], last_used_at=at))


def _write(db: Connection, key: Key) -> Key:
    db.execute("UPDATE keys SET body = ? WHERE id = ?", (json_text(key), key.key_id))
    return key


def key_of(db: Connection, body: str) -> Key:
    """A key from its body; StoreCorrupt if it makes none."""
    try:
        return _decode_key(body)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"a key: {error}") from error


# What servers sign with -------------------------------------------------------------------------


def signing_secret(db: Connection) -> SigningSecret | None:
    """The secret of this store; None if nobody needed one yet."""
    row = db.one("SELECT body FROM secrets WHERE purpose = ?", (SIGNING,))
    try:
        return None if row is None else _decode_secret(row[0])
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"the signing secret: {error}") from error


def keep_signing_secret(db: Connection, proposed: SigningSecret) -> SigningSecret:
    """The secret of this store, which is this one if nobody was faster."""
    sql = "INSERT INTO secrets (purpose, body) VALUES (?, ?) ON CONFLICT (purpose) DO NOTHING"
    db.execute(sql, (SIGNING, json_text(proposed)))
    return signing_secret(db) or proposed
