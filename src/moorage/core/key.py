"""Keys and session tokens: what callers may do on a server, and for which owners.

A key is shown once, when it is created, as `moor_<key_id>_<secret>`. The store keeps the SHA-256 of its secret. The
secret is 32 random bytes, too many to guess. A salt or a slow hash is for passwords that people choose; here it would
only slow down every request.

A session token is a signed text that gives an agent access to its session and its descendants, for a limited time. It
is `moors_` and two parts with a dot between: its content, and an HMAC-SHA256 of that. A server with the signing secret
verifies a token without a query. The token names its secret by an id, so that the secret can be replaced. Its content
is signed, not encrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder

from moorage.core.brief import brief
from moorage.core.errors import Forbidden, InvalidField, Unauthorized

PREFIX = "moor"
ID_BYTES = 6
SECRET_BYTES = 32  # of a key, and of a signing secret
MAX_TEXT = 200  # none of our keys is longer
TOKEN_PREFIX = "moors_"
SECRET_ID_BYTES = 4
MAX_TOKEN = 2000  # none of our tokens is longer


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


# Session tokens ---------------------------------------------------------------------------------


class SigningSecret(Struct, frozen=True, kw_only=True):
    """The signing secret of a store's servers. It allows making any token."""

    secret_id: str
    value: str  # in hex
    created_at: datetime


class SessionToken(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The permission to read and write one session and its descendants, until it expires."""

    secret_id: str
    owner: str
    session_id: str
    expires_at: datetime
    run_id: str | None = None  # the run of its agent

    def lives(self, at: datetime) -> bool:
        """Return whether it has not expired."""
        return at < self.expires_at


_encode = Encoder().encode
_decode = Decoder(SessionToken).decode


def is_session_token(text: object) -> bool:
    """Return whether a text has the prefix of a token; keys have another."""
    return isinstance(text, str) and text.lstrip().startswith(TOKEN_PREFIX)


def new_token(
    owner: str, session_id: str, expires_at: datetime, secret: SigningSecret, run_id: str | None = None
) -> SessionToken:
    """Return a token to be signed with this secret. It expires at a whole second."""
    ends = expires_at.astimezone(UTC).replace(microsecond=0)
    return SessionToken(secret.secret_id, owner, session_id, ends, run_id)


def sign(token: SessionToken, secret: SigningSecret) -> str:
    """Return the signed text of a token, as its bearer keeps it."""
    said = _as_text(_encode(token))
    return f"{TOKEN_PREFIX}{said}.{_as_text(_signature(said, secret))}"


def verify(text: object, secret_of: Callable[[str], SigningSecret | None], at: datetime) -> SessionToken:
    """Return the content of a token if one of our secrets signed it and it has not expired.

    Raises Unauthorized, with the same message whatever is wrong with it.
    """
    from hmac import compare_digest

    if not isinstance(text, str) or not is_session_token(text) or len(text) > MAX_TOKEN or not text.isascii():
        raise Unauthorized
    said, _, signed = text.strip().removeprefix(TOKEN_PREFIX).partition(".")
    try:
        token = _decode(_from_text(said))
    except (DecodeError, ValueError):
        raise Unauthorized from None
    secret = secret_of(token.secret_id)
    # Compare texts, not decoded bytes: several texts decode to the same bytes, but only one was signed.
    if secret is None or not compare_digest(_as_text(_signature(said, secret)), signed) or not token.lives(at):
        raise Unauthorized
    return token


def _signature(said: str, secret: SigningSecret) -> bytes:
    from hmac import digest

    return digest(bytes.fromhex(secret.value), said.encode(), "sha256")


def _as_text(data: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    from base64 import urlsafe_b64decode

    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
