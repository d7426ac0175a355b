"""Commands that hints propose, with the `--url` that was given, and the names of sessions in them."""

from __future__ import annotations

import re
import shlex
import sys

from moorage import config
from moorage.core.session import Session
from moorage.doors.cli.wording import short_id

PROGRAM = "moorage"
_given: dict[str, str] = {}  # the `--url` of this command line, if it has one


def remember_url(url: str | None) -> None:
    """Repeat this `--url` in the commands that hints propose; None forgets it."""
    _given.clear()
    if url is not None:
        _given["url"] = url


def command_line(*words: str) -> str:
    """Return a command to type, with the `--url` that was given; a URL with a password is not repeated."""
    url = _given.get("url")
    where = []
    if url is not None:
        where = ["--url", shlex.quote(url) if config.without_password(url) == url else "URL"]
    return " ".join((PROGRAM, *words, *where))


def with_url(message: str) -> str:
    """Return a message whose commands in backticks have the given `--url`.

    Commands that name their stores are unchanged, and so is `serve`: it runs elsewhere, on a store of its own.
    """
    if not _given:
        return message
    return re.sub(
        r"`moorage (?!serve\b)((?:(?! --(?:url|from) )[^`])+)`", lambda found: f"`{command_line(found[1])}`", message
    )


def shown_id(id: str) -> str:
    """Return an id as hints show it: short for a person at a terminal, whole for a program."""
    return short_id(id) if sys.stderr.isatty() else id


def ref_of(session: Session) -> str:
    """Return the word by which hints name a session: its name, else its id."""
    return session.session_name or shown_id(session.session_id)
