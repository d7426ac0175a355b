"""A server on either store, and clients of its GraphQL door."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.doors.graphql.client import Client
from tests.doors.http.conftest import outside_any_session, served, url
from tests.doors.http.server import Served

__all__ = ["gql", "outside_any_session", "served", "url"]


@pytest.fixture
async def gql(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url) as client:
        yield client
