"""A launcher's line to its server: one attempt for each request, because the launcher itself tries again."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from moorage.core.codec import encode
from moorage.core.errors import InvalidJson, RateLimited, StoreUnavailable
from moorage.remote.transport import Ask, Transport

T = TypeVar("T")


class Line:
    """Requests to one server."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self._transport = Transport(url, lambda: {"X-Moorage-Interface": "python"}, key=key, deadline=0.0)

    @property
    def url(self) -> str:
        """The server's address."""
        return self._transport.url

    async def post(self, path: str, body: Any, kind: type[T], *, wait: float = 0.0) -> T:
        """Send a value and get one back; `wait` is how long the server may take on purpose."""
        try:
            content = encode(body)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidJson("body", f"it cannot be sent ({error})") from None
        return await self._ask(Ask(verb="POST", path=path, body=content, wait=wait), kind)

    async def get(self, path: str, kind: type[T], query: dict[str, Any] | None = None, *, wait: float = 0.0) -> T:
        """Ask for a value."""
        pairs = [(name, str(value)) for name, value in (query or {}).items()]
        return await self._ask(Ask(verb="GET", path=path, query=pairs, wait=wait), kind)

    async def close(self) -> None:
        """Hang up."""
        await self._transport.close()

    async def _ask(self, ask: Ask, kind: type[T]) -> T:
        try:
            content = await self._transport.answer(ask)
        except RateLimited as error:  # it will pass, as a server that is away does
            raise StoreUnavailable(f"{self.url} asks for patience ({error})", store=self.url) from error
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self.url} gave an answer that makes no sense ({error})") from error
