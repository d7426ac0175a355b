"""Embedded or remote, the same call gives the same answer: of the same type, with the same content."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import moorage
from moorage.api import Moorage
from moorage.core.errors import MoorageError
from moorage.core.render import to_json
from moorage.records import Append, Put, Touch
from moorage.remote.operations import OPERATIONS

Call = Callable[[Moorage, dict[str, str]], Any]
LONG_AGO, FAR_AHEAD = datetime(2001, 2, 3, tzinfo=UTC), datetime(2101, 2, 3, tzinfo=UTC)
CAT = '[agent]\nname = "cat"\nkind = "command"\ncommand = ["cat"]\n'
HIDDEN = ("client_key", "holder", "source")  # made each time, or not shown outside
NOT_CALLED = {"close", "run", "import_files"}  # they have tests of their own

CALLS: list[tuple[str, Call]] = [
    (
        "create",
        lambda moor, _: moor.create("planner", session_id="s-1", name="plan", metadata={"a": [1, "é"]}, ttl=3600),
    ),
    ("create", lambda moor, _: moor.create("helper", session_id="child", parent="s-1", ttl=timedelta(hours=2))),
    ("create", lambda moor, _: moor.create(parent=None, purpose="none", task_id="T1", project_dir="/work")),
    ("create", lambda moor, _: moor.create(metadata={"bad": float("nan")})),
    ("create", lambda moor, _: moor.create(session_id="no good")),
    ("create", lambda moor, _: moor.create(session_id="s-1")),
    ("create", lambda moor, _: moor.create(ttl=-1)),
    ("create", lambda moor, _: moor.create(parent="nobody")),
    ("get", lambda moor, _: moor.get("plan")),
    ("get", lambda moor, _: moor.get("a/b ?#%.é")),
    ("get", lambda moor, _: moor.get("..")),
    ("get", lambda moor, _: moor.get("")),
    ("create", lambda moor, _: moor.create(session_id="")),
    ("create", lambda moor, _: moor.create(parent="")),
    ("fork", lambda moor, _: moor.fork("s-1", session_id="")),
    ("run", lambda moor, _: moor.run("echo-agent", "Go on", session="")),
    ("run", lambda moor, _: moor.run("echo-agent", "Go on", parent="")),
    ("call_tool", lambda moor, _: moor.call_tool("")),
    ("children", lambda moor, _: moor.children(None)),  # type: ignore[arg-type]
    ("context.get", lambda moor, _: moor.context.get(None)),  # type: ignore[arg-type]
    ("records.put", lambda moor, _: moor.records.put(None, "n", "k", 1)),  # type: ignore[arg-type]
    ("records.list", lambda moor, _: moor.records.list(None, "n")),  # type: ignore[arg-type]
    ("get", lambda moor, _: moor.get(None)),  # type: ignore[arg-type]
    ("context.put", lambda moor, _: moor.context.put(None, "k", 1)),  # type: ignore[arg-type]
    ("context.put", lambda moor, _: moor.context.put("s-1", None, 1)),  # type: ignore[arg-type]
    ("run", lambda moor, _: moor.run("echo-agent", "Go on", timeout=-1)),
    ("run", lambda moor, _: moor.run("echo-agent", "Go on", timeout=float("nan"))),
    ("run", lambda moor, _: moor.run("echo-agent", "Go on", timeout="soon")),  # type: ignore[arg-type]
    ("result", lambda moor, _: moor.result("none", wait=10**400)),
    ("result", lambda moor, _: moor.result("none", wait=True)),
    ("resolve", lambda moor, _: moor.resolve("chil")),
    ("list", lambda moor, _: moor.list()),
    ("list", lambda moor, _: moor.list(metadata_key="a", metadata_value=[1, "é"], created_after=LONG_AGO, limit=1)),
    ("list", lambda moor, _: moor.list(active_only=True, resume_ready=False, created_before=FAR_AHEAD, sort="created")),
    ("list", lambda moor, _: moor.list(created_after=datetime(2001, 2, 3))),  # noqa: DTZ001  # that is what is refused
    ("list", lambda moor, _: moor.list(cursor="rubbish")),
    ("update", lambda moor, _: moor.update("s-1", phase="planning", metadata={"b": 1}, error="once")),
    ("update", lambda moor, _: moor.update("s-1", phase="no phase")),
    ("rename", lambda moor, _: moor.rename("s-1", "other")),
    ("rename", lambda moor, _: moor.rename("other", "child")),
    ("rename", lambda moor, _: moor.rename("s-1", "no good")),
    ("rename", lambda moor, _: moor.rename("s-1", None)),
    ("rename", lambda moor, _: moor.rename("s-1", "plan")),
    ("update", lambda moor, _: moor.update("s-1", phase="planning", version=99)),
    (
        "append",
        lambda moor, _: moor.append("s-1", ["Plan the change", {"role": "assistant", "content": "1\u20282"}]),
    ),
    ("append", lambda moor, _: moor.append("s-1", {"role": "nobody", "content": "x"})),
    ("append", lambda moor, _: moor.append("s-1", [])),
    ("append", lambda moor, _: moor.append("nobody", "x")),
    ("send", lambda moor, _: moor.send("s-1", "Go on", client_key="k-1")),
    ("send", lambda moor, _: moor.send("s-1", "Something else", client_key="k-1")),
    ("send", lambda moor, _: moor.send("s-1", "Go on", agent="nobody")),
    ("send", lambda moor, _: moor.send("s-1", "Go on", agent="echo-agent", parameters={"bad": float("nan")})),
    ("messages", lambda moor, _: moor.messages("s-1", last=2)),
    ("messages", lambda moor, _: moor.messages("s-1", after=0, limit=2)),
    ("messages", lambda moor, _: moor.messages("s-1", before="x")),
    ("log", lambda moor, _: moor.log("s-1", kinds=["message", "phase"], newest_first=True)),
    ("log", lambda moor, _: moor.log("s-1", kinds=["no kind"])),
    ("search", lambda moor, _: moor.search("change")),
    ("records.put", lambda moor, _: moor.records.put("s-1", "n", "a/b", {"deep": [None, 1.5]}, ttl=60)),
    ("records.put", lambda moor, _: moor.records.put("s-1", "n", "raw", b"\xff", version=0)),
    ("records.put", lambda moor, _: moor.records.put("s-1", "n", "raw", b"", version=7)),
    ("records.put", lambda moor, _: moor.records.put("nobody", "n", "k", 1)),
    ("records.get", lambda moor, _: moor.records.get("s-1", "n", "a/b")),
    ("records.get_many", lambda moor, _: moor.records.get_many("plan", "n", ["none", "raw"])),
    ("records.of_sessions", lambda moor, _: moor.records.of_sessions(["s-1", "nobody"], "n", "a/b")),
    ("records.of_sessions", lambda moor, _: moor.records.of_sessions(["s-1"], "", "a/b")),
    ("records.list", lambda moor, _: moor.records.list("s-1", "n", values=False, descending=True, limit=1)),
    ("records.write", lambda moor, _: moor.records.write("s-1", [Append(namespace="n", prefix="p/", value=b"1")])),
    ("records.write", lambda moor, _: moor.records.write("s-1", [], memory=[Put(namespace="n", key="m", value=b"1")])),
    ("records.delete", lambda moor, _: moor.records.delete("s-1", "n", "p/", prefix=True)),
    ("memory.put", lambda moor, _: moor.memory.put("n", "k", None)),
    ("memory.put", lambda moor, _: moor.memory.put("", "k", None)),
    ("memory.get", lambda moor, _: moor.memory.get("n", "k")),
    ("memory.get", lambda moor, _: moor.memory.get("n", "none")),
    ("memory.list", lambda moor, _: moor.memory.list("n", after="a")),
    ("memory.write", lambda moor, _: moor.memory.write([Touch(namespace="n", key="k", ttl=60)])),
    ("memory.delete", lambda moor, _: moor.memory.delete("n", "k")),
    ("compact", lambda moor, _: moor.compact("s-1", "We planned", upto=3)),
    ("compact", lambda moor, _: moor.compact("s-1", "Too far", upto=999)),
    ("events", lambda moor, _: each(moor.events("s-1", follow=False))),
    ("events", lambda moor, _: each(moor.events(after=3, follow=False))),
    ("events", lambda moor, _: each(moor.events("nobody", follow=False))),
    ("context.put", lambda moor, _: moor.context.put("s-1", "a/b", {"deep": [None, True, 1.5]}, ttl=60)),
    ("context.put", lambda moor, _: moor.context.put("s-1", "", "no key")),
    ("context.put", lambda moor, _: moor.context.put("s-1", "k", object())),
    ("context.merge", lambda moor, _: moor.context.merge("s-1", {"x": 1, "y": "two"})),
    ("context.merge", lambda moor, _: moor.context.merge("s-1", {"deep": 1}, key="a/b", ttl=60)),
    ("context.merge", lambda moor, _: moor.context.merge("s-1", {"deep": 1}, key="x")),
    ("context.get", lambda moor, _: moor.context.get("s-1")),
    ("context.get", lambda moor, _: moor.context.get("s-1", "a/b")),
    ("context.get", lambda moor, _: moor.context.get("s-1", "absent")),
    ("context.items", lambda moor, _: moor.context.items("s-1")),
    ("context.delete", lambda moor, _: moor.context.delete("s-1", "x", version=99)),
    ("context.delete", lambda moor, _: moor.context.delete("s-1", "x")),
    ("context.delete", lambda moor, _: moor.context.delete("s-1", "")),
    ("context.replace", lambda moor, _: moor.context.replace("s-1", {"z": []})),
    ("context.delete", lambda moor, _: moor.context.delete("s-1")),
    ("save_checkpoint", lambda moor, _: moor.save_checkpoint("s-1", {"step": 3})),
    ("save_checkpoint", lambda moor, _: moor.save_checkpoint("s-1", "no object")),  # type: ignore[arg-type]
    ("checkpoint", lambda moor, _: moor.checkpoint("s-1")),
    ("checkpoint", lambda moor, _: moor.checkpoint("s-1", 1)),
    ("checkpoints", lambda moor, _: moor.checkpoints("s-1")),
    ("should_resume", lambda moor, _: moor.should_resume("s-1")),
    ("should_resume", lambda moor, _: moor.should_resume(agent="planner", task_id="none")),
    ("delegate", lambda moor, _: moor.delegate("planner", session_id="s-1", delegation_id="d-1")),
    ("delegate", lambda moor, _: moor.delegate("newcomer", create=True, new_id="new", delegation_id="d-2")),
    ("delegations", lambda moor, _: moor.delegations(agent="planner")),
    ("resumable", lambda moor, _: moor.resumable()),
    ("suspend", lambda moor, _: moor.suspend("s-1", checkpoint={"step": 4}, reason="lunch")),
    ("resume", lambda moor, told: noted(told, moor.resume("s-1", holder="ann"))),
    ("resume", lambda moor, _: moor.resume("s-1", holder="bob")),
    ("update", lambda moor, told: moor.update("s-1", phase="executing", token=told["token"])),
    ("release", lambda moor, told: moor.release("s-1", token=told["token"])),
    ("release", lambda moor, _: moor.release("s-1", token="another")),
    ("fork", lambda moor, _: moor.fork("s-1", at=3, session_id="fork")),
    ("fork", lambda moor, _: moor.fork("s-1", at=999)),
    ("children", lambda moor, _: moor.children("s-1")),
    ("count_children", lambda moor, _: moor.count_children("s-1")),
    ("ancestors", lambda moor, _: moor.ancestors("child")),
    ("tree", lambda moor, _: moor.tree("s-1")),
    ("request_approval", lambda moor, told: asked(told, moor.request_approval("s-1", "Sure?", plan={"a": 1}))),
    ("request_approval", lambda moor, told: asked(told, moor.request_approval("fork", "And?", options=("a", "b")))),
    ("approvals", lambda moor, _: moor.approvals()),
    ("approvals", lambda moor, _: moor.approvals("s-1", pending_only=False)),
    ("approval", lambda moor, told: moor.approval(told["Sure?"])),
    ("approval", lambda moor, _: moor.approval("none")),
    ("decide", lambda moor, told: moor.decide(told["Sure?"], "maybe")),
    ("approve", lambda moor, told: moor.approve(told["Sure?"], note="fine", by="carl")),
    ("reject", lambda moor, told: moor.reject(told["Sure?"])),
    ("decide", lambda moor, told: moor.decide(told["And?"], "b")),
    ("runs", lambda moor, _: moor.runs(session="s-1")),
    ("get_run", lambda moor, _: moor.get_run("none")),
    ("result", lambda moor, _: moor.result("none")),
    ("stop", lambda moor, _: moor.stop("s-1")),
    ("stop_run", lambda moor, _: moor.stop_run("none")),
    ("retry", lambda moor, _: moor.retry("none")),
    ("inbox", lambda moor, _: moor.inbox()),
    ("send_again", lambda moor, _: moor.send_again("none")),
    ("launchers", lambda moor, _: moor.launchers()),
    ("drain_launcher", lambda moor, _: moor.drain_launcher("nobody")),
    ("export", lambda moor, _: each(moor.export("s-1", tree=True))),
    ("export", lambda moor, _: whole(moor.export("s-1", format="markdown"))),
    ("export", lambda moor, _: each(moor.export("s-1", format="tar"))),
    ("export", lambda moor, _: each(moor.export("nobody"))),
    ("import_", lambda moor, _: brought_back(moor)),
    ("import_", lambda moor, _: moor.import_(["{}"])),
    ("import_", lambda moor, _: moor.import_([])),
    ("stats", lambda moor, _: without_storage(moor.stats(by="agent", created_after=LONG_AGO))),
    ("check", lambda moor, _: moor.check()),
    ("agents", lambda moor, _: moor.agents()),
    ("agent", lambda moor, _: moor.agent("echo-agent")),
    ("agent", lambda moor, _: moor.agent("")),
    ("define_agent", lambda moor, _: moor.define_agent(CAT, replace=True)),
    ("define_agent", lambda moor, _: moor.define_agent("[agent]\nname = 1\n")),
    ("agent", lambda moor, _: moor.agent("cat")),
    ("remove_agent", lambda moor, _: moor.remove_agent("nobody")),
    ("keys", lambda moor, _: moor.keys()),
    ("tools", lambda moor, _: moor.tools()),
    ("call_tool", lambda moor, _: moor.call_tool("weather-tool", "get_forecast", {"location": "Rome", "days": 2})),
    ("call_tool", lambda moor, _: moor.call_tool("no-tool")),
    ("revoke_key", lambda moor, _: moor.revoke_key("")),
    ("revoke_key", lambda moor, _: moor.revoke_key("none")),
    ("create_key", lambda moor, _: moor.create_key(scopes=["no scope"])),
    ("finalize", lambda moor, _: moor.finalize("fork", "completed", summary="done")),
    ("finalize", lambda moor, _: moor.finalize("fork", "failed")),
    ("update", lambda moor, _: moor.update("fork", phase="planning")),
    ("cleanup", lambda moor, _: moor.cleanup(1, states=["completed"], dry_run=True)),
    ("delete", lambda moor, _: moor.delete("s-1", cascade=False)),
    ("delete", lambda moor, _: moor.delete("s-1", dry_run=True)),
    ("delete", lambda moor, _: moor.delete("s-1", reason="tested")),
    ("delete", lambda moor, _: moor.delete("s-1")),
    ("get", lambda moor, _: moor.get("child")),
    ("deleted", lambda moor, _: moor.deleted(reason="tested", since=LONG_AGO)),
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


async def brought_back(moor: Moorage) -> Any:
    lines = await each(moor.export("child"))
    await moor.delete("child")
    return [await moor.import_([line.replace('"child"', '"other"') for line in lines]), await moor.get("other")]


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


async def answered(moor: Moorage, call: Call, told: dict[str, str]) -> tuple[type, Any]:
    try:
        value = await call(moor, told)
    except MoorageError as error:
        return type(error), error.to_dict()
    return type(value), to_json(value)


async def test_every_call_gives_the_same_answer_embedded_and_remote(address: str, tmp_path: Path) -> None:
    here: tuple[Normal, dict[str, str]] = (Normal(), {})
    there: tuple[Normal, dict[str, str]] = (Normal(), {})
    async with (
        moorage.connect(f"sqlite:///{tmp_path / 'here.db'}", by="ann") as embedded,
        moorage.connect(address, by="ann") as remote,
    ):
        for number, (name, call) in enumerate(CALLS):
            kind, value = await answered(embedded, call, here[1])
            remote_kind, remote_value = await answered(remote, call, there[1])
            assert remote_kind is kind, (number, name, value, remote_value)
            assert there[0].of(remote_value) == here[0].of(value), (number, name)


def test_every_operation_is_compared() -> None:
    methods = [name for name, _ in inspect.getmembers(Moorage, inspect.isfunction) if not name.startswith("_")]
    assert {name for name, _ in CALLS} | NOT_CALLED >= {*methods, *(operation.name for operation in OPERATIONS)}
