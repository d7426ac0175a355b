"""Registrations. Each function runs inside a transaction."""

from __future__ import annotations

import msgspec

from moorage.core.errors import StoreCorrupt
from moorage.core.registration import Registration
from moorage.stores.rows import json_text, micros
from moorage.stores.sqlite.connection import Connection

_decode = msgspec.json.Decoder(Registration).decode
_SAVE = """
INSERT INTO registrations (role, name, endpoint, until, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (role, name, endpoint) DO UPDATE SET until = excluded.until, body = excluded.body
"""


def save(db: Connection, registration: Registration, at: int) -> None:
    """Begin or renew one; those that have ended go."""
    db.execute("DELETE FROM registrations WHERE until <= ?", (at,))
    db.execute(_SAVE, (*registration.place, micros(registration.until), json_text(registration)))


def live(db: Connection, at: int) -> list[Registration]:
    """Those that have not ended, by name and endpoint."""
    rows = db.all("SELECT body FROM registrations WHERE until > ? ORDER BY name, role, endpoint", (at,))
    try:
        return [_decode(row[0]) for row in rows]
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"a registration: {error}") from error
