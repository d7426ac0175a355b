"""The children of a session, of the store that MOORAGE_URL names or of the file in the data folder."""

from __future__ import annotations

from functools import partial

from moorage.compat.agent_session import Json, connection
from moorage.core.errors import NotFound
from moorage.core.query import every
from moorage.core.render import session_json


def get_child_sessions(parent_session_id: str) -> list[Json]:
    """Return the direct children of a session, oldest first; an empty list if the session does not exist."""
    try:
        return [session_json(child) for child in every(partial(connection().children, parent_session_id))]
    except NotFound:
        return []


def count_child_sessions(parent_session_id: str) -> int:
    """Return the number of a session's direct children; 0 if the session does not exist."""
    try:
        return connection().count_children(parent_session_id)
    except NotFound:
        return 0
