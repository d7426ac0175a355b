"""LangGraph's own conformance suite for checkpointers, whole, on every store."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance is not installed")

from moorage.adapters.langgraph import MoorageSaver

BASE = ("put", "put_writes", "get_tuple", "list", "delete_thread")
OPTIONAL = ("delete_for_runs", "copy_thread", "prune")
Rule = Callable[[Any], Awaitable[None]]


def rules(*names: str) -> list[Rule]:
    found: list[Rule] = []
    for name in names:
        module = importlib.import_module(f"langgraph.checkpoint.conformance.spec.test_{name}")
        found += getattr(module, f"ALL_{name.upper()}_TESTS")
    return found


@pytest.fixture
async def saver(shared_url: str) -> AsyncIterator[MoorageSaver]:
    async with MoorageSaver(shared_url) as opened:
        yield opened


@pytest.mark.parametrize("rule", rules(*BASE, *OPTIONAL), ids=lambda rule: rule.__name__.removeprefix("test_"))
async def test_saver_conforms(saver: MoorageSaver, rule: Rule) -> None:
    await rule(saver)


def test_all_rules_are_there() -> None:
    assert len(rules(*BASE)) >= 58
    assert len(rules(*OPTIONAL)) >= 23
