"""Session tokens: signed texts that give an agent access to its session and its descendants, for a limited time.

A token is `moors_` and two parts with a dot between: its content, and an HMAC-SHA256 of that. A server with the
signing secret verifies a token without a query. The token names its secret by an id, so that the secret can be
replaced. Its content is signed, not encrypted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder

from moorage.core.errors import Unauthorized

PREFIX = "moors_"
SECRET_BYTES = 32
SECRET_ID_BYTES = 4
MAX_TEXT = 2000  # none of our tokens is longer


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
    return isinstance(text, str) and text.lstrip().startswith(PREFIX)


def new_token(
    owner: str, session_id: str, expires_at: datetime, secret: SigningSecret, run_id: str | None = None
) -> SessionToken:
    """Return a token to be signed with this secret. It expires at a whole second."""
    ends = expires_at.astimezone(UTC).replace(microsecond=0)
    return SessionToken(secret.secret_id, owner, session_id, ends, run_id)


def sign(token: SessionToken, secret: SigningSecret) -> str:
    """Return the signed text of a token, as its bearer keeps it."""
    said = _as_text(_encode(token))
    return f"{PREFIX}{said}.{_as_text(_signature(said, secret))}"


def verify(text: object, secret_of: Callable[[str], SigningSecret | None], at: datetime) -> SessionToken:
    """Return the content of a token if one of our secrets signed it and it has not expired.

    Raises Unauthorized, with the same message whatever is wrong with it.
    """
    from hmac import compare_digest

    if not isinstance(text, str) or not is_session_token(text) or len(text) > MAX_TEXT or not text.isascii():
        raise Unauthorized
    said, _, signed = text.strip().removeprefix(PREFIX).partition(".")
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
