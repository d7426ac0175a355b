"""The table of columns and the statements that are written by hand agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import moorage.stores
from moorage.core.session import Session
from moorage.stores.rows import APPROVALS, Table
from moorage.stores.session_rows import ALL, CHANGING, COLUMNS, PLACE
from moorage.stores.work_rows import ITEMS, RUNS, TURNS

STORES = Path(moorage.stores.__file__).parent
POSTGRES = (STORES / "postgres/migrations/0001_schema.sql").read_text(encoding="utf-8")
SQLITE = (STORES / "sqlite/migrations/0001_schema.sql").read_text(encoding="utf-8")
TABLES = (APPROVALS, RUNS, TURNS, ITEMS)
PLACED_BY_STORE = {"n", "owner", "session", "root"}
# Read with the head, or made for an answer; and where it stands in its family, which has its own columns.
NOT_KEPT = {"awaited_approval", "awaited_child", "redacted", "messages", "because", "root_session_id"}


def test_every_field_that_is_kept_has_a_column() -> None:
    assert {column.field for column in COLUMNS} == set(Session.__struct_fields__) - NOT_KEPT


def columns_of(schema: str, name: str) -> set[str]:
    table = re.search(rf"CREATE TABLE (?:moor\.)?{name} \((.*?)\n\)", schema, re.S)
    assert table is not None
    return set(re.findall(r"^ +([a-z_]+) ", table[1], re.M))


@pytest.mark.parametrize("schema", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
def test_both_schemas_have_every_column(schema: str) -> None:
    assert {*ALL.names, *PLACE} <= columns_of(schema, "sessions")
    for table in TABLES:
        assert set(table.columns) == columns_of(schema, table.name) - PLACED_BY_STORE, table.name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_postgresql_writes_every_column_of_a_row(table: Table[Any]) -> None:
    insert = re.search(rf"INSERT INTO moor\.{table.name}\s+\((.*?)\)", POSTGRES)
    assert insert is not None
    assert set(insert[1].split(", ")) - PLACED_BY_STORE == set(table.columns)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_postgresql_updates_the_columns_that_change(table: Table[Any]) -> None:
    update = re.search(
        rf"(?:UPDATE moor\.{table.name}|INTO moor\.{table.name} [^;]*DO UPDATE) SET(.*?)(WHERE|;)", POSTGRES, re.S
    )
    assert update is not None
    assert set(re.findall(r"([a-z_]+) = (?:\(?one|excluded)", update[1])) == set(table.moving)


def test_postgresql_writes_every_column_that_changes() -> None:
    update = re.search(r"UPDATE moor\.sessions s SET\n(.*?)WHERE s\.owner", POSTGRES, re.S)
    assert update is not None
    assert set(re.findall(r"([a-z_]+) = h\.\1", update[1])) == set(CHANGING.names)
