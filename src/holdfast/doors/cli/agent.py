"""`holdfast agent …`: the same commands under the names that agent frameworks use."""

from __future__ import annotations

from holdfast.doors.cli.app import group


@group(
    "agent",
    places={
        "list-sessions": "sessions:list_",
        "show-session": "sessions:get",
        "resume": "holds:resume",
        "suspend": "holds:suspend",
        "cleanup": "care:cleanup",
    },
    examples=("holdfast agent list-sessions --active-only", "holdfast agent resume plan-prod"),
)
def agent() -> None:
    """Other names for list, show, resume, suspend and cleanup."""
