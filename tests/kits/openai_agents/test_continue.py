"""A session begun elsewhere goes on in the OpenAI Agents SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message

import moorage
from moorage.adapters.convert import convert
from moorage.adapters.openai_agents import MoorageSession
from tests.adapters.test_convert import CONVERSATION


async def test_conversation_goes_on(tmp_path: Path) -> None:
    model = ScriptedModel([[assistant_message("Still sunny.")]])
    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor:
        begun = await moor.create("helper")
        await moor.append(begun.session_id, CONVERSATION)
        session = MoorageSession("c", moor)
        await session.add_items(convert((await moor.messages(begun.session_id)).items, "openai-agents").messages)
        await Runner.run(Agent(name="helper", model=model), "And now?", session=session)

        assert "sunny" in str(model.calls[0].input)
        assert [entry.role for entry in (await moor.messages("c")).items][-2:] == ["user", "assistant"]
