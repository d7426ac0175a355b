"""The line to a server: JSON over HTTP, with one key, and errors as the errors they are."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx2
import msgspec

from holdfast.core.codec import encode
from holdfast.core.errors import HoldfastError, InvalidJson, StoreUnavailable, error_from

T = TypeVar("T")

PATIENCE = 10.0  # seconds for an answer that does not wait for anything
CONNECT = 5.0


class Line:
    """Requests to one server."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"content-type": "application/json", "x-holdfast-interface": "python"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._client = httpx2.AsyncClient(headers=headers, limits=httpx2.Limits(max_connections=100))

    async def post(self, path: str, body: Any, kind: type[T], *, wait: float = 0.0) -> T:
        """Send a value and get one back; `wait` is how long the server may take on purpose."""
        try:
            content = encode(body)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidJson("body", f"it cannot be sent ({error})") from None
        return await self._ask("POST", path, kind, wait, content=content)

    async def get(self, path: str, kind: type[T], query: dict[str, Any] | None = None, *, wait: float = 0.0) -> T:
        """Ask for a value."""
        return await self._ask("GET", path, kind, wait, params=query)

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def _ask(self, verb: str, path: str, kind: type[T], wait: float, **request: Any) -> T:
        timeout = httpx2.Timeout(PATIENCE + wait, connect=CONNECT)
        try:
            response = await self._client.request(verb, f"{self.url}{path}", timeout=timeout, **request)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            why = str(error) or type(error).__name__
            raise StoreUnavailable(f"{self.url} cannot be reached ({why})", store=self.url) from error
        if response.status_code >= 300:
            raise error_of(response.status_code, response.content, self.url)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self.url} gave an answer that makes no sense ({error})") from error


_OURS = frozenset({"type", "title", "status", "code", "detail", "request_id"})
_MAY_PASS = frozenset({408, 425, 429})


def error_of(status: int, body: bytes, where: str) -> HoldfastError:
    """The error that an answer tells of. What may pass, or is no answer of ours, is StoreUnavailable."""
    if status >= 500 or status in _MAY_PASS:
        return StoreUnavailable(f"{where} answered with status {status}; try again", store=where)
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
        facts = {name: value for name, value in told.items() if name not in _OURS}
        return error_from(str(told["code"]), str(told["detail"]), facts, status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return StoreUnavailable(f"{where} answered with status {status}; is that a Holdfast server?", store=where)
