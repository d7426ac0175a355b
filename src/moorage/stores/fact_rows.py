"""The facts that analytics are made of, from rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from moorage.core.fact import CallbackCounts, SessionFact, callback_counts, tokens_in
from moorage.core.inbox import ItemState
from moorage.core.session import State
from moorage.stores.rows import Row, micros

STATES = {state.value: state for state in State}
_ITEM_STATES = frozenset(state.value for state in ItemState)
_FIRST, _LAST = micros(datetime(1, 1, 1, tzinfo=UTC)), micros(datetime(9999, 12, 31, tzinfo=UTC))
_NO_TOKENS = (None, None)
_from_timestamp = datetime.fromtimestamp


def callbacks_of(rows: Iterable[Row]) -> dict[int, CallbackCounts]:
    """Where the callbacks to sessions are, by their keys, from (key, state of items, how many)."""
    states: dict[int, list[tuple[str, int]]] = {}
    for session, state, count in rows:
        if state in _ITEM_STATES:
            states.setdefault(session, []).append((state, count))
    return {session: callback_counts(counts) for session, counts in states.items()}


def facts_of(rows: list[Row], callbacks: dict[int, CallbackCounts]) -> list[SessionFact]:
    """Facts, one loop for all; without those of damaged rows, which `get` and `check` name: the others count."""
    facts = []
    for created_at, pk, id_, agent, task, state, duration, has_errors, metadata in rows:
        if state not in STATES or not _FIRST <= created_at <= _LAST:
            continue
        read, written = _NO_TOKENS if metadata is None else tokens_in(metadata)
        at = _from_timestamp(created_at / 1e6, UTC)
        facts.append(
            SessionFact(
                id_, agent, task, at, STATES[state], duration, has_errors == 1, read, written, callbacks.get(pk)
            )
        )  # fmt: skip
    return facts
