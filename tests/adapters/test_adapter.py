"""The common part of all adapters."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

import moorage
from moorage import sync
from moorage.adapters.adapter import Adapter, FrameworkMissing, require
from moorage.api import Moorage
from moorage.core.errors import IdTaken, SessionNotFound, StoreUnavailable


class Notebook(Adapter):
    """A small adapter: it appends lines."""

    framework = "openai-agents"

    async def add(self, name: str, line: str) -> None:
        await self._write(lambda moor: self._in_session((name,), lambda session: self._append(moor, session, line)))

    def add_now(self, name: str, line: str) -> None:
        self._drive(lambda moor: self._in_session((name,), lambda session: self._append(moor, session, line)))

    async def lines(self, name: str) -> list[str]:
        async def read(moor: Moorage) -> list[str]:
            page = await self._in_session((name,), moor.messages)
            return [entry.text for entry in page.items]

        return await self._read(read)

    async def _append(self, moor: Moorage, session_id: str, line: str) -> None:
        try:
            await moor.append(session_id, line)
        except SessionNotFound:
            with suppress(IdTaken):
                await moor.create(session_id=session_id, parent=None, **self._birth((session_id,)))
            await moor.append(session_id, line)


async def test_adapter_opens_on_first_use_and_closes_after_its_block(url: str) -> None:
    async with Notebook(url) as notebook:
        await notebook.add("a", "one")
        await asyncio.to_thread(notebook.add_now, "a", "two")

        assert await notebook.lines("a") == ["one", "two"]
    with pytest.raises(StoreUnavailable, match="Notebook is closed"):
        await notebook.lines("a")
    notebook.close()


def test_adapter_works_without_an_event_loop(url: str) -> None:
    with Notebook(url) as notebook:
        notebook.add_now("a", "one")

        assert asyncio.run(notebook.lines("a")) == ["one"]


def test_session_says_which_framework_it_belongs_to_and_its_id_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with Notebook(url, agent="writer", ttl=3600) as notebook:
        notebook.add_now("my notes", "one")
    with sync.connect(url) as moor:
        session = moor.get("x:my:20notes")

    assert (session.agent, session.interface) == ("writer", "openai-agents")
    assert session.metadata["framework"] == "openai-agents"
    assert session.expires_at is not None


def test_adapter_without_a_url_takes_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_URL", f"sqlite:///{tmp_path / 'a.db'}")
    with Notebook() as notebook:
        notebook.add_now("a", "one")
    with sync.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor:
        assert [entry.text for entry in moor.messages("a").items] == ["one"]


async def test_deleted_session_begins_anew(url: str) -> None:
    async with moorage.connect(url) as moor, Notebook(url) as notebook, Notebook(url) as other:
        for generation in range(1, 4):
            await notebook.add("a", f"line {generation}")
            assert await other.lines("a") == [f"line {generation}"]
            await moor.delete("a" if generation == 1 else f"g{generation}:a")

        with pytest.raises(SessionNotFound):
            await notebook.lines("a")


async def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with Notebook(url, owner="anna") as hers, Notebook(url, owner="ben") as his:
        await hers.add("a", "private")
        with pytest.raises(SessionNotFound):
            await his.lines("a")
        await his.add("a", "mine")

        assert await hers.lines("a") == ["private"]


# Frameworks -------------------------------------------------------------------------------------


def test_missing_framework_is_told_with_the_command_to_run() -> None:
    with pytest.raises(FrameworkMissing, match=r"no-such-thing is not installed; run: pip install 'moorage\[it\]'"):
        require("it", "no-such-thing", "1.0")


@pytest.mark.parametrize(("found", "floor"), [("0.23.9", "0.24"), ("1.9", "1.10"), ("0.2.99", "0.2.183")])
def test_framework_older_than_the_floor_is_refused(found: str, floor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: found)

    with pytest.raises(ImportError, match=f"{found} is too old, {floor} is needed"):
        require("it", "some-framework", floor)


@pytest.mark.parametrize("found", ["0.24.0", "0.24", "0.24.1rc1", "1.0"])
def test_framework_as_new_as_the_floor_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: found)

    require("it", "some-framework", "0.24")
