"""The jobs of a store that keeps its data in SQL tables, written once for SQLite and PostgreSQL.

A job is a coroutine function of a `Db`. PostgreSQL awaits it; SQLite drives it to its end without an event loop. What
stays with each of the two: connections, migrations, search, and the statements where their difference is the point.

Each module is imported when it is first used: hooks start in milliseconds and need few of them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from moorage.stores.sql import approvals as approvals
    from moorage.stores.sql import context as context
    from moorage.stores.sql import counts as counts
    from moorage.stores.sql import documents as documents
    from moorage.stores.sql import dump as dump
    from moorage.stores.sql import facts as facts
    from moorage.stores.sql import family as family
    from moorage.stores.sql import history as history
    from moorage.stores.sql import lookup as lookup
    from moorage.stores.sql import many as many
    from moorage.stores.sql import named as named
    from moorage.stores.sql import once as once
    from moorage.stores.sql import runs as runs
    from moorage.stores.sql import turns as turns

JOBS = frozenset(
    "approvals context counts documents dump facts family history lookup many named once runs turns".split()
)


def __getattr__(name: str) -> ModuleType:
    """Import a module of jobs."""
    if name not in JOBS:
        raise AttributeError(name)
    __import__(f"{__name__}.{name}")
    module: ModuleType = globals()[name]
    return module
