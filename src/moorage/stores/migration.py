"""Numbered files that make the schema of a SQL store, one after the other."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from zlib import crc32


class Migration(NamedTuple):
    """One numbered step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> int:
        """Changes when the file does."""
        return crc32(self.sql.encode())

    @property
    def needs(self) -> int:
        """Which schema a release has to know at least to work on what this makes of it."""
        said = re.match(r"-- needs (\d+)\n", self.sql)
        return int(said[1]) if said else self.number


def read_migrations(module: str) -> list[Migration]:
    """Return the migrations beside a module, in order."""
    folder, found = os.path.join(os.path.dirname(module), "migrations"), []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".sql")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(int(name[:4]), name[5:-4], file.read()))
    return found
