"""Values as every door shows them: the same JSON for equal values."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import UNSET, Struct, to_builtins
from msgspec.structs import asdict

from moorage.core.session import PUBLIC_FIELDS, Session

T = TypeVar("T", bound=Struct)


def session_json(session: Session) -> dict[str, Any]:
    """Return a session as plain JSON values."""
    plain: dict[str, Any] = to_builtins(public_fields(session))
    return plain


def public_fields(session: Session) -> dict[str, Any]:
    """Return the public fields of a session; `redacted` and `messages` only if there are any."""
    shown = {name: getattr(session, name) for name in PUBLIC_FIELDS}
    if session.redacted:
        shown["redacted"] = session.redacted
    if session.messages is not None:
        shown["messages"] = session.messages
    return shown


def to_json(value: Any) -> Any:
    """Return any answer as plain JSON values."""
    if isinstance(value, Session):
        return session_json(value)
    if isinstance(value, Struct):
        return {name: to_json(field) for name, field in asdict(value).items() if field is not UNSET}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return to_builtins(value)


def like(kind: type[T], value: object, /, **others: Any) -> T:
    """Return a struct from the attributes of a value that are its fields, and from the given ones."""
    known = {name: getattr(value, name) for name in kind.__struct_fields__ if hasattr(value, name)}
    return kind(**{**known, **others})
