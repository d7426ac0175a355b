"""New database files, many of them: copies of one, because to make the schema takes longer than most tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from moorage.stores.sealing import Sealer
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import drive

KEYS = {"k-1": b"1" * 32}


def new_file(folder: Path, *, sealed: bool = False) -> Path:
    """A database in which nothing is yet."""
    path = folder / "moorage.db"
    for ending, content in _parts(sealed=sealed):
        path.with_name(path.name + ending).write_bytes(content)
    return path


@cache
def _parts(*, sealed: bool) -> list[tuple[str, bytes]]:
    """Return the files of a new store: the database and its log."""
    with TemporaryDirectory(prefix="moorage-") as folder:
        path = Path(folder) / "new.db"
        drive(SqliteStore.open(path, sealer=Sealer(KEYS) if sealed else None).close())
        return [(ending, path.with_name(path.name + ending).read_bytes()) for ending in ("", "-wal")]
