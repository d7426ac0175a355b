"""A change for one version of a session: the store checks the version in the transaction of the change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, cast

from moorage.core.session import Session
from moorage.ports import Store
from moorage.service.deps import Deps

WHOLE_REQUEST = timedelta(hours=1)  # longer than any request takes
CHANGES = frozenset({"apply", "append", "fork", "delete_tree"})  # methods that take `expected`


def at_version(deps: Deps, ref: str, session: Session) -> Deps:
    """Return dependencies for one request, whose first change of the session is refused unless it is at this version.

    The caller applies deadlines before (`retention.expire_due`): that change must not count as the first.
    """
    store = cast(Store, AtVersion(deps.store, frozenset({ref, session.session_id}), session.version))
    own = deps.like(store)
    own.look_again_at = deps.clock.now() + WHOLE_REQUEST
    return own


class AtVersion:
    """A store that checks the version at the first change of one session; later changes build on the first."""

    def __init__(self, store: Store, refs: frozenset[str], version: int) -> None:
        self._store, self._refs, self._version = store, refs, version
        self._is_compared = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._compared, found) if name in CHANGES else found

    async def _compared(self, change: Callable[..., Any], owner: str, ref: str, *args: Any, **options: Any) -> Any:
        """Make a change at the version; a refused change does not count as the first."""
        if ref not in self._refs or self._is_compared:
            return await change(owner, ref, *args, **options)
        changed = await change(owner, ref, *args, **{**options, "expected": self._version})
        self._is_compared = True
        return changed
