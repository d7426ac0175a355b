"""Arguments and options that several commands take, and how their texts are read.

Texts are read strictly: what is not JSON, not UTF-8 or not a duration is refused with the
same codes as at every other door.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from moorage import config
from moorage.core.codec import decode
from moorage.core.errors import InvalidField, InvalidJson

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]  # generic since click 8.5 only
else:
    ParamType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
STDIN = "-"
_MEANT_AS_JSON = ("{", "[", '"')
_NOT_JSON = ("NaN", "Infinity", "-Infinity")


# Reading texts ----------------------------------------------------------------------------------


def read_stdin(what: str) -> str:
    """All of standard input as text; InvalidJson if it is not UTF-8."""
    return _as_text(sys.stdin.buffer.read(), what)


def _as_text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidJson(what, f"byte {error.start} is not valid UTF-8") from None


def read_json(text: str | bytes, what: str) -> Any:
    """A JSON value; InvalidJson for anything else, NaN and its like too."""
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidJson(what, f"this is not JSON ({error})") from None


def read_value(text: str, what: str) -> Any:
    """A JSON value if the text is one, else the text itself; what looks like broken JSON is refused."""
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if text.lstrip().startswith(_MEANT_AS_JSON) or text.strip() in _NOT_JSON:
            raise InvalidJson(what, f"this is not JSON ({error}); to keep it as text, add --text") from None
        return text


def read_file(path: str, what: str) -> bytes:
    """A file's content; `-` is standard input."""
    if path == STDIN:
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidField(what, f"cannot be read from {path!r}: {error.strerror}") from None


class JsonType(ParamType):
    """JSON on the command line, or in a file named with `@`."""

    name = "json"

    def __init__(self, *, objects_only: bool = False) -> None:
        self.objects_only = objects_only

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the text stands for."""
        what = (param.name if param else None) or self.name
        read = read_json(read_file(value[1:], what) if value.startswith("@") else value, what)
        if self.objects_only and not isinstance(read, dict):
            raise InvalidField(what, f'must be a JSON object, such as {{"step": 3}}, not {value!r}')
        return read


class DurationType(ParamType):
    """A time span: seconds, or 45s, 30m, 24h, 7d."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds as a number, anything else as configuration reads it."""
        try:
            return float(value)
        except ValueError:
            return config.duration((param.name if param else None) or self.name, value)


class InstantType(ParamType):
    """An instant: RFC 3339, UTC where it says nothing else; or how long ago it was."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The instant in UTC."""
        try:
            at = self._ago(value) or datetime.fromisoformat(value)
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        except (ValueError, OverflowError):
            what = (param.name if param else None) or self.name
            way_out = "write 2026-01-31, 2026-01-31T09:30:00Z, or 7d for seven days ago"
            raise InvalidField(what, f"is {value!r}; {way_out}") from None

    def _ago(self, value: str) -> datetime | None:
        try:
            return datetime.now(UTC) - config.duration(self.name, value)
        except InvalidField:
            return None


class FolderType(ParamType):
    """A folder, made absolute: a session outlives the folder it was created from."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The absolute path."""
        return os.path.abspath(value) if value else ""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type="dir")]


class SessionType(ParamType):
    """A session by id, name or prefix."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Ids and names of sessions."""
        from moorage.doors.cli.completion import sessions_like

        return sessions_like(ctx, incomplete)


JSON, OBJECT = JsonType(), JsonType(objects_only=True)
DURATION, INSTANT, FOLDER, SESSION = DurationType(), InstantType(), FolderType(), SessionType()


# Arguments and options --------------------------------------------------------------------------


def one_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion for a value that is one of these; the rules themselves say whether it is."""
    return lambda _ctx, _param, incomplete: [CompletionItem(word) for word in words if word.startswith(incomplete)]


def session_argument(*, required: bool = True) -> Callable[[F], F]:
    """The session a command is about."""
    return click.argument("session", type=SESSION, metavar="SESSION" if required else "[SESSION]", required=required)


def token_option(command: F) -> F:
    """`--token`: act as the one who holds the session."""
    return click.option("--token", metavar="TOKEN", help="Your hold's token: renews the hold.")(command)


def queue_option(command: F) -> F:
    """`--queue`: wait for somebody else's hold to end."""
    told = "While somebody else holds the session, wait for the hold to end instead of being refused."
    return click.option("--queue", is_flag=True, help=told)(command)


def version_option(command: F) -> F:
    """`--expected-version`: change nothing if somebody else did."""
    return click.option(
        "--expected-version", type=int, metavar="N", help="Refuse if the session is not at this version."
    )(command)


def ttl_option(command: F) -> F:
    """`--ttl`: how long it may live."""
    return click.option("--ttl", type=DURATION, metavar="DURATION", help="Time to live: seconds, or 30m, 24h, 7d.")(
        command
    )


def metadata_option(command: F) -> F:
    """`--metadata`: a JSON object."""
    return click.option("--metadata", type=OBJECT, metavar="JSON|@FILE", help="A JSON object to merge in.")(command)
