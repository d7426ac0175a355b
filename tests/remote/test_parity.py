"""Embedded or remote, the same call gives the same answer: of the same type, with the same content."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.client import ContextDoor, Holdfast
from holdfast.core.errors import HoldfastError
from holdfast.core.render import to_json
from holdfast.remote.client import RemoteContext, RemoteHoldfast
from holdfast.remote.operations import OPERATIONS

Call = Callable[[Holdfast, dict[str, str]], Any]
LONG_AGO, FAR_AHEAD = datetime(2001, 2, 3, tzinfo=UTC), datetime(2101, 2, 3, tzinfo=UTC)
CAT = '[agent]\nname = "cat"\nkind = "command"\ncommand = ["cat"]\n'
HIDDEN = ("client_key", "holder", "source")  # made each time, or shown to nobody outside
NOT_CALLED = {"close", "run", "import_files"}  # they have tests of their own

CALLS: list[tuple[str, Call]] = [
    ("create", lambda hf, _: hf.create("planner", session_id="s-1", name="plan", metadata={"a": [1, "é"]}, ttl=3600)),
    ("create", lambda hf, _: hf.create("helper", session_id="child", parent="s-1", ttl=timedelta(hours=2))),
    ("create", lambda hf, _: hf.create(parent=None, purpose="none", task_id="T1", project_dir="/work")),
    ("create", lambda hf, _: hf.create(metadata={"bad": float("nan")})),
    ("create", lambda hf, _: hf.create(session_id="no good")),
    ("create", lambda hf, _: hf.create(session_id="s-1")),
    ("create", lambda hf, _: hf.create(ttl=-1)),
    ("create", lambda hf, _: hf.create(parent="nobody")),
    ("get", lambda hf, _: hf.get("plan")),
    ("get", lambda hf, _: hf.get("a/b ?#%.é")),
    ("get", lambda hf, _: hf.get("..")),
    ("get", lambda hf, _: hf.get("")),
    ("resolve", lambda hf, _: hf.resolve("chil")),
    ("list", lambda hf, _: hf.list()),
    ("list", lambda hf, _: hf.list(metadata_key="a", metadata_value=[1, "é"], created_after=LONG_AGO, limit=1)),
    ("list", lambda hf, _: hf.list(active_only=True, resume_ready=False, created_before=FAR_AHEAD, sort="created")),
    ("list", lambda hf, _: hf.list(created_after=datetime(2001, 2, 3))),  # noqa: DTZ001  # that is what is refused
    ("list", lambda hf, _: hf.list(cursor="rubbish")),
    ("update", lambda hf, _: hf.update("s-1", phase="planning", metadata={"b": 1}, error="once")),
    ("update", lambda hf, _: hf.update("s-1", phase="no phase")),
    ("update", lambda hf, _: hf.update("s-1", phase="planning", version=99)),
    (
        "append",
        lambda hf, _: hf.append("s-1", ["Plan the change", {"role": "assistant", "content": "1\u20282"}]),
    ),
    ("append", lambda hf, _: hf.append("s-1", {"role": "nobody", "content": "x"})),
    ("append", lambda hf, _: hf.append("s-1", [])),
    ("append", lambda hf, _: hf.append("nobody", "x")),
    ("send", lambda hf, _: hf.send("s-1", "Go on", client_key="k-1")),
    ("send", lambda hf, _: hf.send("s-1", "Something else", client_key="k-1")),
    ("messages", lambda hf, _: hf.messages("s-1", last=2)),
    ("messages", lambda hf, _: hf.messages("s-1", after=0, limit=2)),
    ("messages", lambda hf, _: hf.messages("s-1", before="x")),
    ("log", lambda hf, _: hf.log("s-1", kinds=["message", "phase"], newest_first=True)),
    ("log", lambda hf, _: hf.log("s-1", kinds=["no kind"])),
    ("search", lambda hf, _: hf.search("change")),
    ("compact", lambda hf, _: hf.compact("s-1", "We planned", upto=3)),
    ("compact", lambda hf, _: hf.compact("s-1", "Too far", upto=999)),
    ("events", lambda hf, _: each(hf.events("s-1", follow=False))),
    ("events", lambda hf, _: each(hf.events(after=3, follow=False))),
    ("events", lambda hf, _: each(hf.events("nobody", follow=False))),
    ("context.put", lambda hf, _: hf.context.put("s-1", "a/b", {"deep": [None, True, 1.5]}, ttl=60)),
    ("context.put", lambda hf, _: hf.context.put("s-1", "", "no key")),
    ("context.put", lambda hf, _: hf.context.put("s-1", "k", object())),
    ("context.merge", lambda hf, _: hf.context.merge("s-1", {"x": 1, "y": "two"})),
    ("context.get", lambda hf, _: hf.context.get("s-1")),
    ("context.get", lambda hf, _: hf.context.get("s-1", "a/b")),
    ("context.get", lambda hf, _: hf.context.get("s-1", "absent")),
    ("context.items", lambda hf, _: hf.context.items("s-1")),
    ("context.delete", lambda hf, _: hf.context.delete("s-1", "x", version=99)),
    ("context.delete", lambda hf, _: hf.context.delete("s-1", "x")),
    ("context.delete", lambda hf, _: hf.context.delete("s-1", "")),
    ("context.replace", lambda hf, _: hf.context.replace("s-1", {"z": []})),
    ("context.delete", lambda hf, _: hf.context.delete("s-1")),
    ("save_checkpoint", lambda hf, _: hf.save_checkpoint("s-1", {"step": 3})),
    ("save_checkpoint", lambda hf, _: hf.save_checkpoint("s-1", "no object")),  # type: ignore[arg-type]
    ("checkpoint", lambda hf, _: hf.checkpoint("s-1")),
    ("checkpoint", lambda hf, _: hf.checkpoint("s-1", 1)),
    ("checkpoints", lambda hf, _: hf.checkpoints("s-1")),
    ("should_resume", lambda hf, _: hf.should_resume("s-1")),
    ("should_resume", lambda hf, _: hf.should_resume(agent="planner", task_id="none")),
    ("delegate", lambda hf, _: hf.delegate("planner", session_id="s-1", delegation_id="d-1")),
    ("delegate", lambda hf, _: hf.delegate("newcomer", create=True, new_id="new", delegation_id="d-2")),
    ("delegations", lambda hf, _: hf.delegations(agent="planner")),
    ("resumable", lambda hf, _: hf.resumable()),
    ("suspend", lambda hf, _: hf.suspend("s-1", checkpoint={"step": 4}, reason="lunch")),
    ("resume", lambda hf, told: noted(told, hf.resume("s-1", holder="ann"))),
    ("resume", lambda hf, _: hf.resume("s-1", holder="bob")),
    ("update", lambda hf, told: hf.update("s-1", phase="executing", token=told["token"])),
    ("release", lambda hf, told: hf.release("s-1", token=told["token"])),
    ("release", lambda hf, _: hf.release("s-1", token="another")),
    ("fork", lambda hf, _: hf.fork("s-1", at=3, session_id="fork")),
    ("fork", lambda hf, _: hf.fork("s-1", at=999)),
    ("children", lambda hf, _: hf.children("s-1")),
    ("count_children", lambda hf, _: hf.count_children("s-1")),
    ("ancestors", lambda hf, _: hf.ancestors("child")),
    ("tree", lambda hf, _: hf.tree("s-1")),
    ("request_approval", lambda hf, told: asked(told, hf.request_approval("s-1", "Sure?", plan={"a": 1}))),
    ("request_approval", lambda hf, told: asked(told, hf.request_approval("fork", "And?", options=("a", "b")))),
    ("approvals", lambda hf, _: hf.approvals()),
    ("approvals", lambda hf, _: hf.approvals("s-1", pending_only=False)),
    ("approval", lambda hf, told: hf.approval(told["Sure?"])),
    ("approval", lambda hf, _: hf.approval("none")),
    ("decide", lambda hf, told: hf.decide(told["Sure?"], "maybe")),
    ("approve", lambda hf, told: hf.approve(told["Sure?"], note="fine", by="carl")),
    ("reject", lambda hf, told: hf.reject(told["Sure?"])),
    ("decide", lambda hf, told: hf.decide(told["And?"], "b")),
    ("runs", lambda hf, _: hf.runs(session="s-1")),
    ("get_run", lambda hf, _: hf.get_run("none")),
    ("result", lambda hf, _: hf.result("none")),
    ("stop", lambda hf, _: hf.stop("s-1")),
    ("stop_run", lambda hf, _: hf.stop_run("none")),
    ("inbox", lambda hf, _: hf.inbox()),
    ("send_again", lambda hf, _: hf.send_again("none")),
    ("launchers", lambda hf, _: hf.launchers()),
    ("drain_launcher", lambda hf, _: hf.drain_launcher("nobody")),
    ("export", lambda hf, _: each(hf.export("s-1", tree=True))),
    ("export", lambda hf, _: whole(hf.export("s-1", format="markdown"))),
    ("export", lambda hf, _: each(hf.export("s-1", format="tar"))),
    ("export", lambda hf, _: each(hf.export("nobody"))),
    ("import_", lambda hf, _: brought_back(hf)),
    ("import_", lambda hf, _: hf.import_(["{}"])),
    ("import_", lambda hf, _: hf.import_([])),
    ("stats", lambda hf, _: without_storage(hf.stats(by="agent", created_after=LONG_AGO))),
    ("check", lambda hf, _: hf.check()),
    ("agents", lambda hf, _: hf.agents()),
    ("agent", lambda hf, _: hf.agent("echo-agent")),
    ("agent", lambda hf, _: hf.agent("")),
    ("define_agent", lambda hf, _: hf.define_agent(CAT, replace=True)),
    ("define_agent", lambda hf, _: hf.define_agent("[agent]\nname = 1\n")),
    ("agent", lambda hf, _: hf.agent("cat")),
    ("remove_agent", lambda hf, _: hf.remove_agent("nobody")),
    ("keys", lambda hf, _: hf.keys()),
    ("tools", lambda hf, _: hf.tools()),
    ("call_tool", lambda hf, _: hf.call_tool("weather-tool", "get_forecast", {"location": "Rome", "days": 2})),
    ("call_tool", lambda hf, _: hf.call_tool("no-tool")),
    ("revoke_key", lambda hf, _: hf.revoke_key("")),
    ("revoke_key", lambda hf, _: hf.revoke_key("none")),
    ("create_key", lambda hf, _: hf.create_key(scopes=["no scope"])),
    ("finalize", lambda hf, _: hf.finalize("fork", "completed", summary="done")),
    ("finalize", lambda hf, _: hf.finalize("fork", "failed")),
    ("update", lambda hf, _: hf.update("fork", phase="planning")),
    ("cleanup", lambda hf, _: hf.cleanup(1, states=["completed"], dry_run=True)),
    ("delete", lambda hf, _: hf.delete("s-1", cascade=False)),
    ("delete", lambda hf, _: hf.delete("s-1", dry_run=True)),
    ("delete", lambda hf, _: hf.delete("s-1", reason="tested")),
    ("delete", lambda hf, _: hf.delete("s-1")),
    ("get", lambda hf, _: hf.get("child")),
    ("deleted", lambda hf, _: hf.deleted(reason="tested", since=LONG_AGO)),
]


async def each(stream: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in stream]


async def whole(stream: AsyncIterator[str]) -> str:
    return "\n".join([part async for part in stream])


async def noted(told: dict[str, str], resuming: Any) -> Any:
    packet = await resuming
    told["token"] = packet.hold.token
    return packet


async def asked(told: dict[str, str], asking: Any) -> Any:
    approval = await asking
    told[approval.question] = approval.approval_id
    return approval


async def without_storage(counting: Any) -> Any:
    return {**to_json(await counting), "storage": None}


async def brought_back(hf: Holdfast) -> Any:
    lines = await each(hf.export("child"))
    await hf.delete("child")
    return [await hf.import_([line.replace('"child"', '"other"') for line in lines]), await hf.get("other")]


class Normal:
    """Answers without what differs each time: made ids, times, tokens, the keys of repeatable requests."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.of(item) for name, item in value.items() if name not in HIDDEN}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, float):
            return "a number"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        text = re.sub(r'"client_key":("\w*"|null)', "", text)
        text = re.sub(r'"duration_seconds":[\d.]+', "", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "then", text)
        return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", self._named, text)

    def _named(self, found: re.Match[str]) -> str:
        return self._seen.setdefault(found[0], f"id {len(self._seen)}")


async def answered(hf: Holdfast, call: Call, told: dict[str, str]) -> tuple[type, Any]:
    try:
        value = await call(hf, told)
    except HoldfastError as error:
        return type(error), error.to_dict()
    return type(value), to_json(value)


async def test_every_call_gives_the_same_answer_embedded_and_remote(address: str, tmp_path: Path) -> None:
    here: tuple[Normal, dict[str, str]] = (Normal(), {})
    there: tuple[Normal, dict[str, str]] = (Normal(), {})
    async with (
        holdfast.connect(f"sqlite:///{tmp_path / 'here.db'}", by="ann") as embedded,
        holdfast.connect(address, by="ann") as remote,
    ):
        for number, (name, call) in enumerate(CALLS):
            kind, value = await answered(embedded, call, here[1])
            remote_kind, remote_value = await answered(remote, call, there[1])
            assert remote_kind is kind, (number, name, value, remote_value)
            assert there[0].of(remote_value) == here[0].of(value), (number, name)


def test_every_operation_is_compared() -> None:
    methods = [name for name, _ in inspect.getmembers(Holdfast, inspect.isfunction) if not name.startswith("_")]
    assert {name for name, _ in CALLS} | NOT_CALLED >= {*methods, *(operation.name for operation in OPERATIONS)}


@pytest.mark.parametrize(("remote", "embedded"), [(RemoteHoldfast, Holdfast), (RemoteContext, ContextDoor)])
def test_no_method_reaches_for_a_store(remote: type, embedded: type) -> None:
    for name, method in inspect.getmembers(embedded, inspect.isfunction):
        if not name.startswith("_"):
            assert getattr(remote, name) is not method, f"{name} is not overridden"


@pytest.mark.parametrize("name", ["append", "send", "run", "events", "cleanup", "export", "import_", "import_files"])
def test_what_is_written_out_takes_the_same_arguments(name: str) -> None:
    own, theirs = (inspect.signature(getattr(kind, name)).parameters for kind in (RemoteHoldfast, Holdfast))
    if name == "run":
        assert own.keys() - {"options"} <= theirs.keys()
    else:
        assert {key: value.default for key, value in own.items()} == {k: v.default for k, v in theirs.items()}
