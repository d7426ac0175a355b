"""How much room the file takes."""

from __future__ import annotations

import os

from moorage.core.fact import Size
from moorage.stores.sqlite.connection import Connection


def size(db: Connection) -> Size:
    """The file and its log of writes; pages that are free again count as not used."""
    pages, free, page_size = (int(db.raw.pragma(name)) for name in ("page_count", "freelist_count", "page_size"))
    row = db.one("SELECT count(*) FROM sessions")
    assert row is not None
    return Size(
        bytes=_bytes_of(db.raw.filename) + _bytes_of(db.raw.filename_wal),
        used_bytes=(pages - free) * page_size,
        sessions=row[0],
    )


def _bytes_of(path: str) -> int:
    """How long a file is, without opening it; one that is not there takes nothing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
