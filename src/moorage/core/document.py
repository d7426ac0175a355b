"""Documents: small JSON values that belong to no session, found by kind and key.

A store keeps them without knowing their meaning. The rules of each kind are functions in `service`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class DocumentKind(StrEnum):
    """The kinds of documents, each with its key."""

    KEY = "key"  # key id
    SECRET = "secret"  # the purpose of the secret
    LAUNCHER = "launcher"  # launcher id
    DRAINED_LAUNCHER = "drained_launcher"  # launcher id; while it exists, that launcher can claim no turn
    REGISTRATION = "registration"  # name, role and endpoint
    SERVER = "server"  # server id
    STORE = "store"  # facts of the store itself


LOAD_MARK = "taking records in"  # of kind STORE: the progress of a `load` that has begun and is not done
NOT_COPIED = (DocumentKind.SERVER, DocumentKind.STORE)  # about this store only; `dump` leaves them out


class Document(Struct, frozen=True):
    """A small JSON value."""

    kind: str
    key: str
    body: str  # JSON
    expires_at: datetime | None = None  # from then on `purge` may delete it; until then readers may still find it
