"""Places: the lists that contain a value, and its position in them. A commit writes the changes of places.

A place is (list, member) and a score: a serial number, a number of arrival, or a time in microseconds. All of them stay
below 2**53, where a score is exact.
"""

from __future__ import annotations

from operator import attrgetter

from moorage.core.approval import Approval, ApprovalState
from moorage.core.inbox import OPEN_ITEMS, Item, ItemKind, ItemState
from moorage.core.run import Run, RunState
from moorage.core.session import Session
from moorage.core.turn import Turn, TurnState
from moorage.stores.redis.db import Op
from moorage.stores.redis.keys import Keys
from moorage.stores.rows import micros
from moorage.stores.work_rows import due_at

SortPlaces = dict[tuple[str, str], int]
WIDTH = 16  # digits, so that numbers sort as text


def padded(number: int) -> str:
    """Return a number as part of a member that sorts by its bytes."""
    return f"{number:0{WIDTH}d}"


_OF_SESSION = attrgetter(
    "created_at", "last_activity_at", "state", "task_id", "agent_name", "project_dir", "session_name", "expires_at"
)


def session_moved(keys: Keys, before: Session, after: Session, serial: int) -> list[Op]:
    """Return the writes from a session's old places to its new ones; usually there are few."""
    if _OF_SESSION(before) == _OF_SESSION(after):
        return []
    return moved(of_session(keys, before, serial), of_session(keys, after, serial))


def of_session(keys: Keys, session: Session, serial: int) -> SortPlaces:
    """Return the lists of a session. `updated`, by the feed's cursor, is written with the entries."""
    list_, id_ = keys.list, session.session_id
    places = {
        (list_("ids"), id_): 0,
        (list_("sessions"), id_): serial,
        (list_("born"), f"{padded(serial)}:{id_}"): micros(session.created_at),
        (list_("idle"), id_): micros(session.last_activity_at),
        (list_("state", session.state.value), id_): serial,
        (list_("task", session.task_id), id_): serial,
    }
    if session.agent_name is not None:
        places[list_("agent", session.agent_name), id_] = serial
    if session.project_dir is not None:
        places[list_("project", session.project_dir), id_] = serial
    if session.session_name is not None:
        places[list_("named"), f"{session.session_name}\0{padded(serial)}:{id_}"] = 0
    if session.expires_at is not None:
        places[list_("ends"), id_] = micros(session.expires_at)
    if session.parent_session_id is not None:
        places[list_("children", session.parent_session_id), id_] = serial
        places[list_("below", session.root_session_id), id_] = serial
        if not session.is_final:
            places[list_("open_below", session.root_session_id), id_] = serial
    return places


def of_approval(keys: Keys, approval: Approval, number: int) -> SortPlaces:
    """Return the lists of an approval."""
    list_, id_ = keys.list, approval.approval_id
    places = {(list_("approvals"), id_): number, (list_("approvals_of", approval.session_id), id_): number}
    if approval.state is ApprovalState.PENDING:
        places[list_("pending"), id_] = number
        if approval.expires_at is not None:
            places[list_("asked_until"), id_] = micros(approval.expires_at)
    return places


def of_run(keys: Keys, run: Run, number: int) -> SortPlaces:
    """Return the lists of a run."""
    list_, id_ = keys.list, run.run_id
    places = {(list_("runs"), id_): number, (list_("runs_of", run.session_id), id_): number}
    if run.parent_session_id is not None:
        places[list_("runs_for", run.parent_session_id), id_] = number
    if run.agent_name is not None:
        places[list_("runs_by", run.agent_name), id_] = number
    if not run.is_settled:
        places[list_("open_runs"), id_] = number
    if run.state is RunState.QUEUED and not run.turns and run.expires_at is not None:
        places[list_("untaken"), id_] = micros(run.expires_at)
    return places


def of_turn(keys: Keys, turn: Turn, number: int, root: str) -> SortPlaces:
    """Return the lists of a turn: queues by agent, with turns for a later time apart; leases."""
    list_, id_, agent = keys.list, turn.turn_id, turn.agent_name or ""
    places = {(list_("turns_of", turn.session_id), id_): number, (list_("turns"), id_): number}
    if turn.state is TurnState.QUEUED:
        places[list_("queued"), id_] = micros(turn.queued_at)
        places[list_("queue_of", root), id_] = number
        if turn.not_before is None:
            places[list_("queue", agent), id_] = number
        else:
            places[list_("later", agent), id_] = micros(turn.not_before)
    elif (due := due_at(turn)) is not None:
        places[list_("leases"), id_] = due
        places[list_("launcher", str(turn.launcher_id)), id_] = number
    return places


def of_item(keys: Keys, item: Item, number: int) -> SortPlaces:
    """Return the lists of an item, by state."""
    list_, id_, state = keys.list, item.item_id, item.state.value
    member = f"{item.session_id}\0{id_}"
    places = {(list_("inbox", state), member): number, (list_(f"inbox_{state}", item.session_id), id_): number}
    if item.state is not ItemState.CONSUMED:
        places[list_("items"), f"{id_}\0{padded(number)}:{item.session_id}"] = 0
    if item.kind is ItemKind.CALLBACK and item.state in OPEN_ITEMS:
        places[list_("callbacks"), member] = number
    return places


def moved(before: SortPlaces, after: SortPlaces) -> list[Op]:
    """Return the writes from some places to others."""
    gone: list[Op] = [("ZREM", key, member) for key, member in before if (key, member) not in after]
    new = [(place, score) for place, score in after.items() if before.get(place) != score]
    return [*gone, *(("ZADD", key, str(score), member) for (key, member), score in new)]
