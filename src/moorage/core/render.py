"""Values as every door shows them: the same JSON for the same thing, everywhere."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from moorage.core.session import PUBLIC_FIELDS, Session


def session_json(session: Session) -> dict[str, Any]:
    """A session as plain JSON values."""
    plain: dict[str, Any] = to_builtins(public_fields(session))
    return plain


def public_fields(session: Session) -> dict[str, Any]:
    """What is shown of a session; `redacted` only where something was, `messages` only where they were asked for."""
    shown = {name: getattr(session, name) for name in PUBLIC_FIELDS}
    if session.redacted:
        shown["redacted"] = session.redacted
    if session.messages is not None:
        shown["messages"] = session.messages
    return shown


def to_json(value: Any) -> Any:
    """Any answer as plain JSON values."""
    if isinstance(value, Session):
        return session_json(value)
    if isinstance(value, Struct):
        return {name: to_json(getattr(value, name)) for name in value.__struct_fields__ if not _is_unset(value, name)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return to_builtins(value)


def _is_unset(value: Struct, name: str) -> bool:
    from msgspec import UNSET

    return getattr(value, name) is UNSET
