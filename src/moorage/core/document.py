"""Documents: small JSON values that belong to no session, found by kind and key.

A store keeps them and knows nothing of what they mean. The rules of each kind are functions in `service`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class DocumentKind(StrEnum):
    """Every kind of document, and what its key is."""

    KEY = "key"  # key id
    SECRET = "secret"  # what the secret is for
    LAUNCHER = "launcher"  # launcher id
    DRAINED_LAUNCHER = "drained_launcher"  # launcher id; while it is there, that launcher can claim no turn
    REGISTRATION = "registration"  # name, role and endpoint
    SERVER = "server"  # server id
    STORE = "store"  # what the store notes of itself


LOAD_MARK = "taking records in"  # of kind STORE: how far `load` has come, if it has begun and is not done
NOT_COPIED = (DocumentKind.SERVER, DocumentKind.STORE)  # about this one store; `dump` leaves them out


class Document(Struct, frozen=True):
    """One small value."""

    kind: str
    key: str
    body: str  # JSON
    expires_at: datetime | None = None  # from then on `purge` may delete it; until then readers may still find it
