"""Keys: what callers may do on a server, and for which owners.

A key is shown once, when it is created, as `moor_<key_id>_<secret>`. The store keeps the SHA-256 of its secret. The
secret is 32 random bytes, too many to guess. A salt or a slow hash is for passwords that people choose; here it would
only slow down every request.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from moorage.core.brief import brief
from moorage.core.errors import Forbidden, InvalidField

PREFIX = "moor"
ID_BYTES = 6
SECRET_BYTES = 32
MAX_TEXT = 200  # none of our keys is longer


class Scope(StrEnum):
    """A permission of a key."""

    READ = "read"
    WRITE = "write"  # includes read
    LAUNCH = "launch"  # take turns of the key's owners
    APPROVE = "approve"  # see and decide approvals
    ADMIN = "admin"  # everything, including the keys of every owner


_COVERS = {Scope.ADMIN: frozenset(Scope), Scope.WRITE: frozenset({Scope.WRITE, Scope.READ})}


@brief("name", "owner", "scopes", "expires_at", "revoked_at", "key_id")
class Key(Struct, frozen=True, kw_only=True):
    """A permission to use a server. It never contains its secret."""

    key_id: str
    owner: str
    scopes: tuple[Scope, ...]
    name: str | None = None
    owners: tuple[str, ...] = ()  # for a launcher: the owners whose turns it takes
    created_at: datetime
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None  # rounded to the hour

    def counts(self, at: datetime) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)

    def allows(self, scope: Scope) -> bool:
        """Return whether it has the permission."""
        return any(scope in _COVERS.get(held, (held,)) for held in self.scopes)


def check_held(held: frozenset[Scope], wanted: Scope, instead: Scope | None = None) -> None:
    """Raise Forbidden unless the wanted scope or, if given, its substitute is held."""
    if wanted not in held and instead not in held:
        raise Forbidden(wanted.value)


def scope_text(wanted: Scope, instead: Scope | None = None) -> str:
    """Return the scope that an operation needs, in words."""
    return wanted.value if instead is None else f"{wanted.value} or {instead.value}"


def check_scopes(scopes: object) -> tuple[Scope, ...]:
    """Return at least one scope, each once, in the order of `Scope`."""
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise InvalidField("scopes", f"must be a list, with some of {', '.join(Scope)}")
    given = list(scopes)
    unknown = [repr(scope) for scope in given if not isinstance(scope, str) or scope not in tuple(Scope)]
    if unknown or not given:
        raise InvalidField("scopes", f"has {', '.join(unknown) or 'nothing'}; use some of {', '.join(Scope)}")
    return tuple(scope for scope in Scope if scope in given)


def key_text(key_id: str, secret: bytes) -> str:
    """Return the text of a key, as its bearer keeps it."""
    return f"{PREFIX}_{key_id}_{secret.hex()}"


def read_key(text: object) -> tuple[str, str] | None:
    """Return the id and the secret of a key; None if the text is no key."""
    if not isinstance(text, str) or len(text) > MAX_TEXT or not text.isascii():
        return None
    prefix, _, rest = text.strip().partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if prefix == PREFIX and key_id.isalnum() and secret.isalnum() else None


def secret_digest(secret: str) -> str:
    """Return the digest under which a secret is stored."""
    from hashlib import sha256

    return sha256(secret.encode()).hexdigest()


def is_secret_of(digest: str, secret: str) -> bool:
    """Return whether this is the secret, in constant time."""
    from hmac import compare_digest

    return compare_digest(digest, secret_digest(secret))
