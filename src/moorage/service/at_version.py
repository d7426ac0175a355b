"""A change for one version of a session: the store compares it in the transaction that makes the change."""

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
    """Return these for one request, whose first change of a session is refused unless it is still at this version.

    The caller has ended what is due before (`retention.expire_due`): it must not count as that change.
    """
    store = cast(Store, AtVersion(deps.store, frozenset({ref, session.session_id}), session.version))
    own = deps.like(store)
    own.look_again_at = deps.clock.now() + WHOLE_REQUEST
    return own


class AtVersion:
    """A store whose first change of one session names the version it is for; later ones build on that change."""

    def __init__(self, store: Store, refs: frozenset[str], version: int) -> None:
        self._store, self._refs, self._version = store, refs, version
        self._is_compared = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._compared, found) if name in CHANGES else found

    async def _compared(self, change: Callable[..., Any], owner: str, ref: str, *args: Any, **options: Any) -> Any:
        """Make a change at the version; one that was refused is not the first."""
        if ref not in self._refs or self._is_compared:
            return await change(owner, ref, *args, **options)
        changed = await change(owner, ref, *args, **{**options, "expected": self._version})
        self._is_compared = True
        return changed
