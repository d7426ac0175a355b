"""`moorage.sync` has the methods of `moorage.api`, with their parameters, answers and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import assert_type

import pytest

import moorage
from moorage import api, config, records, sync
from moorage.core.query import Page
from moorage.core.session import Hold, Session
from moorage.core.turn import Launcher
from moorage.service.inline import drive
from moorage.service.launchers import save_launcher


@pytest.fixture
def moor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sync.Moorage]:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "home"))
    with sync.connect("memory://") as moor:
        moor.create(agent="a", name="one", parent=None)
        moor.append("one", "Hello")
        moor.save_checkpoint("one", {"step": 1})
        yield moor


def public_methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}


def test_every_method_has_the_parameters_and_the_docstring_of_the_asynchronous_one(moor: sync.Moorage) -> None:
    doors = ((moor.context, api.Context), (moor.records, records.Records), (moor.memory, records.Memory))
    for ours, theirs in ((moor, api.Moorage), *doors):
        for name in public_methods(theirs) - {"close"}:
            method, original = getattr(ours, name), getattr(theirs, name)
            assert not inspect.iscoroutinefunction(method), name
            parameters = list(inspect.signature(original).parameters.values())[1:]  # without self
            assert list(inspect.signature(method).parameters.values()) == parameters, name
            assert inspect.getdoc(method) == inspect.getdoc(getattr(type(ours), name)) == inspect.getdoc(original), name


def test_type_checkers_know_the_answers(moor: sync.Moorage) -> None:
    assert_type(moorage.sync.connect("memory://").create(agent="x", parent=None).id, str)
    assert_type(moor.get("one"), Session)
    assert_type(moor.list(), Page[Session])
    assert_type(next(moor.export("one")), str)
    assert_type(moor.context.put("one", "a", 1).version, int)
    assert_type(moor.resume("one").hold, Hold)
    assert_type(moor.resume("one", hold=True).hold, Hold)
    assert_type(moor.resume("one", hold=False).hold, Hold | None)


def _greeter(name: str) -> str:
    """An agent to define."""
    return f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["cat"]\n'


def _asked(moor: sync.Moorage) -> str:
    """Ask for a run that no launcher takes, and return its id."""
    return moor.run("echo-agent", "hello", mode="async_poll").run.run_id


def _launcher(moor: sync.Moorage) -> str:
    """A launcher that works on the same store."""
    now, store = datetime.now(UTC), moor._target.opened.deps.store  # no door makes a launcher
    drive(save_launcher(store, Launcher(launcher_id="l-1", name="one", registered_at=now, seen_at=now)))
    return moor.launchers().items[0].launcher_id


def _dead_letter(moor: sync.Moorage) -> str:
    """Make a dead letter: ask an agent that cannot be started three times."""
    folder = Path(config.home()) / "agents"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text('[agent]\nname = "broken"\nkind = "command"\ncommand = ["no-such-program"]\n')
    assert moor.run("broken", "hello", parent=None).status == "failed"
    return moor.inbox(dead_letters=True).items[0].item_id


def _failed(moor: sync.Moorage) -> str:
    """A run that failed."""
    _dead_letter(moor)
    return moor.runs(state="failed").items[0].run_id


# A call of each method, so that none is forgotten.
CALLS: dict[str, Callable[[sync.Moorage], object]] = {
    "ancestors": lambda moor: moor.ancestors("one"),
    "append": lambda moor: moor.append("one", "text"),
    "agent": lambda moor: moor.agent("echo-agent"),
    "agents": lambda moor: moor.agents(),
    "approval": lambda moor: moor.approval(moor.request_approval("one", "Go?").approval_id),
    "approvals": lambda moor: moor.approvals(),
    "approve": lambda moor: moor.approve(moor.request_approval("one", "Go?").approval_id),
    "check": lambda moor: moor.check(),
    "call_tool": lambda moor: moor.call_tool("weather-tool", parameters={"location": "Rome"}),
    "checkpoint": lambda moor: moor.checkpoint("one"),
    "checkpoints": lambda moor: moor.checkpoints("one"),
    "children": lambda moor: moor.children("one"),
    "cleanup": lambda moor: moor.cleanup(24),
    "close": lambda moor: moor.close(),
    "compact": lambda moor: moor.compact("one", "They said hello"),
    "count_children": lambda moor: moor.count_children("one"),
    "create": lambda moor: moor.create(agent="b", parent=None),
    "create_key": lambda moor: moor.create_key(),
    "keys": lambda moor: moor.keys(),
    "revoke_key": lambda moor: moor.revoke_key(moor.create_key().key.key_id),
    "decide": lambda moor: moor.decide(moor.request_approval("one", "Go?").approval_id, "approve"),
    "define_agent": lambda moor: moor.define_agent(_greeter("greeter")),
    "delegate": lambda moor: moor.delegate("agent"),
    "delegations": lambda moor: moor.delegations(),
    "delete": lambda moor: moor.delete("one"),
    "deleted": lambda moor: moor.deleted(),
    "events": lambda moor: next(moor.events("one", follow=False)),
    "drain_launcher": lambda moor: moor.drain_launcher(_launcher(moor)),
    "export": lambda moor: next(moor.export("one")),
    "finalize": lambda moor: moor.finalize("one"),
    "fork": lambda moor: moor.fork("one"),
    "get": lambda moor: moor.get("one"),
    "get_run": lambda moor: moor.get_run(_asked(moor)),
    "import_": lambda moor: moor.import_(list(moor.export("one"))),
    "import_files": lambda moor: moor.import_files([Path(__file__).parent / "data" / "state"]),
    "inbox": lambda moor: moor.inbox("one"),
    "launchers": lambda moor: moor.launchers(),
    "list": lambda moor: moor.list(),
    "log": lambda moor: moor.log("one"),
    "messages": lambda moor: moor.messages("one", last=1),
    "reject": lambda moor: moor.reject(moor.request_approval("one", "Go?").approval_id),
    "release": lambda moor: moor.release("one", token=str(moor.resume("one").hold.token)),
    "remove_agent": lambda moor: moor.remove_agent(moor.define_agent(_greeter("other"))["name"]),
    "request_approval": lambda moor: moor.request_approval("one", "Go?"),
    "resolve": lambda moor: moor.resolve("one"),
    "result": lambda moor: moor.result(_asked(moor)),
    "resumable": lambda moor: moor.resumable(),
    "resume": lambda moor: moor.resume("one"),
    "retry": lambda moor: moor.retry(_failed(moor)),
    "run": lambda moor: moor.run("echo-agent", "hello"),
    "runs": lambda moor: moor.runs(),
    "save_checkpoint": lambda moor: moor.save_checkpoint("one", {"step": 2}),
    "search": lambda moor: moor.search("hello"),
    "send": lambda moor: moor.send("one", "text"),
    "send_again": lambda moor: moor.send_again(_dead_letter(moor)),
    "should_resume": lambda moor: moor.should_resume("one"),
    "rename": lambda moor: moor.rename("one", "other"),
    "stats": lambda moor: moor.stats(by="agent"),
    "stop": lambda moor: moor.stop("one"),
    "stop_run": lambda moor: moor.stop_run(_asked(moor)),
    "suspend": lambda moor: moor.suspend("one"),
    "tools": lambda moor: moor.tools(),
    "tree": lambda moor: moor.tree("one"),
    "update": lambda moor: moor.update("one", phase="planning"),
}
CONTEXT_CALLS: dict[str, Callable[[sync.Moorage], object]] = {
    "delete": lambda moor: moor.context.delete("one"),
    "get": lambda moor: moor.context.get("one"),
    "items": lambda moor: moor.context.items("one"),
    "merge": lambda moor: moor.context.merge("one", {"a": 1}),
    "put": lambda moor: moor.context.put("one", "a", 1),
    "replace": lambda moor: moor.context.replace("one", {"a": 1}),
}


def test_every_method_is_called_below() -> None:
    assert set(CALLS) == public_methods(api.Moorage)
    assert set(CONTEXT_CALLS) == public_methods(api.Context)


@pytest.mark.parametrize("call", [*CALLS.values(), *CONTEXT_CALLS.values()], ids=[*CALLS, *CONTEXT_CALLS])
def test_every_method_answers_at_once(moor: sync.Moorage, call: Callable[[sync.Moorage], object]) -> None:
    answer = call(moor)
    assert not inspect.isawaitable(answer)
    assert not inspect.isasyncgen(answer)


def test_there_is_nothing_besides(moor: sync.Moorage) -> None:
    with pytest.raises(AttributeError):
        moor.no_such_method  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        moor.context.no_such_method  # type: ignore[attr-defined]  # noqa: B018
