"""Graphs on MoorageSaver: conversations, time travel, subgraphs, interrupts that a person answers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langchain_core.messages import AIMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from moorage import sync
from moorage.adapters.langgraph import MoorageSaver
from moorage.adapters.langgraph.layout import APPROVALS
from moorage.core.approval import ApprovalState
from moorage.core.errors import ApprovalClosed
from moorage.core.record import Put
from tests.kits.langgraph.threads import Thread, config_of

THREAD = {"configurable": {"thread_id": "t"}}


class Notes(TypedDict):
    notes: Annotated[list[str], operator.add]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'graphs.db'}"


@pytest.fixture
def saver(file: str) -> Iterator[MoorageSaver]:
    with MoorageSaver(file) as opened:
        yield opened


def echo(state: MessagesState) -> Any:
    return {"messages": [AIMessage(f"heard {state['messages'][-1].content}")]}


def one_node(saver: Any, node: Any, state: Any = MessagesState) -> Any:
    return StateGraph(state).add_node("node", node).add_edge(START, "node").compile(checkpointer=saver)


def asking(*questions: Any) -> Any:
    def node(state: Notes) -> Any:
        return {"notes": [f"{question} {interrupt(question)}" for question in questions]}

    return node


def approvals(file: str, *, pending_only: bool = True) -> list[Any]:
    with sync.connect(file) as moor:
        return moor.approvals("t", pending_only=pending_only)


def decide(file: str, decision: str) -> None:
    (open_,) = approvals(file)
    with sync.connect(file) as moor:
        moor.decide(open_.approval_id, decision)


async def test_conversation_goes_on_in_another_process(url: str) -> None:
    async with MoorageSaver(url) as saver:
        await one_node(saver, echo).ainvoke({"messages": ["one"]}, THREAD)
    if url.startswith("memory"):
        return  # it was in this process
    async with MoorageSaver(url) as saver:
        state = await one_node(saver, echo).ainvoke({"messages": ["two"]}, THREAD)
    assert [it.content for it in state["messages"]] == ["one", "heard one", "two", "heard two"]


def test_log_tells_the_conversation(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, echo)
    for text in ("one", "two"):
        graph.invoke({"messages": [text]}, THREAD)
    with sync.connect(file) as moor:
        assert [it.text for it in moor.messages("t").items] == ["one", "heard one", "two", "heard two"]
        assert [it.text for it in moor.messages("t").items] == [
            it.content for it in graph.get_state(THREAD).values["messages"]
        ]


def test_earlier_state_can_be_taken_up_again(saver: MoorageSaver) -> None:
    graph = one_node(saver, echo)
    for number in range(12):
        graph.invoke({"messages": [f"m{number}"]}, THREAD)
    history = list(graph.get_state_history(THREAD))
    assert len(history) == 12 * 3
    earlier = next(it for it in history if len(it.values.get("messages", [])) == 8)
    state = graph.invoke({"messages": ["other"]}, earlier.config)
    assert [it.content for it in state["messages"]][6:] == ["m3", "heard m3", "other", "heard other"]
    assert len(graph.get_state(THREAD).values["messages"]) == 10


def test_parallel_tasks_and_subgraphs_are_kept(saver: MoorageSaver) -> None:
    inner = StateGraph(Notes).add_node("deep", lambda _: {"notes": ["deep"]}).add_edge(START, "deep").compile()
    builder = StateGraph(Notes).add_node("work", lambda state: {"notes": [f"did {state['number']}"]})
    builder.add_node("sub", inner).add_edge("work", "sub").add_edge("sub", END)
    builder.add_conditional_edges(START, lambda _: [Send("work", {"number": it}) for it in range(12)], ["work"])
    state = builder.compile(checkpointer=saver).invoke({"notes": []}, THREAD)
    expected = [f"did {it}" for it in range(12)]
    assert state["notes"][:12] == expected
    assert saver.get_tuple(config_of())


# Interrupts ------------------------------------------------------------------------------------------


def test_interrupt_is_an_approval_and_its_answer_resumes(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, asking({"question": "Go?", "options": ["later"]}), Notes)
    graph.invoke({"notes": []}, THREAD)
    assert saver.answers(config_of()) is None
    assert [(it.question, it.options) for it in approvals(file)] == [("Go?", ("later",))]

    decide(file, "later")

    answers = saver.answers(config_of())
    state = graph.invoke(Command(resume=answers), THREAD)
    assert state["notes"] == ["{'question': 'Go?', 'options': ['later']} later"]
    assert saver.answers(config_of()) is None


def test_checkpoint_that_comes_after_its_interrupt_leaves_the_question_open(saver: MoorageSaver, file: str) -> None:
    from langgraph.types import Interrupt

    thread = Thread(saver)
    first = thread.put(notes=["a"])
    late = thread._arguments(None, {"notes": ["b"]})
    at_late = config_of(checkpoint_id=late[1]["id"])
    saver.put_writes(at_late, [("__interrupt__", [Interrupt("Sure?", id="i")])], "task")
    saver.put(*late)
    assert [it.question for it in approvals(file)] == ["Sure?"]
    assert first != late[1]["id"]


@pytest.mark.parametrize(("decision", "answer"), [("approve", True), ("reject", False)])
def test_decision_is_what_interrupt_returns(saver: MoorageSaver, file: str, decision: str, answer: bool) -> None:
    graph = one_node(saver, asking("Sure?"), Notes)
    graph.invoke({"notes": []}, THREAD)
    decide(file, decision)
    assert graph.invoke(Command(resume=saver.answers(config_of())), THREAD)["notes"] == [f"Sure? {answer}"]


def test_second_question_of_a_node_needs_an_answer_of_its_own(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, asking("Same?", "Same?"), Notes)
    graph.invoke({"notes": []}, THREAD)
    decide(file, "approve")
    graph.invoke(Command(resume=saver.answers(config_of())), THREAD)
    assert saver.answers(config_of()) is None
    decide(file, "reject")
    state = graph.invoke(Command(resume=saver.answers(config_of())), THREAD)
    assert state["notes"] == ["Same? True", "Same? False"]


def test_parallel_questions_wait_for_all_answers(saver: MoorageSaver, file: str) -> None:
    builder = StateGraph(Notes).add_node("a", asking("A?")).add_node("b", asking("B?"))
    graph = builder.add_edge(START, "a").add_edge(START, "b").compile(checkpointer=saver)
    graph.invoke({"notes": []}, THREAD)
    with sync.connect(file) as moor:
        first, second = sorted(moor.approvals("t"), key=lambda it: it.question)
        moor.approve(first.approval_id)
        assert saver.answers(config_of()) is None
        moor.reject(second.approval_id)
    state = graph.invoke(Command(resume=saver.answers(config_of())), THREAD)
    assert sorted(state["notes"]) == ["A? True", "B? False"]


def test_question_that_the_caller_answers_is_withdrawn(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, asking("Sure?"), Notes)
    graph.invoke({"notes": []}, THREAD)
    assert graph.invoke(Command(resume="of course"), THREAD)["notes"] == ["Sure? of course"]
    assert approvals(file) == []
    (closed,) = approvals(file, pending_only=False)
    assert (closed.state, closed.decision) == (ApprovalState.WITHDRAWN, None)
    assert closed.note == "The run went on: its caller answered."


def test_question_after_a_hundred_others_is_withdrawn(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, asking("Sure?"), Notes)
    graph.invoke({"notes": []}, THREAD)
    with sync.connect(file) as moor:
        others = [Put(namespace=APPROVALS, key=f"~{number}", value=b"another") for number in range(100)]
        moor.records.write("t", others)
    graph.invoke(Command(resume="of course"), THREAD)
    assert approvals(file) == []


def test_actions_of_the_middleware_get_decisions(saver: MoorageSaver, file: str) -> None:
    request = {"action_requests": [{"name": "rm", "args": {}}, {"name": "mv", "args": {}}], "review_configs": []}
    graph = one_node(saver, asking(request), Notes)
    graph.invoke({"notes": []}, THREAD)
    assert [it.question for it in approvals(file)] == ["rm; mv"]
    decide(file, "approve")
    (answer,) = (saver.answers(config_of()) or {}).values()
    assert answer == {"decisions": [{"type": "approve"}, {"type": "approve"}]}


def test_expired_question_is_no_answer(saver: MoorageSaver, file: str) -> None:
    graph = one_node(saver, asking("Sure?"), Notes)
    graph.invoke({"notes": []}, THREAD)
    with sync.connect(file) as moor:
        moor.finalize("t", "abandoned")
        (open_,) = moor.approvals("t", pending_only=False)
    assert open_.state is ApprovalState.WITHDRAWN
    with pytest.raises(ApprovalClosed):
        saver.answers(config_of())


def test_approvals_can_be_off(file: str) -> None:
    with MoorageSaver(file, approvals=False) as saver:
        one_node(saver, asking("Sure?"), Notes).invoke({"notes": []}, THREAD)
    assert approvals(file) == []


# Delta channels --------------------------------------------------------------------------------------


def joined(left: list[str], writes: list[list[str]]) -> list[str]:
    return [*left, *(it for write in writes for it in write)]


class Deltas(TypedDict):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=5)]


def test_delta_channels_survive_pruning(saver: MoorageSaver) -> None:
    graph = one_node(saver, lambda state: {"notes": [f"n{len(state['notes'])}"]}, Deltas)
    for number in range(7):
        graph.invoke({"notes": [f"i{number}"]}, THREAD)
    expected = graph.get_state(THREAD).values["notes"]
    assert len(expected) == 14
    saver.prune(["t"])
    assert graph.get_state(THREAD).values["notes"] == expected
    assert graph.invoke({"notes": ["more"]}, THREAD)["notes"][:14] == expected
