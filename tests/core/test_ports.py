"""The port of a store stays small: roles that fit on a screen."""

from __future__ import annotations

import inspect

from moorage.ports import Store

ROLES = [each for each in Store.__mro__ if each.__module__ == Store.__module__]
MOST_IN_A_ROLE, MOST_IN_ALL = 16, 57


def own_methods(role: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(role, inspect.isfunction) if name in vars(role) and name[0] != "_"]


def test_no_role_of_a_store_is_large() -> None:
    assert {role.__name__: len(own_methods(role)) for role in ROLES if len(own_methods(role)) > MOST_IN_A_ROLE} == {}


def test_store_has_each_method_in_one_role_and_few_in_all() -> None:
    methods = [name for role in ROLES for name in own_methods(role)]
    assert len(methods) == len(set(methods))
    assert len(methods) <= MOST_IN_ALL, "a new method replaces one, or is a rule in service/ over Documents"
