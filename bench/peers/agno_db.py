"""Agno: `SqliteDb`. A turn is one run with both messages, written by `upsert_run`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agno.db.sqlite import SqliteDb
from agno.models.message import Message as AgnoMessage
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session import AgentSession

from bench.contender import Contender
from bench.material import Message
from bench.peers.rows import Row, copy_rows, count_rows

AGENT, RUNS = "agent-00", "agno_runs"


@dataclass
class Handle:
    """A session and how many runs it has: the caller numbers them."""

    id: str
    runs: int = 0


class Agno(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "agno.db"
        self.db = SqliteDb(db_file=str(self.path), runs_table=RUNS)

    def create(self, *, agent: str = AGENT, name: str | None = None, parent: Any = None) -> Handle:
        handle = Handle(str(uuid.uuid4()))
        session = AgentSession(
            session_id=handle.id,
            agent_id=agent,
            session_data={"workspace": "prod"},
            metadata={"attempt": 1},
            created_at=int(time.time()),
        )
        self.db.upsert_session(session)
        return handle

    def append(self, session: Handle, messages: Sequence[Message]) -> Any:
        run = RunOutput(
            run_id=str(uuid.uuid4()),
            agent_id=AGENT,
            session_id=session.id,
            messages=[AgnoMessage(role=each["role"], content=each["content"]) for each in messages],
            status=RunStatus.completed,
        )
        self.db.upsert_run(run, session.id, run_index=session.runs)
        session.runs += 1

    def last(self, session: Handle, count: int) -> Any:
        found = self.db.get_session(session.id, runs_limit=count // 2)
        assert isinstance(found, AgentSession)
        return found.get_messages(limit=count)

    def fill(self, session: Handle, messages: Sequence[Message]) -> None:
        turns = len(messages) // 2
        self.append(session, messages[:2])
        copy_rows(self.path, RUNS, session.id, lambda pattern: _later(pattern[0], turns))
        session.runs = turns

    def stored(self, session: Handle) -> int:
        return 2 * count_rows(self.path, RUNS, session.id)

    def close(self) -> None:
        self.db.close()
        super().close()


def _later(pattern: Row, turns: int) -> Iterable[Row]:
    """Copies of the first run at the places after it."""
    for place in range(1, turns):
        fresh = str(uuid.uuid4())
        data = pattern["run_data"].replace(pattern["run_id"], fresh)
        yield {**pattern, "run_id": fresh, "run_index": place, "run_data": data}
