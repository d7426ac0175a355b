"""`sync.pyi` says what `holdfast.sync` really offers."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type

import pytest

import holdfast
from holdfast import client, config, sync
from holdfast.core.query import Page
from holdfast.core.session import Session
from holdfast.core.turn import Launcher
from holdfast.service.inline import drive

SCRIPT = Path(__file__).parents[1] / "scripts" / "sync_stub.py"


@pytest.fixture
def generator() -> ModuleType:
    """The script that writes the stub."""
    spec = importlib.util.spec_from_file_location("sync_stub", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sync.Holdfast]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with sync.connect("memory://") as hf:
        hf.create(agent="a", name="one", parent=None)
        hf.append("one", "Hello")
        hf.save_checkpoint("one", {"step": 1})
        yield hf


def public_methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}


def test_the_stub_is_fresh(generator: ModuleType) -> None:
    assert generator.stub() == Path(sync.__file__).with_suffix(".pyi").read_text(), "run scripts/sync_stub.py"


def test_the_stub_has_every_method(generator: ModuleType) -> None:
    names: dict[str, Any] = {}
    exec(compile("from __future__ import annotations\n" + generator.stub(), "sync.pyi", "exec"), names)
    for name in ("Holdfast", "ContextDoor"):
        there, here = getattr(client, name), names[name]
        assert public_methods(here) == public_methods(there)
        for method in public_methods(there):
            ours, theirs = getattr(here, method), getattr(there, method)
            assert not inspect.iscoroutinefunction(ours)
            assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters
            assert inspect.getdoc(ours) == inspect.getdoc(theirs)


def test_type_checkers_know_the_answers(hf: sync.Holdfast) -> None:
    assert_type(holdfast.sync.connect("memory://").create(agent="x", parent=None).id, str)
    assert_type(hf.get("one"), Session)
    assert_type(hf.list(), Page[Session])
    assert_type(next(hf.export("one")), str)
    assert_type(hf.context.put("one", "a", 1).version, int)


def _greeter(name: str) -> str:
    """An agent to define."""
    return f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["cat"]\n'


def _asked(hf: sync.Holdfast) -> str:
    """A run that nobody has taken yet."""
    return hf.run("echo-agent", "hello", mode="async_poll").run.run_id


def _launcher(hf: sync.Holdfast) -> str:
    """A launcher that works on the same store."""
    now, store = datetime.now(UTC), hf._target._deps.store  # no door makes a launcher
    drive(store.save_launcher(Launcher(launcher_id="l-1", name="one", registered_at=now, seen_at=now)))
    return hf.launchers().items[0].launcher_id


def _set_aside(hf: sync.Holdfast) -> str:
    """What an agent that cannot be started was told three times."""
    folder = Path(config.home()) / "agents"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text('[agent]\nname = "broken"\nkind = "command"\ncommand = ["no-such-program"]\n')
    assert hf.run("broken", "hello", parent=None).status == "failed"
    return hf.inbox(set_aside=True).items[0].item_id


# A call of each method, so that none is forgotten.
CALLS: dict[str, Callable[[sync.Holdfast], object]] = {
    "ancestors": lambda hf: hf.ancestors("one"),
    "append": lambda hf: hf.append("one", "text"),
    "agent": lambda hf: hf.agent("echo-agent"),
    "agents": lambda hf: hf.agents(),
    "approval": lambda hf: hf.approval(hf.request_approval("one", "Go?").approval_id),
    "approvals": lambda hf: hf.approvals(),
    "approve": lambda hf: hf.approve(hf.request_approval("one", "Go?").approval_id),
    "check": lambda hf: hf.check(),
    "call_tool": lambda hf: hf.call_tool("weather-tool", parameters={"location": "Rome"}),
    "checkpoint": lambda hf: hf.checkpoint("one"),
    "checkpoints": lambda hf: hf.checkpoints("one"),
    "children": lambda hf: hf.children("one"),
    "cleanup": lambda hf: hf.cleanup(24),
    "close": lambda hf: hf.close(),
    "compact": lambda hf: hf.compact("one", "They said hello"),
    "count_children": lambda hf: hf.count_children("one"),
    "create": lambda hf: hf.create(agent="b", parent=None),
    "create_key": lambda hf: hf.create_key(),
    "keys": lambda hf: hf.keys(),
    "revoke_key": lambda hf: hf.revoke_key(hf.create_key().key.key_id),
    "decide": lambda hf: hf.decide(hf.request_approval("one", "Go?").approval_id, "approve"),
    "define_agent": lambda hf: hf.define_agent(_greeter("greeter")),
    "delegate": lambda hf: hf.delegate("agent"),
    "delegations": lambda hf: hf.delegations(),
    "delete": lambda hf: hf.delete("one"),
    "deleted": lambda hf: hf.deleted(),
    "events": lambda hf: next(hf.events("one", follow=False)),
    "drain_launcher": lambda hf: hf.drain_launcher(_launcher(hf)),
    "export": lambda hf: next(hf.export("one")),
    "finalize": lambda hf: hf.finalize("one"),
    "fork": lambda hf: hf.fork("one"),
    "get": lambda hf: hf.get("one"),
    "get_run": lambda hf: hf.get_run(_asked(hf)),
    "import_": lambda hf: hf.import_(list(hf.export("one"))),
    "import_files": lambda hf: hf.import_files([Path(__file__).parent / "data" / "state"]),
    "inbox": lambda hf: hf.inbox("one"),
    "launchers": lambda hf: hf.launchers(),
    "list": lambda hf: hf.list(),
    "log": lambda hf: hf.log("one"),
    "messages": lambda hf: hf.messages("one", last=1),
    "reject": lambda hf: hf.reject(hf.request_approval("one", "Go?").approval_id),
    "release": lambda hf: hf.release("one", token=str(hf.resume("one").hold.token)),
    "remove_agent": lambda hf: hf.remove_agent(hf.define_agent(_greeter("other"))["name"]),
    "request_approval": lambda hf: hf.request_approval("one", "Go?"),
    "resolve": lambda hf: hf.resolve("one"),
    "result": lambda hf: hf.result(_asked(hf)),
    "resumable": lambda hf: hf.resumable(),
    "resume": lambda hf: hf.resume("one"),
    "run": lambda hf: hf.run("echo-agent", "hello"),
    "runs": lambda hf: hf.runs(),
    "save_checkpoint": lambda hf: hf.save_checkpoint("one", {"step": 2}),
    "search": lambda hf: hf.search("hello"),
    "send": lambda hf: hf.send("one", "text"),
    "send_again": lambda hf: hf.send_again(_set_aside(hf)),
    "should_resume": lambda hf: hf.should_resume("one"),
    "stats": lambda hf: hf.stats(by="agent"),
    "stop": lambda hf: hf.stop("one"),
    "stop_run": lambda hf: hf.stop_run(_asked(hf)),
    "suspend": lambda hf: hf.suspend("one"),
    "tools": lambda hf: hf.tools(),
    "tree": lambda hf: hf.tree("one"),
    "update": lambda hf: hf.update("one", phase="planning"),
}
CONTEXT_CALLS: dict[str, Callable[[sync.Holdfast], object]] = {
    "delete": lambda hf: hf.context.delete("one"),
    "get": lambda hf: hf.context.get("one"),
    "items": lambda hf: hf.context.items("one"),
    "merge": lambda hf: hf.context.merge("one", {"a": 1}),
    "put": lambda hf: hf.context.put("one", "a", 1),
    "replace": lambda hf: hf.context.replace("one", {"a": 1}),
}


def test_every_method_is_called_below() -> None:
    assert set(CALLS) == public_methods(client.Holdfast)
    assert set(CONTEXT_CALLS) == public_methods(client.ContextDoor)


@pytest.mark.parametrize("call", [*CALLS.values(), *CONTEXT_CALLS.values()], ids=[*CALLS, *CONTEXT_CALLS])
def test_every_method_answers_at_once(hf: sync.Holdfast, call: Callable[[sync.Holdfast], object]) -> None:
    answer = call(hf)
    assert not inspect.isawaitable(answer)
    assert not inspect.isasyncgen(answer)


def test_there_is_nothing_besides(hf: sync.Holdfast) -> None:
    with pytest.raises(AttributeError):
        hf.no_such_method  # noqa: B018
    with pytest.raises(AttributeError):
        hf.context.no_such_method  # type: ignore[attr-defined]  # noqa: B018
