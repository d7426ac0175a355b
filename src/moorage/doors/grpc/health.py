"""Health by gRPC's own protocol, as it is: a server whose store does not answer is not well."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse

from moorage.core.errors import StoreError
from moorage.doors.http.health import Heart, check_ready
from moorage.service.deps import Deps

LOOK_EVERY = 1.0  # seconds, for those who watch


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # the library has no types
    """Looks at the store whenever somebody asks, and every second for those who watch."""

    def __init__(self, deps: Deps, services: tuple[str, ...], heart: Heart | None = None) -> None:
        super().__init__()
        self._deps, self._heart, self._services = deps, heart, ("", *services)

    async def Check(self, request: Any, context: Any) -> Any:
        """How a service does now."""
        await self.look()
        return await super().Check(request, context)

    async def look(self) -> None:
        """Ask the store, and remember what came of it."""
        status = HealthCheckResponse.SERVING if await self._is_ready() else HealthCheckResponse.NOT_SERVING
        for service in self._services:
            if self._server_status.get(service) != status:
                await self.set(service, status)

    async def keep_looking(self, stop: asyncio.Event) -> None:
        """Look again and again, until told to stop."""
        while not stop.is_set():
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await stop.wait()
        await self.enter_graceful_shutdown()

    async def _is_ready(self) -> bool:
        try:
            await check_ready(self._deps, self._heart)
        except StoreError:
            return False
        return True
