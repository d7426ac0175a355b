"""The model keeps the contract, and agrees with itself: nothing in the machine depends on anything but its steps."""

from __future__ import annotations

import pytest
from hypothesis import settings

from moorage.ports import Store
from moorage.testing.contract import StoreContract
from moorage.testing.model import compared_with_model
from moorage.testing.model_store import ModelStore
from moorage.testing.work_model import work_compared_with_model


class TestModel(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return ModelStore()


def test_no_rule_of_the_contract_hides_another() -> None:
    rules = [name for part in StoreContract.__mro__ for name in vars(part) if name.startswith("test_")]

    assert sorted(rules) == sorted(set(rules))
    assert len(rules) > 200


TestModelAgainstItself = compared_with_model(ModelStore).TestCase
TestModelAgainstItself.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)

TestWorkOfTheModelAgainstItself = work_compared_with_model(ModelStore).TestCase
TestWorkOfTheModelAgainstItself.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
