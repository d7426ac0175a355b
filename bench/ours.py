"""Moorage through its public face alone: `moorage.sync` call after call, `moorage.connect` under tasks."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import apsw

import moorage
import moorage.sync
from bench import material
from bench.contender import Contender
from bench.material import Message

FILE = "moorage.db"
_RAM = Path("/dev/shm")
_BYTES_PER_SESSION = 4_096  # an upper guess, to see whether a seeded store fits into RAM


def url(folder: Path) -> str:
    return f"sqlite:///{folder / FILE}"


class Ours(Contender):
    """The embedded store, called inline as scripts, hooks and the CLI do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._context = moorage.sync.connect(url(folder))
        self.moor = self._context.__enter__()

    def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Any:
        return self.moor.create(
            agent=agent, name=name, parent=parent, purpose=material.PURPOSE, metadata=material.METADATA
        ).id

    def append(self, session: str, messages: Sequence[Message]) -> Any:
        return self.moor.append(session, messages)

    def last(self, session: str, count: int) -> Any:
        return self.moor.messages(session, last=count).items

    def newest(self, agent: str, count: int) -> Any:
        return self.moor.list(agent=agent, limit=count).items

    def verdict(self, session: str) -> Any:
        return self.moor.should_resume(session)

    def find(self, name: str) -> Any:
        return self.moor.get(name)

    def delete(self, session: str) -> Any:
        return self.moor.delete(session)

    def search(self, words: str) -> Any:
        return self.moor.search(words)

    def cleanup(self) -> Any:
        return self.moor.cleanup(hours=0)

    def stored(self, session: str) -> Any:
        return count_messages(self.moor, session)

    def make_ready(self, session: str) -> Any:
        return self.moor.update(session, phase="planning")

    def finalize(self, session: str) -> Any:
        return self.moor.finalize(session, "completed")

    @classmethod
    def seed(cls, folder: Path, count: int) -> None:
        seed_sessions(folder / FILE, count)

    def close(self) -> None:
        self._context.__exit__(None, None, None)
        super().close()

    def weigh(self) -> int:
        """Log written back first: scripts leave it, and it is as large for one session as for a million."""
        db = apsw.Connection(str(self.folder / FILE))
        db.pragma("wal_checkpoint", "truncate")
        db.close()
        return super().weigh()


class OursAwaited(Contender):
    """The same store inside an event loop, where waiting changes share a commit."""

    awaits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._context = moorage.connect(url(folder))
        self.moor = self.runner.run(self._entered())

    async def _entered(self) -> Any:
        return await self._context.__aenter__()

    async def _left(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Any:
        made = await self.moor.create(
            agent=agent, name=name, parent=parent, purpose=material.PURPOSE, metadata=material.METADATA
        )
        return made.id

    async def append(self, session: str, messages: Sequence[Message]) -> Any:
        return await self.moor.append(session, messages)

    async def last(self, session: str, count: int) -> Any:
        return (await self.moor.messages(session, last=count)).items

    async def stored(self, session: str) -> int:
        return len((await self.moor.messages(session, last=1_000_000)).items)

    def close(self) -> None:
        self.runner.run(self._left())
        super().close()


def count_messages(moor: Any, session: str) -> int:
    return len(moor.messages(session, last=1_000_000).items)


def seed_sessions(path: Path, count: int) -> None:
    """Leave a closed store of `count` sessions at `path`: ids, names and agents as in `material`, in that order.

    Through the public API, so the rows are exactly what a user's would be. Every create is a
    commit, so the file is written to RAM where there is room and copied afterwards.
    """
    with tempfile.TemporaryDirectory(dir=_fast_folder(path.parent, count * _BYTES_PER_SESSION)) as workshop:
        with moorage.sync.connect(url(Path(workshop))) as moor:
            for number in range(count):
                moor.create(
                    session_id=material.seeded_id(number),
                    name=material.seeded_name(number),
                    agent=material.agent(number, count),
                    purpose=material.PURPOSE,
                    metadata=material.METADATA,
                )
        shutil.copytree(workshop, path.parent, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*-shm"))


def _fast_folder(otherwise: Path, needed: int) -> Path:
    roomy = _RAM.is_dir() and shutil.disk_usage(_RAM).free > 2 * needed
    return _RAM if roomy else otherwise
