"""Rows of contexts: sound ones become sessions that remember, the others are told and left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moorage.service.histories.state_files import AT_ONCE
from tests.service.doors import Timed

ID = "550e8400-e29b-41d4-a716-446655440000"


def rows(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def a_row(session_id: str = ID, context: object = None, at: str | None = "2026-01-08T18:05:30") -> dict[str, object]:
    return {"session_id": session_id, "context": {"city": "Oslo"} if context is None else context, "updated_at": at}


def test_a_row_becomes_a_session_that_remembers(timed: Timed, tmp_path: Path) -> None:
    moor = timed.moor
    report = moor.import_files([rows(tmp_path, a_row(context={"city": "Oslo", "days": [1, 2]}))])

    assert (report.imported, report.left_out_total) == ([ID], 0)
    assert moor.context.get(ID) == {"city": "Oslo", "days": [1, 2]}
    session = moor.get(ID)
    assert session.created_at == session.updated_at == datetime(2026, 1, 8, 18, 5, 30, tzinfo=UTC)
    assert (session.state, session.last_entry) == ("created", 1)
    moor.context.put(ID, "city", "Bergen")
    moor.append(ID, "Remember me?")
    assert moor.check() == []


@pytest.mark.parametrize("context", ['{"city": "Oslo"}', {"city": "Oslo"}])
def test_a_context_may_be_json_or_its_text(timed: Timed, tmp_path: Path, context: object) -> None:
    timed.moor.import_files([rows(tmp_path, a_row(context=context))])
    assert timed.moor.context.get(ID) == {"city": "Oslo"}


def test_import_accepts_missing_context_and_time(timed: Timed, tmp_path: Path) -> None:
    bare = {"session_id": "bare", "context": None}
    assert timed.moor.import_files([rows(tmp_path, a_row(), bare)]).imported == [ID, "bare"]
    assert timed.moor.context.get("bare") == {}
    assert timed.moor.get("bare").created_at.year >= 2026  # when it came in


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (a_row("no id"), "is not allowed"),
        (a_row("other", [1]), "not an object"),
        (a_row("other", '{"cut'), "not a row"),
        (a_row("other", at="yesterday"), "not a row"),
        (a_row("other", {"": 1}), ""),
        ('{"session_id": "cut', "not a row"),
    ],
)
def test_import_reports_invalid_parts_and_takes_the_rest(
    timed: Timed, tmp_path: Path, row: object, reason: str
) -> None:
    report = timed.moor.import_files([rows(tmp_path, a_row(), row, a_row("last"))])
    assert report.imported == [ID, "last"]
    (left,) = report.left_out
    assert left.line == 2
    assert reason in left.reason


def test_importing_twice_changes_nothing(timed: Timed, tmp_path: Path) -> None:
    path = rows(tmp_path, a_row(), a_row("other"))
    assert timed.moor.import_files([path], dry_run=True).imported == [ID, "other"]
    assert timed.moor.list().items == []
    timed.moor.import_files([path])
    timed.moor.context.put(ID, "city", "Bergen")
    report = timed.moor.import_files([path])
    assert (report.imported, report.already_there) == ([], [ID, "other"])
    assert timed.moor.context.get(ID) == {"city": "Bergen"}


def test_secrets_are_not_remembered(timed: Timed, tmp_path: Path) -> None:
    report = timed.moor.import_files([rows(tmp_path, a_row(context={"user": {"password": "hunter2"}}))])
    assert timed.moor.context.get(ID) == {"user": {"password": "[redacted]"}}
    assert report.passed_over == {"secret": 1}


def test_many_rows_come_in_some_at_a_time(timed: Timed, tmp_path: Path) -> None:
    many = [a_row(f"s-{n}") for n in range(AT_ONCE + 3)]
    report = timed.moor.import_files([rows(tmp_path, *many)])
    assert len(report.imported) == AT_ONCE + 3
