"""What only this door has to refuse."""

from __future__ import annotations

from moorage.core.errors import AccessError, Conflict, MoorageError, NotFound

STATUS = {"method_not_allowed": 405}  # where the family's is not the one that HTTP has for it


class NotLocal(AccessError):
    """A request that was not meant for this machine."""

    code = "not_local"

    def __init__(self, what: str, value: str) -> None:
        super().__init__(
            f"this server answers only requests to this machine, and {what} is {value[:100]!r}; "
            "to serve others, make a key (`moorage keys create`)",
            header=what,
        )


class NoSuchPath(NotFound):
    """Nothing answers at this path."""

    code = "no_such_path"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is nothing at {path[:200]}; GET /openapi.json lists what there is", path=path[:200])


class WrongVerb(Conflict):
    """Something answers at this path, but not to this."""

    code = "method_not_allowed"

    def __init__(self, verb: str, allowed: list[str]) -> None:
        super().__init__(f"{verb[:20]} is not possible here; use {', '.join(allowed)}", allowed=allowed)


class TooManyStreams(AccessError):
    """As many streams are open as may be."""

    code = "rate_limited"

    def __init__(self, limit: int, whose: str) -> None:
        super().__init__(f"{limit:,} streams are open {whose}, and no more may be; close one first", limit=limit)


class Unexpected(MoorageError):
    """A bug of ours; the log has the particulars."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("something went wrong here; the server's log has it under this request's id")
