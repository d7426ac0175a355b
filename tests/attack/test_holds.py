"""A turn's hold: its token is in nothing that others read, and cannot be computed from it."""

from __future__ import annotations

from pathlib import Path

from moorage.core.turn import Launcher, Retry
from moorage.service.turns import TurnDispatcher
from moorage.testing.builders import NOON
from moorage.testing.work import a_launcher
from tests.doors.http.visitors import guarded


async def test_token_of_a_turn_is_random_and_never_shown(tmp_path: Path) -> None:
    tokens = set()
    async with guarded(f"sqlite:///{tmp_path / 'moorage.db'}") as place:
        moor = place.embedded("ann")
        reader = place.visitor(await place.key("ann", "read"))
        dispatcher = TurnDispatcher(place.door.deps)
        await dispatcher.register(Launcher(launcher_id="l-1", name="l", registered_at=NOON, seen_at=NOON, slots=4))
        for _ in range(2):
            session = (await moor.run("echo-agent", "hello", mode="async_poll")).session.session_id
            claimed = await dispatcher.claim(a_launcher("l-1"), {"echo-agent": Retry.RESUME})
            assert claimed is not None
            kept = await place.door.deps.store.get("ann", session)
            assert kept.hold is not None
            token, turn = str(kept.hold.token), claimed.turn
            assert len(token) >= 32
            assert not any(part and part in token for part in (turn.turn_id, session, "l-1"))
            for path in ("", "/log", "/events", "/messages", "/export"):
                assert token not in (await reader.get(f"/sessions/{session}{path}")).text
            assert token not in (await reader.get("/runs")).text
            tokens.add(token)
    assert len(tokens) == 2
