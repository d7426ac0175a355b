"""Errors of this door alone."""

from __future__ import annotations

from moorage.core.errors import AccessError, Conflict, InvalidRequest, MoorageError, NotFound, RequestTooLarge

# Where HTTP has another status than the family's.
STATUS = {"method_not_allowed": 405, "form_type": 415, "repeated_header": 400}


class NotLocal(AccessError):
    """A request with a Host that is not local."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"this server answers only requests to this machine, and Host is {host[:100]!r}; "
            "to serve others, make a key (`moorage keys create`)",
            header="Host",
        )


class ForeignOrigin(AccessError):
    """A request of a page that does not belong to this server."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            f"this server answers its own page and programs, and {header} is {value[:100]!r}; open the page of this "
            "server, or allow that origin in the configuration (server.allowed_origins)",
            header=header,
        )


class FormType(InvalidRequest):
    """A browser's request that changes something, with the content type of a form."""

    def __init__(self, given: str) -> None:
        super().__init__(
            f"a browser has to send this as application/json, and its Content-Type is {given[:100] or 'missing'!r}",
            content_type=given[:100],
        )


class RepeatedHeader(InvalidRequest):
    """A header that must not come twice."""

    def __init__(self, header: str) -> None:
        super().__init__(f"the header {header.title()} comes twice; send it once", header=header)


class NoSuchPath(NotFound):
    """No route has this path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path[:200]}; GET /openapi.json lists the routes", path=path[:200])


class WrongVerb(Conflict):
    """A route has this path, but not with this method."""

    code = "method_not_allowed"

    def __init__(self, verb: str, allowed: list[str]) -> None:
        super().__init__(f"{verb[:20]} is not possible here; use {', '.join(allowed)}", allowed=allowed)


class TooManyStreams(AccessError):
    """The maximum number of streams is open."""

    code = "rate_limited"

    def __init__(self, limit: int, whose: str) -> None:
        super().__init__(f"{limit:,} streams are open {whose}, and no more may be; close one first", limit=limit)


class TooDense(RequestTooLarge):
    """A packed body whose compression ratio is implausible for text."""

    def __init__(self, ratio: int) -> None:
        super(RequestTooLarge, self).__init__(
            f"the body unpacks to more than {ratio} times its size; send it plain, or less of it", limit=ratio
        )


class TooManyValues(RequestTooLarge):
    """A body of so many small values that reading it would block other requests."""

    def __init__(self, limit: int) -> None:
        super(RequestTooLarge, self).__init__(
            f"the body has more than {limit:,} values; send fewer at once, or bring sessions in with POST /import",
            limit=limit,
        )


class TooManyImports(AccessError):
    """The maximum number of imports is open."""

    code = "rate_limited"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} imports are open, and no more may be; try again when one has ended", limit=limit)


class Unexpected(MoorageError):
    """A bug in Moorage; the log has the details."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("something went wrong here; the server's log has it under this request's id")
