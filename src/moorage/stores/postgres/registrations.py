"""Registrations."""

from __future__ import annotations

import msgspec

from moorage.core.errors import StoreCorrupt
from moorage.core.registration import Registration
from moorage.stores.postgres.connection import Connection
from moorage.stores.rows import json_text, micros

_decode = msgspec.json.Decoder(Registration).decode

# What somebody else is renewing or clearing away at this moment is left to them: two who do both would wait for each
# other. The one that is renewed here is not cleared away by the same statement.
_SAVE = """
WITH ended AS (
    SELECT role, name, endpoint FROM moor.registrations
    WHERE until <= ?6 AND (role, name, endpoint) <> (?1, ?2, ?3) FOR UPDATE SKIP LOCKED
), cleared AS (
    DELETE FROM moor.registrations r USING ended e
    WHERE r.role = e.role AND r.name = e.name AND r.endpoint = e.endpoint
)
INSERT INTO moor.registrations (role, name, endpoint, until, body) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (role, name, endpoint) DO UPDATE SET until = excluded.until, body = excluded.body
"""


async def save(db: Connection, registration: Registration, at: int) -> None:
    """Begin or renew one; those that have ended go."""
    await db.run(_SAVE, (*registration.place, micros(registration.until), json_text(registration), at))


async def live(db: Connection, at: int) -> list[Registration]:
    """Those that have not ended, by name and endpoint."""
    rows = await db.all("SELECT body FROM moor.registrations WHERE until > ? ORDER BY name, role, endpoint", (at,))
    try:
        return [_decode(row[0]) for row in rows]
    except msgspec.DecodeError as error:
        raise StoreCorrupt(db.path, f"a registration: {error}") from error
