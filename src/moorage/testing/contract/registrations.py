"""Registrations: endpoints added while servers run, until their leases end."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from moorage.core.agent import AgentRole, ToolOperation
from moorage.core.registration import Registration
from moorage.ports import Store
from moorage.service.agents import live_registrations, save_registration
from moorage.testing.builders import *


def a_registration(name: str, endpoint: str, until: datetime, **more: Any) -> Registration:
    return Registration(name=name, role=more.pop("role", AgentRole.AGENT), endpoint=endpoint, until=until, **more)


class RegistrationRules:
    """Rules of registrations, on every store."""

    async def test_a_registration_is_there_until_its_lease_ends(self, store: Store) -> None:
        assert await live_registrations(store, NOON) == []
        operations = {"add": ToolOperation(description="adds", parameters={"type": "object"})}
        one = a_registration("guest", "b:2", after(10), description="visits")
        tool = a_registration("sums", "a:1", after(20), role=AgentRole.TOOL, operations=operations)
        for each in (tool, one):
            await save_registration(store, each)
        assert await live_registrations(store, after(9)) == [one, tool]
        assert await live_registrations(store, after(10)) == [tool]

    async def test_each_endpoint_of_a_name_is_renewed_on_its_own(self, store: Store) -> None:
        first, second = a_registration("guest", "a:1", after(10)), a_registration("guest", "b:2", after(10))
        for each in (second, first):
            await save_registration(store, each)
        renewed = a_registration("guest", "a:1", after(30), description="still here")
        await save_registration(store, renewed)
        assert await live_registrations(store, after(6)) == [renewed, second]
        assert await live_registrations(store, after(11)) == [renewed]

    async def test_one_that_has_ended_can_begin_again(self, store: Store) -> None:
        for name in ("guest", "other"):
            await save_registration(store, a_registration(name, "a:1", after(10)))
        again = a_registration("guest", "a:1", after(40))
        await save_registration(store, again)
        assert await store.purge(after(20), 9) == 1
        assert await live_registrations(store, NOON) == [again]
