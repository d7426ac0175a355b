"""The fuzz tests' own promises: an input that fails is kept, and a loop that computes for too long is noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz import inputs
from tests.fuzz.inputs import CORPUS, kept, no_stalls, tried


def test_input_that_fails_is_kept_and_tried_first_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "CORPUS", tmp_path)
    monkeypatch.setattr(inputs, "count", lambda *_: None)
    (tmp_path / "reader").mkdir()
    with tried("reader", b"good"):
        pass
    assert kept("reader") == []
    for bad in (b"long bad input", b"bad"):
        with pytest.raises(ValueError, match="bad"), tried("reader", bad):
            raise ValueError(bad)
    assert kept("reader") == [b"bad"]


def test_every_reader_has_a_corpus() -> None:
    assert all(kept(folder.name) for folder in CORPUS.iterdir())


async def test_loop_that_computes_for_too_long_is_noticed() -> None:
    async def compute() -> None:
        async with no_stalls():
            until = time.thread_time() + 0.15
            while time.thread_time() < until:
                pass

    with pytest.raises(AssertionError, match="computed for"):
        await compute()
