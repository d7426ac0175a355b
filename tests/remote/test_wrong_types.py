"""A value of the wrong type is refused by a named error, embedded and remote: no call raises another exception."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.api import Context, Moorage
from moorage.core.errors import MoorageError
from moorage.records import Memory, Records

WRONG: tuple[Any, ...] = (None, 5, "", "\ud800", [], [5], {}, {1: 2}, object(), float("nan"), True, b"x", 10**40)
NOT_CALLED = {"close", "delete", "create_key", "import_files"}  # those end what the others need; the last is below
HARMLESS: dict[str, dict[str, Any]] = {  # options that keep a call short and change nothing
    "run": {"timeout": 0.01, "mode": "async_poll"},
    "events": {"follow": False},
    "cleanup": {"dry_run": True},
    "define_agent": {"dry_run": True},
}
LISTENERS = {"on_event", "progress", "count_tokens", "follow"}


def methods_of(moor: Moorage) -> Iterator[tuple[Any, str, inspect.Signature]]:
    """Yield each method of the interface with the object it belongs to."""
    for owner, kind in ((moor, Moorage), (moor.context, Context), (moor.records, Records), (moor.memory, Memory)):
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in NOT_CALLED:
                yield owner, name, inspect.signature(function)


async def given_for(moor: Moorage) -> dict[str, Any]:
    """Return arguments with which every method can be called."""
    session = (await moor.create("echo-agent")).session_id
    waiting = (await moor.create("echo-agent")).session_id
    return {
        "ref": session,
        "text": "x",
        "agent": "echo-agent",
        "prompt": "x",
        "messages": "x",
        "content": "x",
        "run_id": "none",
        "item_id": "none",
        "key_id": "none",
        "launcher_id": "none",
        "session_ids": [session],
        "approval_id": (await moor.request_approval(waiting, "Go on?")).approval_id,
        "decision": "approve",
        "name": None,
        "question": "Go on?",
        "checkpoint": {},
        "definition": "",
        "tool": "none",
        "lines": [],
        "namespace": "n",
        "key": "k",
        "keys": ["k"],
        "value": 1,
        "values": {},
        "writes": [],
        "prefix": "",
    }


async def exhausted(answer: Any) -> None:
    if inspect.isasyncgen(answer) or hasattr(answer, "__aiter__"):
        async for _ in answer:
            pass
    elif inspect.isawaitable(answer):
        await answer


async def refusals(moor: Moorage) -> tuple[int, list[str]]:
    """Call everything with one wrong argument after the other; return the number of calls and what went wrong."""
    given, calls, wrong = await given_for(moor), 0, list[str]()
    for owner, name, signature in methods_of(moor):
        parameters = [each for each in list(signature.parameters.values())[1:] if each.kind is not each.VAR_KEYWORD]
        needed = {each.name: given[each.name] for each in parameters if each.default is each.empty}
        for parameter in (each.name for each in parameters if each.name not in LISTENERS):
            for value in WRONG:
                calls += 1
                try:
                    async with asyncio.timeout(10):
                        method: Callable[..., Any] = getattr(owner, name)
                        await exhausted(method(**{**HARMLESS.get(name, {}), **needed, parameter: value}))
                except MoorageError:
                    pass
                except Exception as error:  # that there is none is what the test shows
                    wrong.append(f"{type(owner).__name__}.{name}({parameter}={value!r}): {error!r}")
    return calls, wrong


@pytest.mark.parametrize("place", ["embedded", "remote"])
async def test_values_of_wrong_types_are_refused_by_named_errors(place: str, address: str, tmp_path: Path) -> None:
    url = address if place == "remote" else f"sqlite:///{tmp_path / 'here.db'}"
    async with moorage.connect(url) as moor:
        calls, wrong = await refusals(moor)
        assert (await moor.search("x")) is not None  # it still works
    assert wrong == []
    assert calls > 2000


@pytest.mark.parametrize("paths", [None, 5, "chat.json", [5], ["a\0b"]])
async def test_paths_that_are_none_are_refused(paths: Any, tmp_path: Path) -> None:
    async with moorage.connect(f"sqlite:///{tmp_path / 'here.db'}") as moor:
        with pytest.raises(MoorageError, match=r"paths|cannot be read"):
            await moor.import_files(paths)
