"""Status as callers see it: the hold without its token, and why what was asked has not started.

`core.status` decides. The launchers are read once for an answer, however many sessions it has, and only if
one of them depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from moorage.core.session import Session
from moorage.core.status import Because, why_not_started
from moorage.service.deps import Deps, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.core.turn import Launcher


async def told(deps: Deps, sessions: Iterable[Session]) -> list[Session]:
    """Return the sessions as anybody may see them, with `because`."""
    heads = list(sessions)
    found = await reasons(deps, heads)
    return [
        shown(head if because is None else replace(head, because=because))
        for head, because in zip(heads, found, strict=True)
    ]


async def told_one(deps: Deps, session: Session) -> Session:
    """Return one session, the same way."""
    return (await told(deps, [session]))[0]


async def reasons(deps: Deps, heads: list[Session]) -> list[Because | None]:
    """Return why what was asked of each session has not started."""
    launchers: list[Launcher] = []
    if any(head.waits and head.live_turn is None for head in heads):
        from moorage.service.launchers import all_launchers  # hooks do without

        launchers = await all_launchers(deps.store)
    now = deps.clock.now()
    return [why_not_started(head, launchers, now) for head in heads]
