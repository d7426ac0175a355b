"""Wording for people: counts, ages, times and short ids.

Ids that Moorage creates begin with their time of creation, so ids created close together begin alike. A short id is the
whole time (13 characters), and longer if another id of the same list begins with it, too. The id of an inbox item keeps
its kind: `message:0199a3f2-7c1e`. Commands take a short id like any prefix.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import takewhile

from moorage import config
from moorage.core.errors import utc_text
from moorage.core.session import Session

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_MADE = re.compile(r"((?:[a-z]+:)?)[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME_ORDERED = "7"  # the version of such a UUID
_OF_TIME, _OF_CHANCE = 13, 8  # characters: the time in milliseconds; enough random ones


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 session`, `2 sessions`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the word that is most similar to the given one; None if none is similar enough."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


# Times ------------------------------------------------------------------------------------------


def span(seconds: float, units: int = 1) -> str:
    """Return a time span in its largest unit, or in so many of its largest ones: `6d 23h`."""
    parts = []
    for size, unit in _UNITS:
        if seconds >= size:
            parts.append(f"{int(seconds // size)}{unit}")
            seconds %= size
        elif parts:
            break
    return " ".join(parts[:units]) or "0s"


def ago(at: datetime | None) -> str | None:
    """Return how long ago an instant was, or how far in the future it is."""
    if at is None:
        return None
    seconds = (datetime.now(UTC) - at).total_seconds()
    if seconds < 0:
        return f"in {span(-seconds, 2)}"
    return f"{span(seconds)} ago" if seconds >= 1 else "now"


def seconds_text(at: datetime | None) -> str | None:
    """Return an instant without fractions of a second."""
    return None if at is None else utc_text(at.replace(microsecond=0))


# Ids --------------------------------------------------------------------------------------------


def short_id(id: str, among: Iterable[str] = ()) -> str:
    """Return the shortest prefix of an id that differs from the others; an id chosen by a person stays whole."""
    made = _MADE.fullmatch(id)
    if made is None:
        return id
    shared = max((_shared(id, other) for other in among if other != id), default=0)
    length = len(made[1]) + (_OF_TIME if made[2] == _TIME_ORDERED else _OF_CHANCE)
    return id[: max(length, shared + 1)]


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix of two ids."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the short form of each id, unique among all of them."""
    ordered = sorted(set(ids))
    beside = zip(["", *ordered], [*ordered[1:], ""], strict=False)  # sorted neighbours share the longest beginnings
    return {id: short_id(id, others) for id, others in zip(ordered, beside, strict=False)}


# Commands to type ---------------------------------------------------------------------------------

PROGRAM = "moorage"
_given: dict[str, str] = {}  # the `--url` of this command line, if it has one


def remember_url(url: str | None) -> None:
    """Repeat this `--url` in the commands that hints propose; None forgets it."""
    _given.clear()
    if url is not None:
        _given["url"] = url


def command_line(*words: str) -> str:
    """Return a command to type, with the `--url` that was given; a URL with a password is not repeated."""
    for url in _given.values():
        words += ("--url", shlex.quote(url) if config.without_password(url) == url else "URL")
    return " ".join((PROGRAM, *words))


def with_url(message: str) -> str:
    """Return a message whose commands in backticks have the given `--url`.

    Commands that name their stores are unchanged, and so is `serve`: it runs elsewhere, on a store of its own.
    """
    if not _given:
        return message
    commands = r"`moorage (?!serve\b)((?:(?! --(?:url|from) )[^`])+)`"
    return re.sub(commands, lambda found: f"`{command_line(found[1])}`", message)


def shown_id(id: str) -> str:
    """Return an id as hints show it: short for a person at a terminal, whole for a program."""
    return short_id(id) if sys.stderr.isatty() else id


def ref_of(session: Session) -> str:
    """Return the word by which hints name a session: its name, else its id."""
    return session.session_name or shown_id(session.session_id)
