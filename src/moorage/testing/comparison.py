"""The comparison of two stores: the same calls must get the same answers.

The rules of the random tests are in `model` and `work_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from hypothesis.stateful import RuleBasedStateMachine

from moorage.core.errors import MoorageError
from moorage.core.session import Needs, Stamp
from moorage.ports import Decision, Store
from moorage.testing.builders import OTHER, OWNER, FakeClock, a_stamp, copied, drive, dump
from moorage.testing.model_store import ModelStore

Runner = Callable[[Coroutine[Any, Any, Any]], Any]
ComparedCall = Callable[[Store], Coroutine[Any, Any, Any]]
CallOutcome = tuple[bool, Any]  # whether it succeeded, and the answer or the error

Place = tuple[str, str]  # an owner, and a reference to a session


def somewhere(place: Place, chance: int) -> Place:
    """Mostly return the session itself; sometimes a name, an unknown id, or another owner's view of it."""
    owner, session_id = place
    odd = {1: (owner, "planner"), 2: (owner, "builder"), 3: (owner, "nobody"), 4: (OTHER, session_id)}
    return odd.get(chance, place)


class Comparison(RuleBasedStateMachine):
    """Makes the same calls to two stores and compares the answers."""

    def make_store(self) -> Store:
        """Return a new, empty store to compare with the model."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of either store to its end."""
        return drive(coroutine)

    def __init__(self) -> None:
        super().__init__()
        self.model, self.other = ModelStore(), self.make_store()
        self.clock = FakeClock()
        self.made = 0

    def teardown(self) -> None:
        """Check that everything readable is the same in both."""
        try:
            self.both(lambda store: dump(store, OWNER, self.clock.now()))
            self.both(lambda store: dump(store, OTHER, self.clock.now()))
            copy = self.run(copied(self.other, ModelStore()))
            self.model = copy  # a copy, of whatever state, has to be equal
            self.both(lambda store: dump(store, OWNER, self.clock.now()))
            self.both(lambda store: dump(store, OTHER, self.clock.now()))
            assert self.run(self.other.check()) == []
        finally:
            self.run(self.other.close())

    def both(self, call: ComparedCall) -> CallOutcome:
        """Call both stores, assert equal answers and return the answer."""
        expected, actual = self._answer(call, self.model), self._answer(call, self.other)
        assert actual == expected
        return expected

    def _answer(self, call: ComparedCall, store: Store) -> CallOutcome:
        try:
            return True, msgspec.to_builtins(self.run(call(store)))
        except MoorageError as error:
            return False, error.to_dict()

    def change(self, where: Place, decide: Decision, *, expected: int | None = None, **needs: Any) -> CallOutcome:
        """Apply a decision to a session in both."""
        return self.both(lambda store: store.apply(*where, decide, needs=Needs(**needs), expected=expected))

    def stamp(self) -> Stamp:
        """Return a stamp of now."""
        return a_stamp(self.clock.now())

    def fresh(self, what: str) -> str:
        """Return a new id."""
        self.made += 1
        return f"{what}-{self.made}"
