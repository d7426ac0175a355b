"""Arguments and options of several commands, and how their texts are read.

Texts are read strictly. Invalid JSON, UTF-8 or durations are refused with the same codes as at every other door.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from moorage import config
from moorage.core.codec import NOT_JSON, decode
from moorage.core.errors import AmbiguousReference, InvalidField, InvalidJson
from moorage.doors.cli.app import sessions_like

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]  # generic since click 8.5 only
else:
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
Complete = Callable[[click.Context, str], list[CompletionItem]]  # what the shell offers for the beginning of a word

STDIN = "-"
MAX_CANDIDATES = 10  # ids that the error about an ambiguous prefix lists
_MEANT_AS_JSON = ("{", "[", '"')
_NOT_JSON = ("NaN", "Infinity", "-Infinity")


# Reading texts ----------------------------------------------------------------------------------


def read_text(given: str, what: str) -> str:
    """Return the text, or for `-` standard input without its final line end. Raise InvalidJson if it is not UTF-8."""
    if given != STDIN:
        return given
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidJson(what, f"byte {error.start} is not valid UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def read_json(text: str | bytes, what: str, hint: str = "") -> Any:
    """Return a JSON value; raise InvalidJson for anything else, including NaN and infinities."""
    try:
        return decode(text)
    except NOT_JSON as error:
        raise InvalidJson(what, f"this is not JSON ({error}){hint}") from None


def read_value(text: str, what: str, hint: str = "; to keep it as text, add --text") -> Any:
    """Return the JSON value, or the text itself if it is not JSON; refuse text that looks like broken JSON."""
    try:
        return read_json(text, what, hint)
    except InvalidJson:
        if text.lstrip().startswith(_MEANT_AS_JSON) or text.strip() in _NOT_JSON:
            raise
        return text


def read_file(path: str, what: str) -> bytes:
    """Return the content of a file; `-` is standard input."""
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidField(what, f"cannot be read from {path!r}: {error.strerror}") from None


class Parsed(ParamType):
    """A value that a function reads from a text; it is told the name of the parameter, for its errors."""

    def __init__(self, name: str, read: Callable[[str, str], Any], complete: Complete | None = None) -> None:
        self.name, self._read, self._complete = name, read, complete

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._read(value, (param.name if param else None) or self.name)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [] if self._complete is None else self._complete(ctx, incomplete)


def _json(value: str, what: str) -> Any:
    """Return JSON, which may be in a file named with `@`."""
    return read_json(read_file(value[1:], what) if value.startswith("@") else value, what)


def _object(value: str, what: str) -> dict[str, Any]:
    read = _json(value, what)
    if not isinstance(read, dict):
        raise InvalidField(what, f'must be a JSON object, such as {{"step": 3}}, not {value!r}')
    return read


def _duration(value: str, what: str) -> float:
    """Return seconds, of a number or as configuration reads it: 45s, 30m, 24h, 7d."""
    try:
        return float(value)
    except ValueError:
        return config.duration(what, value).total_seconds()


def _instant(value: str, what: str) -> datetime:
    """Return the instant in UTC: RFC 3339, in UTC unless it names a zone; or how long ago it was."""
    try:
        at = _ago(value) or datetime.fromisoformat(value)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        way_out = "write 2026-01-31, 2026-01-31T09:30:00Z, or 7d for seven days ago"
        raise InvalidField(what, f"is {value!r}; {way_out}") from None


def _ago(value: str) -> datetime | None:
    try:
        return datetime.now(UTC) - config.duration("time", value)
    except InvalidField:
        return None


def _folder(value: str, _: str) -> str:
    """Return an absolute path, because other commands run in other folders."""
    return os.path.abspath(value) if value else ""


JSON, OBJECT = Parsed("json|@file", _json), Parsed("json|@file", _object)
DURATION, INSTANT = Parsed("duration", _duration), Parsed("time", _instant)
FOLDER = Parsed("folder", _folder, lambda _, incomplete: [CompletionItem(incomplete, type="dir")])
SESSION = Parsed("session", lambda ref, _: ref, sessions_like)  # by id, name or prefix


def id_beginning(ref: str, ids: Iterable[str], noun: str) -> str | None:
    """Return the id with this prefix, None if there is none. Raise AmbiguousReference if there are several."""
    fitting = [id for id in ids if id.startswith(ref)]
    if len(fitting) > 1 and ref not in fitting:
        raise AmbiguousReference(ref, fitting[:MAX_CANDIDATES], cut=len(fitting) > MAX_CANDIDATES, noun=noun)
    return ref if ref in fitting else next(iter(fitting), None)


# Arguments and options --------------------------------------------------------------------------


def flag(*names_and_told: str) -> Callable[[F], F]:
    """Add an option without a value; the last word is its help."""
    *names, told = names_and_told
    return click.option(*names, is_flag=True, help=told)


def all_of(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Add several options, in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def one_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Complete a value from these choices; the rules in `core` check the value."""
    return lambda _ctx, _param, incomplete: [CompletionItem(word) for word in words if word.startswith(incomplete)]


def choice(name: str, words: Iterable[str], told: str = "", **more: Any) -> Callable[[F], F]:
    """Add an option for one of these words, which its help lists by default; the rules in `core` check the word."""
    words, metavar = list(words), more.pop("metavar", name.strip("-").upper())
    about = {"metavar": metavar, "help": told or ", ".join(words), "show_default": True}
    return click.option(name, shell_complete=one_of(*words), **about, **more)


def number(name: str, least: int, most: int, default: int, told: str) -> Callable[[F], F]:
    within = click.IntRange(least, most)
    return click.option(name, type=within, metavar="N", default=default, show_default=True, help=told)


def many(*names: str, told: str, words: Iterable[str] = (), **more: Any) -> Callable[[F], F]:
    """Add an option that can be repeated; `words` complete its values."""
    more |= {"multiple": True, "shell_complete": one_of(*words), "help": f"{told} Can be repeated."}
    return click.option(*names, **more)


def expected_version(told: str) -> Callable[[F], F]:
    """Add the option for the version that a change is for."""
    return click.option("--expected-version", "version", type=int, metavar="N", help=told)


host = click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen at."
)
slots = number("--slots", 1, 1000, 16, "Maximum of parallel turns.")
session = click.argument("session", type=SESSION, metavar="SESSION")
optional_session = click.argument("session", type=SESSION, metavar="[SESSION]", required=False)
token = click.option("--token", metavar="TOKEN", help="The token of your hold.")
queue = flag("--queue", "If another holder has the session, wait for the end of the hold instead of failing.")
stop_on_exit = flag("--stop-on-exit", "Stop the run when you leave.")
version = expected_version("Refuse if the session is not at this version.")
ttl = click.option("--ttl", type=DURATION, help="Time to live: seconds, or 30m, 24h, 7d.")
metadata = click.option("--metadata", type=OBJECT, help="A JSON object to merge in.")
labels = many(
    "--label", "labels", told="A label to filter by.", metavar="WORD", callback=lambda *given: [*given[2]] or None
)
