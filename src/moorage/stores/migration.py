"""Numbered files that build the schema of a SQL store, one after another."""

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
        """Return a checksum of the file."""
        return crc32(self.sql.encode())

    @property
    def needs(self) -> int:
        """Return the oldest schema that a release must know to work with the migrated one."""
        said = re.match(r"-- needs (\d+)\n", self.sql)
        return int(said[1]) if said else self.number


def read_migrations(module: str) -> list[Migration]:
    """Return the migrations beside a module, in order."""
    folder, found = os.path.join(os.path.dirname(module), "migrations"), []
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".sql")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(int(name[:4]), name[5:-4], file.read()))
    return found
