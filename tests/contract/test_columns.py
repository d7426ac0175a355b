"""The table of columns and the statements that are written by hand agree."""

from __future__ import annotations

import re
from pathlib import Path

import moorage.stores
from moorage.core.session import Session
from moorage.stores.session_rows import ALL, CHANGING, COLUMNS, PLACE

STORES = Path(moorage.stores.__file__).parent
POSTGRES = (STORES / "postgres/migrations/0001_schema.sql").read_text(encoding="utf-8")
# Read with the head, or made for an answer; and where it stands in its family, which has its own columns.
NOT_KEPT = {"awaited_approval", "awaited_child", "redacted", "messages", "because", "root_session_id"}


def test_every_field_that_is_kept_has_a_column() -> None:
    assert {column.field for column in COLUMNS} == set(Session.__struct_fields__) - NOT_KEPT


def test_both_schemas_have_every_column() -> None:
    sqlite = (STORES / "sqlite/migrations/0001_schema.sql").read_text(encoding="utf-8")
    for schema in (sqlite, POSTGRES):
        table = re.search(r"CREATE TABLE (?:moor\.)?sessions \((.*?)\n\)", schema, re.S)
        assert table is not None
        has = set(re.findall(r"^ +([a-z_]+) ", table[1], re.M))
        assert {*ALL.names, *PLACE} <= has


def test_postgresql_writes_every_column_that_changes() -> None:
    update = re.search(r"UPDATE moor\.sessions s SET\n(.*?)WHERE s\.owner", POSTGRES, re.S)
    assert update is not None
    assert set(re.findall(r"([a-z_]+) = h\.\1", update[1])) == set(CHANGING.names)
