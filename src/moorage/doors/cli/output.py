"""What commands print: JSON for programs, lines for pipes, tables for people.

Whatever the log holds is shown without control characters: a message must not be able to
drive the reader's terminal. `rich` is loaded only where there is a terminal to use it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from moorage.core.codec import encode, encode_text
from moorage.core.entry import Entry, text_of
from moorage.core.errors import utc_text
from moorage.core.render import session_json, to_json
from moorage.core.session import Session

NOTHING = "-"
IDS = ("session", "approval")  # columns whose cells a person copies, so they stay in one piece
WORDS = ("state", "status", "phase", "updated")  # short ones: never broken, however narrow the terminal
SESSION_COLUMNS = ("session", "status", "phase", "agent", "name", "updated")
SPARE_COLUMNS = ("name", "agent", "phase", "updated", "status")  # which go first where a row does not fit
FOLDED = 24  # what a column that may be broken wants to have
GAP = 2  # blanks between columns
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def is_terminal() -> bool:
    """Whether a person looks at standard output."""
    return sys.stdout.isatty()


def say(line: str) -> None:
    """One line for whoever reads standard output."""
    print(printable(line))


def hint(line: str) -> None:
    """One line beside the answer, on standard error: what to do next."""
    print(printable(line), file=sys.stderr)


def note(line: str) -> None:
    """One line for the person at the terminal; for nobody, if there is none."""
    if sys.stderr.isatty():
        hint(line)


def complain(line: str) -> None:
    """One line about what went wrong, on standard error."""
    print(f"moorage: {printable(line)}", file=sys.stderr)


def show_json(value: Any) -> None:
    """One JSON document: compact for programs, indented for people."""
    document = encode(_encodable(to_json(value)))
    if is_terminal():
        document = msgspec.json.format(document, indent=2)
    sys.stdout.flush()
    sys.stdout.buffer.write(document + b"\n")  # JSON is UTF-8, whatever the terminal's encoding is


def _encodable(value: Any) -> Any:
    """The same without broken text, which only an argument that is being complained about can have."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def page_of(items: Sequence[Any], cursor: str | None = None) -> dict[str, Any]:
    """A list as every door shows it."""
    return {"items": items, "next": cursor}


# Text -------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text with control characters made visible; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """The text on one line, without tabs."""
    return " ".join(text.split())


def fields(*values: object) -> str:
    """Values as one line of a pipe: tab separated, a dash for what is not there."""
    return "\t".join(NOTHING if value in (None, "") else one_line(str(value)) for value in values)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values in two columns, without those that have none."""
    known = [(name, value) for name, value in pairs if value not in (None, "", [], {}, ())]
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {_fact(value)}" for name, value in known)


def _fact(value: object) -> str:
    if isinstance(value, str):
        return value.replace("\n", "\n    ")
    return encode_text(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, spare: Sequence[str] = ()) -> None:
    """Rows under their columns, as wide as the terminal; where it is too narrow, without the spare ones."""
    from shutil import get_terminal_size

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    size = get_terminal_size()  # rich takes a terminal that can do little for one of 80 columns
    console = Console(width=size.columns, height=size.lines)
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[Text(NOTHING if cell in (None, "") else printable(str(cell))) for cell in row] for row in rows]
    widths = {name: _width(name, [row[at].cell_len for row in cells]) for at, name in enumerate(columns)}
    shown = _fitting(widths, spare, console.width)
    for column in shown:
        drawn.add_column(column, no_wrap=_stays_whole(column), overflow="fold")
    for row in cells:
        drawn.add_row(*(cell for column, cell in zip(columns, row, strict=True) if column in shown))
    console.print(drawn)


def _stays_whole(column: str) -> bool:
    return column in IDS or column in WORDS


def _width(column: str, cells: Iterable[int]) -> int:
    """What a column needs to be readable."""
    widest = max((len(column), *cells))
    return widest if _stays_whole(column) else min(widest, FOLDED)


def _fitting(widths: dict[str, int], spare: Iterable[str], room: int) -> dict[str, int]:
    """The columns that there is room for."""
    shown = dict(widths)
    for column in spare:
        if sum(shown.values()) + GAP * (len(shown) - 1) <= room:
            break
        del shown[column]
    return shown


# Sessions and entries ---------------------------------------------------------------------------


def called(session: Session) -> str:
    """A session as a sentence names it: its id, and its name if it has one."""
    return f"{session.session_id} ({session.session_name})" if session.session_name else session.session_id


def session_line(session: Session) -> str:
    """A session as one line of a pipe."""
    return fields(
        session.session_id,
        session.status,
        session.phase,
        session.agent_name,
        session.session_name,
        utc_text(session.updated_at),
    )


def session_row(session: Session, now: datetime | None = None) -> tuple[object, ...]:
    """A session as one row of a table."""
    age = ((now or datetime.now(UTC)) - session.updated_at).total_seconds()
    return (
        session.session_id,
        session.status,
        session.phase,
        session.agent_name,
        session.session_name,
        f"{short_age(age)} ago",
    )


def show_sessions(sessions: Iterable[Session]) -> None:
    """Sessions as a table on a terminal, as lines elsewhere."""
    if is_terminal():
        table(SESSION_COLUMNS, map(session_row, sessions), spare=SPARE_COLUMNS)
        return
    for session in sessions:
        say(session_line(session))


def session_facts(session: Session) -> str:
    """Everything about one session."""
    return facts(session_json(session).items())


def short_age(seconds: float) -> str:
    """A time span in its largest unit."""
    for size, unit in _AGES:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "0s"


def entry_text(entry: Entry) -> str:
    """What an entry says: the words of a message, the facts of anything else."""
    if not entry.is_message:
        return encode_text(entry.data or {})
    if isinstance(entry.content, list):
        return " ".join(text_of([part]) if part.get("type") == "text" else encode_text(part) for part in entry.content)
    return entry.content or ""


def entry_line(entry: Entry) -> str:
    """An entry as one line of a pipe."""
    return fields(entry.number, utc_text(entry.at), entry.kind, entry.role, entry_text(entry))


def entry_paragraph(entry: Entry) -> str:
    """An entry for a person: a head, and what it says."""
    head = f"{entry.number:>4}  {utc_text(entry.at.replace(microsecond=0))}  {entry.role or entry.kind}"
    return f"{head}: {entry_text(entry)}".replace("\n", "\n      ")
