"""Logs: a line of text for people, or a JSON object for programs.

Every JSON line has the ids of its subjects (session, task, run, request_id; null if there is none), so a search for one
of them finds all its lines. Values with a name that marks them as secret are never written, nor are keys and tokens,
wherever they stand in a text.

Messages of sessions are never logged, at any level. Libraries write whole messages into debug lines and warnings, so a
line of a library is reduced to its place in the code, unless the library logs only connections.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any

from moorage.core.codec import encode_text
from moorage.core.redact import REDACTED, SECRET_WORDS, Redactor
from moorage.service.about import IDS, about

TRUSTED = ("moorage", "uvicorn.error")
SPEAK_OF_CONNECTIONS = ("asyncio", "psycopg", "opentelemetry")  # libraries whose warnings are written unchanged
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_redactor = Redactor(SECRET_WORDS)
# Our keys and tokens, the credentials in a URL, and the values of authorization headers.
_credential = re.compile(
    r"\bmoor_[A-Za-z0-9]+_[0-9a-f]{16,}|\bmoors_[\w-]+\.[\w-]+|(?<=://)[^\s/@]+(?=@)|(?i:(?<=\bbearer )\S+)"
)

# An id with its time of creation, which is enough to find it: commands take it as it is shown.
_ids = re.compile(r"\b([0-9a-f]{8}-[0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(?::\d+)?\b")
_DIM, _CRITICAL = "2", "31;1"
_LEVELS = {logging.WARNING: "33", logging.ERROR: "31"}
_OUTCOMES = {"completed": "32", "failed": "31", "stopped": "33"}


def set_up(format: str, level: str) -> None:
    """Write logs to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    text = TerminalLines() if sys.stderr.isatty() else TextLines()
    handler.setFormatter(JsonLines() if format == "json" else text)
    handler.addFilter(withhold)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(logging.INFO, root.level))


def withhold(record: logging.LogRecord) -> bool:
    """Return whether to write a record; a record of a library that may quote messages loses its text."""
    if _is_of(record, TRUSTED):
        return True
    if record.levelno < logging.WARNING:
        return False
    if not _is_of(record, SPEAK_OF_CONNECTIONS):
        failed = f", {record.exc_info[0].__name__}" if record.exc_info and record.exc_info[0] else ""
        record.msg = f"{record.levelname.lower()} of {record.name} ({record.filename}:{record.lineno}{failed})"
        record.args, record.exc_info, record.exc_text, record.stack_info = (), None, None, None
    return True


def _is_of(record: logging.LogRecord, loggers: tuple[str, ...]) -> bool:
    return any(record.name == each or record.name.startswith(f"{each}.") for each in loggers)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _USUAL and not name.startswith("_")}


class JsonLines(logging.Formatter):
    """One JSON object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_credentials(record.getMessage()),
            **dict.fromkeys(IDS),
            **about(),
            **_redactor.clean(_extras(record))[0],
        }
        if record.exc_info:
            told["trace"] = without_credentials(self.formatException(record.exc_info))
        try:
            return encode_text(told)
        except (TypeError, UnicodeEncodeError):  # a value that JSON cannot encode: write it as text
            return encode_text({name: _plain(value) for name, value in told.items()})


class TextLines(logging.Formatter):
    """One line of text, with the ids at its end."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        ids = {name: value for name, value in {**about(), **_extras(record)}.items() if name in IDS}
        shown = "".join(f" {name}={value}" for name, value in ids.items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return without_credentials(f"{at} {record.levelname.lower():7} {record.getMessage()}{shown}{trace}")


class TerminalLines(logging.Formatter):
    """One readable line for a user at a terminal: short ids, colours, and a level only for problems."""

    def __init__(self) -> None:
        super().__init__()
        self._has_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        message = _short(without_credentials(record.getMessage()))
        level = "" if (record.levelno or 0) < logging.WARNING else f"{record.levelname.lower()}: "
        ids = {**about(), **_extras(record)}
        session = ids.get("session_name") or ids.get("session")
        is_told = str(ids.get("session")) in record.getMessage()
        place = "" if session is None or is_told else f"  session {_short(str(session))}"
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        colour = _LEVELS.get(record.levelno, _CRITICAL) if level else _OUTCOMES.get(message.rpartition(" ")[2], "0")
        head, told = self._paint(f"  {at}  ", _DIM), self._paint(f"{level}{message}", colour)
        return f"{head}{told}{self._paint(place, _DIM)}{without_credentials(trace)}"

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._has_colour and text else text


def _short(text: str) -> str:
    return _ids.sub(r"\1", text)


def without_credentials(text: str) -> str:
    """Return a text without any key, token or password of a URL."""
    return _credential.sub(REDACTED, text)


def _plain(value: object) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value).encode("utf-8", "replace").decode()
