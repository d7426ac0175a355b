"""A sealed database: what says that it is one."""

from __future__ import annotations

from holdfast.stores.postgres.connection import Connection


async def unreadable(db: Connection) -> list[str]:
    """Which sealed bodies do not open, in words."""
    return []


async def check_searchable(db: Connection) -> None:
    """Raise Unsupported if new bodies are sealed."""


async def prepare(db: Connection) -> None:
    """Let a database that is opened with keys say so."""
