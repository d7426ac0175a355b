"""`moorage.api` is the specification: both implementations have all of it, with its signatures and its docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from moorage.api import Context, Moorage
from moorage.client import LocalContext, LocalMoorage
from moorage.core.policy import Span
from moorage.doors.http.visit import Visit
from moorage.remote.client import RemoteContext, RemoteMoorage
from moorage.service import runs

IMPLEMENTATIONS = [(LocalMoorage, Moorage), (LocalContext, Context), (RemoteMoorage, Moorage), (RemoteContext, Context)]


def methods(specification: type) -> dict[str, Any]:
    return {name: each for name, each in vars(specification).items() if inspect.isfunction(each) and name[0] != "_"}


@pytest.mark.parametrize(("implementation", "specification"), IMPLEMENTATIONS)
def test_every_method_is_implemented_with_its_signature_and_docstring(
    implementation: type, specification: type
) -> None:
    for name, method in methods(specification).items():
        own = getattr(implementation, name)
        assert own is not method, f"{name} is not implemented"
        assert inspect.signature(own) == inspect.signature(method), name
        assert inspect.getdoc(own) == inspect.getdoc(method), name


@pytest.mark.parametrize("implementation", [LocalMoorage, RemoteMoorage, Visit])
def test_no_method_asks_for_other_parameters_than_the_specification_has(implementation: type) -> None:
    for name, method in methods(Moorage).items():
        own = inspect.signature(getattr(implementation, name), follow_wrapped=False).parameters
        known = inspect.signature(method).parameters
        named = {key for key, each in own.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}
        assert named <= known.keys(), name
        if named == own.keys():
            assert named == known.keys(), name


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("get_run", runs.get_run),
        ("stop", runs.stop_session),
        ("stop_run", runs.stop_run),
        ("inbox", runs.inbox),
        ("send_again", runs.send_again),
    ],
)
def test_service_function_that_is_loaded_late_takes_the_same(name: str, service: Callable[..., Any]) -> None:
    """Compare those that type checkers cannot: they are named by a text."""
    own, theirs = (list(inspect.signature(each).parameters.values()) for each in (getattr(Moorage, name), service))
    assert [(each.name, each.kind, each.default) for each in own[1:]] == [
        (each.name, each.kind, each.default) for each in theirs[2:]
    ]


def test_statistics_take_the_fields_of_a_span_and_how_to_group() -> None:
    assert list(inspect.signature(Moorage.stats).parameters)[1:] == [*Span.__struct_fields__, "by"]
