"""LangGraph: `SqliteSaver` under a graph of one node.

A turn is one `invoke`: the user's message in, the node's answer out, one checkpoint written at the
end (`durability="exit"`, the cheapest that keeps the turn). A checkpoint holds the whole list of
messages, which is why history costs.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.contender import Contender
from bench.material import Message

Config = dict[str, dict[str, str]]


class LangGraph(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.connection = sqlite3.connect(folder / "langgraph.db", check_same_thread=False)
        saver = SqliteSaver(self.connection)
        saver.setup()
        self.graph = _graph().compile(checkpointer=saver)

    def create(self, *, agent: str = "agent-00", name: str | None = None, parent: Any = None) -> Config:
        config = {"configurable": {"thread_id": str(uuid.uuid4())}}
        self.graph.update_state(config, {"messages": []}, as_node="answer")
        return config

    def append(self, session: Config, messages: Sequence[Message]) -> Any:
        question, answer = messages
        asked = {"messages": [HumanMessage(question["content"])]}
        config = {"configurable": {**session["configurable"], "answer": answer["content"]}}
        return self.graph.invoke(asked, config, durability="exit")

    def last(self, session: Config, count: int) -> list[Any]:
        messages: list[Any] = self.graph.get_state(session).values["messages"]
        return messages[-count:]

    def fill(self, session: Config, messages: Sequence[Message]) -> None:
        self.graph.update_state(session, {"messages": [_message(each) for each in messages]}, as_node="answer")

    def stored(self, session: Config) -> int:
        return len(self.graph.get_state(session).values["messages"])

    def close(self) -> None:
        self.connection.close()
        super().close()


def _graph() -> StateGraph:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", _answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder


def _answer(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    return {"messages": [AIMessage(config["configurable"]["answer"])]}


def _message(message: Message) -> HumanMessage | AIMessage:
    kind = HumanMessage if message["role"] == "user" else AIMessage
    return kind(message["content"])
