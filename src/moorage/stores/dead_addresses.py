"""Detect addresses without a server, from one attempt to connect.

A server that was reached before is restarting, so callers wait for it. At an address that was never reached there is
probably no server at all, and waiting would only delay the error.
"""

from __future__ import annotations

import errno
import re
from socket import gaierror

_NUMBER = re.compile(r"\[Errno (\d+)\]")


def is_dead(error: BaseException | None) -> bool:
    """Return whether an attempt to connect was refused, or failed because a name or a socket's file does not exist."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, (ConnectionRefusedError, FileNotFoundError, gaierror)) or _is_refused_everywhere(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _is_refused_everywhere(error: BaseException) -> bool:
    """Return whether all addresses of a name refused: asyncio puts their errors into the text of one error."""
    numbers = {int(number) for number in _NUMBER.findall(str(error))} if isinstance(error, OSError) else set()
    return numbers == {errno.ECONNREFUSED}
