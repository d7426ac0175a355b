"""The jobs of a store that keeps its data in SQL tables, shared by SQLite and PostgreSQL.

A job is a coroutine function of a `Db`. PostgreSQL awaits it; SQLite drives it to its end without an event loop. Each
of the two has its own connections, migrations, search, and the few statements that differ on purpose. A job named like
a method of a port does what the port says.

Each module is imported at its first use: hooks start in milliseconds and need few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from moorage.stores.sql import changes as changes
    from moorage.stores.sql import check as check
    from moorage.stores.sql import counts as counts
    from moorage.stores.sql import documents as documents
    from moorage.stores.sql import facts as facts
    from moorage.stores.sql import family as family
    from moorage.stores.sql import feed as feed
    from moorage.stores.sql import find as find
    from moorage.stores.sql import history as history
    from moorage.stores.sql import lookup as lookup
    from moorage.stores.sql import records as records
    from moorage.stores.sql import sealed as sealed
    from moorage.stores.sql import transfer as transfer
    from moorage.stores.sql import work as work


def __getattr__(name: str) -> ModuleType:
    """Import a module of jobs."""
    try:
        __import__(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(name) from None
    module: ModuleType = globals()[name]
    return module
