"""A session begun elsewhere goes on in Pydantic AI."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed; ./dev kits pydantic-ai has it")

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import moorage
from moorage.adapters.convert import convert
from moorage.adapters.pydantic_ai import MoorageConversationStore
from tests.adapters.test_convert import CONVERSATION


async def test_conversation_goes_on(tmp_path: Path) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(content=str(messages))])

    async with moorage.connect(f"sqlite:///{tmp_path / 'a.db'}") as moor:
        session = await moor.create("helper")
        await moor.append(session.session_id, CONVERSATION)
        carried = convert((await moor.messages(session.session_id)).items, "pydantic-ai")
        messages = ModelMessagesTypeAdapter.validate_python(carried.messages)
        conversation = Conversation(conversation_id="c", messages=messages)
        result = await Agent(FunctionModel(model)).run("And now?", conversation=conversation)
        await MoorageConversationStore(moor).save(result)

        assert "sunny" in result.output
        assert len((await moor.messages("c")).items) == 7
