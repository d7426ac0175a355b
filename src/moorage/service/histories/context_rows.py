"""Rows of a table with a context for each session: session_id, context, updated_at.

One JSON object a line. A row becomes a session whose context has the values of the row, key by key.
The context is an object, or the JSON text of one, because some programs store JSON in a text column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from moorage.core.bundle import Bundle, check_bundle
from moorage.core.codec import NOT_JSON, decode
from moorage.core.context import ContextItem, record_of
from moorage.core.entry import Kind
from moorage.core.errors import MoorageError
from moorage.core.session import Session
from moorage.service.histories.ledger import Ledger, as_utc
from moorage.service.histories.letters import decoded
from moorage.service.importing import History

INTERFACE = "import"
AT_ONCE = 500  # rows in memory at a time


class ContextRow(Struct):
    """One row. Other columns are ignored."""

    session_id: str
    context: Any = None
    updated_at: datetime | None = None


_UNREADABLE = (*NOT_JSON, OverflowError)


def read_rows(file: str, lines: Iterable[bytes], now: datetime) -> Iterator[History]:
    """Yield the sessions of a file in batches; a row without a time gets `now`."""
    numbered = enumerate(lines, 1)
    while some := list(islice(numbered, AT_ONCE)):
        history = History(file=file)
        for number, line in some:
            if line.strip():
                _read(history, line, number, now)
        yield history


def _read(history: History, line: bytes, number: int, now: datetime) -> None:
    try:
        row = decoded(line, ContextRow)
        bundle = _bundle(row, _context(row.context), now)
        check_bundle(bundle)
        history.bundles.append(bundle)
    except MoorageError as error:
        history.leave_out(error.message, number)
    except _UNREADABLE as error:
        history.leave_out(f"not a row with a session_id and a context ({error})", number)


def _context(context: Any) -> dict[str, Any]:
    if isinstance(context, str):
        context = decode(context)
    if context is None:
        return {}
    if not isinstance(context, dict):
        raise msgspec.ValidationError(f"the context is not an object but a {type(context).__name__}")
    return context


def _bundle(row: ContextRow, context: dict[str, Any], now: datetime) -> Bundle:
    at = now if row.updated_at is None else as_utc(row.updated_at)
    ledger = Ledger(INTERFACE)
    ledger.note(Kind.CREATED, at, {"agent_name": None, "purpose": None})
    head = Session(
        session_id=row.session_id,
        task_id=row.session_id,
        root_session_id=row.session_id,
        created_at=at,
        updated_at=at,
        last_activity_at=at,
        interface=INTERFACE,
        last_entry=ledger.last,
        context_version=len(context) and 1,
    )
    records = [record_of(key, ContextItem(value=value, version=1, updated_at=at)) for key, value in context.items()]
    return Bundle(session=head, entries=ledger.entries, records=records)
