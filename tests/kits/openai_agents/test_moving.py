"""Sessions of OpenAI's SQLiteSession, and of its SQLAlchemySession on PostgreSQL, moved in."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from agents import SQLiteSession

from moorage.adapters.moving import is_postgres
from moorage.adapters.openai_agents import MoorageSession
from moorage.adapters.openai_moving import move_in
from moorage.core.errors import InvalidField
from tests.kits.moving import change, for_sqlalchemy, moved


def some_items(count: int) -> list[Any]:
    return [{"role": "user", "content": f"m{number}"} for number in range(count)]


async def write(source: str, name: str, items: list[Any]) -> None:
    """Add items to a session of the SDK's own."""
    if not is_postgres(source):
        session = SQLiteSession(name, source)
        await session.add_items(items)
        session.close()
        return
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed; ./dev kits openai-agents has it")
    from agents.extensions.memory import SQLAlchemySession

    other = SQLAlchemySession.from_url(name, url=for_sqlalchemy(source), create_tables=True)
    await other.add_items(items)
    await other.engine.dispose()


@pytest.fixture
def theirs(source: str) -> str:
    for name, count in (("a", 3), ("b c", 150)):
        asyncio.run(write(source, name, some_items(count)))
    return source


def test_sessions_come_in_whole_and_once(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    report, again = move_in(url, theirs), move_in(url, theirs)

    assert (sorted(report.imported), report.entries, report.left_out) == (["a", "x:b:20c"], 153, [])
    assert (again.imported, again.entries, len(again.already_there)) == ([], 0, 2)
    assert asyncio.run(MoorageSession("b c", url).get_items()) == some_items(150)


def test_later_items_come_in_and_other_sessions_stay(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    asyncio.run(MoorageSession("a", url).add_items(some_items(2)))
    asyncio.run(MoorageSession("b c", url).add_items([{"role": "user", "content": "mine"}]))
    report = move_in(url, theirs)

    assert (report.imported, report.entries, report.left_out_total) == (["a"], 1, 1)
    assert asyncio.run(MoorageSession("a", url).get_items()) == some_items(3)


def test_damaged_item_is_left_out_and_told(theirs: str, tmp_path: Path) -> None:
    asyncio.run(change(theirs, "UPDATE agent_messages SET message_data = '{' WHERE id = 1"))
    report = move_in(f"sqlite:///{tmp_path / 'ours.db'}", theirs)

    assert (report.entries, report.left_out_total) == (152, 1)


def test_other_file_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(InvalidField, match="no tables"):
        move_in("memory://", str(tmp_path / "empty.db"))


def test_command_shows_first_and_moves_then(theirs: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ours.db'}"
    counts = [moved(url, "openai", theirs, *options)["entries"] for options in (["--dry-run"], [], [])]
    assert counts == [153, 153, 0]
