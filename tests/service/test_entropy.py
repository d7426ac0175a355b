"""Chance drawn in bulk: never the same bytes twice, in no thread and in no process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from moorage.config import DrawnEntropy


def test_it_gives_as_many_bytes_as_were_asked_for_however_many() -> None:
    chance = DrawnEntropy()
    sizes = [0, 1, 10, 16, DrawnEntropy.AT_ONCE, DrawnEntropy.AT_ONCE + 1, 10] * 20
    assert [len(chance(size)) for size in sizes] == sizes


def test_threads_get_different_random_bytes() -> None:
    chance = DrawnEntropy()
    with ThreadPoolExecutor(8) as threads:
        drawn = list(threads.map(chance, [16] * 20_000))
    assert len(set(drawn)) == len(drawn)


def test_a_forked_child_does_not_repeat_its_parent() -> None:
    chance = DrawnEntropy()
    chance(16)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, chance(16))
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reading, 16)
    os.close(reading)
    os.close(writing)
    assert len(told) == 16
    assert told != chance(16)
