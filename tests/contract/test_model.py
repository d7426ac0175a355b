"""The model agrees with itself: the machine runs, and nothing in it depends on anything but its steps."""

from __future__ import annotations

from hypothesis import settings

from moorage.stores.memory.store import MemoryStore
from moorage.testing.model import compared_with_memory
from moorage.testing.work_model import work_compared_with_memory

TestModelAgainstItself = compared_with_memory(MemoryStore).TestCase
TestModelAgainstItself.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)

TestWorkOfTheModelAgainstItself = work_compared_with_memory(MemoryStore).TestCase
TestWorkOfTheModelAgainstItself.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
