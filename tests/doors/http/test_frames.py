"""An append by REST takes the short way: at most ten calls of ours between the request and its SQL statements."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest

import moorage
from moorage import config
from moorage.doors.http.serve import make_door
from moorage.stores.sqlite import writes
from moorage.stores.sqlite.threads import Threaded

SOURCE = str(Path(moorage.__file__).parent)
WRITER = "_attempt"  # the writer's thread calls a job from there, whatever job it is


def frames(frame: FrameType | None) -> list[str]:
    """Return the functions of ours that were called, innermost first; of the writer's thread those of the job."""
    found = []
    while frame is not None and frame.f_code.co_name != WRITER:
        if frame.f_code.co_filename.startswith(SOURCE):
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return found


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the calls that lead to a write, and of those that the write makes before its first statement."""
    seen = list[str]()

    def noted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def noting(*args: Any, **kwargs: Any) -> Any:
            seen.extend([name, *frames(sys._getframe(1))])
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, noting)

    noted(Threaded, "write")
    noted(writes, "append")
    return seen


async def test_append_passes_at_most_ten_frames(tmp_path: Path, passed: list[str]) -> None:
    deps = config.open_deps(f"sqlite:///{tmp_path / 'moorage.db'}", threaded=True)
    transport = httpx2.ASGITransport(app=make_door(deps))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        await http.post("/sessions", json={"session_id": "s"})
        passed.clear()
        answer = await http.post("/sessions/s/messages", json={"messages": [{"content": "hello"}], "run": False})
        assert answer.status_code == 201
    await deps.store.close()
    assert {"write", "append", "Door.__call__"} <= set(passed)
    assert len(passed) <= 10, passed
