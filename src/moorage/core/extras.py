"""Extras: the optional parts of an installation. Only this module knows the distribution's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.core.errors import Unsupported

DISTRIBUTION = "moorage"


@contextmanager
def provided_by(extra: str, what: str) -> Iterator[None]:
    """Import packages of an extra in this block. Raises Unsupported, with the command to run, if one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or DISTRIBUTION).partition(".")[0] == DISTRIBUTION:
            raise
        raise missing(extra, what) from None


def missing(extra: str, what: str) -> Unsupported:
    """Return the error for a feature whose packages are not installed."""
    return Unsupported(f"{what} is not installed; run: {install_command(extra)}", extra=extra)


def install_command(extra: str) -> str:
    """Return the command that adds an extra to an installation."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
