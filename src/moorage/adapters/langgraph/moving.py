"""Moving in: threads stored by LangGraph's own savers for SQLite and PostgreSQL."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from langgraph.checkpoint.serde.types import TASKS

from moorage.adapters.channel import ConnectTarget
from moorage.adapters.foreign_ids import session_id_of
from moorage.adapters.langgraph.layout import Write
from moorage.adapters.langgraph.saver import MoorageSaver
from moorage.adapters.langgraph.stored import config_of
from moorage.adapters.moving import Row, Tables, is_postgres, leave_out, tables_of
from moorage.core.errors import InvalidField
from moorage.service.transfer import ImportReport

SQLITE, POSTGRES = {"checkpoints", "writes"}, {"checkpoints", "checkpoint_blobs", "checkpoint_writes"}
WITH_SENDS = 4  # the first format of checkpoints that contain their `Send`s
CHECKPOINTS = """
    SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
    FROM checkpoints ORDER BY thread_id, checkpoint_ns, checkpoint_id
"""
WRITES = """
    SELECT task_id, {path}, idx, channel, type, {value}
    FROM {table} WHERE thread_id = $1 AND checkpoint_ns = $2 AND checkpoint_id = $3
"""
BLOBS = """
    SELECT b.channel, b.type, b.blob
    FROM checkpoints c CROSS JOIN jsonb_each_text(c.checkpoint -> 'channel_versions') v
    JOIN checkpoint_blobs b ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
        AND b.channel = v.key AND b.version = v.value
    WHERE c.thread_id = $1 AND c.checkpoint_ns = $2 AND c.checkpoint_id = $3 AND b.type <> 'empty'
"""


def move_in(target: ConnectTarget, source: str, *, dry_run: bool = False) -> ImportReport:
    """Import all threads of a file or of a PostgreSQL URL.

    Existing sessions are unchanged; unreadable checkpoints are left out and reported.
    """
    report = ImportReport()
    wanted = POSTGRES if is_postgres(source) else SQLITE
    with MoorageSaver(target, approvals=False) as saver, tables_of(source, "LangGraph's saver", wanted) as tables:
        threads = SavedThreads(tables, saver.serde)
        for thread_id, rows in groupby(tables.stream(CHECKPOINTS), key=lambda row: str(row[0])):
            taken = sum([_move(saver, threads, row, report, dry_run) for row in rows])
            known = report.imported if taken else report.already_there
            known.append(session_id_of(thread_id))
            report.entries += taken
    return report


class SavedThreads:
    """Checkpoints and writes in the form of LangGraph's savers.

    The saver for SQLite writes each checkpoint as a whole. The one for PostgreSQL writes it as JSON, and values that
    are not plain into a separate table.
    """

    def __init__(self, tables: Tables, serde: Any) -> None:
        self.tables, self._serde = tables, serde
        if tables.is_postgres:
            self._writes = WRITES.format(path="task_path", value="blob", table="checkpoint_writes")
        else:
            path = "task_path" if "task_path" in tables.columns("writes") else "''"
            self._writes = WRITES.format(path=path, value="value", table="writes")

    def checkpoint(self, row: Row) -> Any:
        """Return the checkpoint of a row. Raises any error of the serializer."""
        thread_id, namespace, checkpoint_id, parent, kind, data, _metadata = row
        if not self.tables.is_postgres:
            return self._with_sends(self._serde.loads_typed((kind, data)), thread_id, namespace, parent)
        found = json.loads(data)
        blobs = self.tables.rows(BLOBS, thread_id, namespace, checkpoint_id)
        values = {channel: self._serde.loads_typed((kind, blob)) for channel, kind, blob in blobs}
        whole = {**found, "channel_values": {**(found.get("channel_values") or {}), **values}}
        return self._with_sends(whole, thread_id, namespace, parent)

    def _with_sends(self, checkpoint: Any, thread_id: str, namespace: str, parent: str | None) -> Any:
        """Return a checkpoint with its unfinished `Send`s: before format 4 they were writes of its parent."""
        if checkpoint["v"] >= WITH_SENDS or parent is None or TASKS in checkpoint["channel_values"]:
            return checkpoint
        wrote = [it for it in self.writes(thread_id, namespace, parent) if it.channel == TASKS]
        wrote.sort(key=lambda it: (it.task_path, it.task_id, it.index))
        if not wrote:
            return checkpoint
        versions = checkpoint["channel_versions"]
        return {
            **checkpoint,
            "channel_values": {
                **checkpoint["channel_values"],
                TASKS: [self._serde.loads_typed(it.value) for it in wrote],
            },
            "channel_versions": {**versions, TASKS: max(versions.values())},
        }

    def writes(self, *place: Any) -> list[Write]:
        """Return the pending writes of a checkpoint. Raises an error if one is unreadable."""
        writes = []
        for task, path, index, channel, kind, data in self.tables.rows(self._writes, *place):
            self._serde.loads_typed((kind, data))
            writes.append(Write(task, path, index, channel, (kind, data)))
        return writes


def _move(saver: MoorageSaver, threads: SavedThreads, row: Row, report: ImportReport, dry_run: bool) -> bool:
    """Import one checkpoint with its writes, unless it exists; return whether it was new."""
    thread_id, namespace, checkpoint_id, parent, _kind, _data, metadata = row
    if saver.has(config_of(str(thread_id), namespace, checkpoint_id)):
        return False
    try:
        checkpoint, writes = threads.checkpoint(row), threads.writes(thread_id, namespace, checkpoint_id)
    except InvalidField:  # an error of the database, not of a value
        raise
    except Exception as error:  # a serializer may raise anything
        leave_out(report, threads.tables, f"thread {thread_id}, checkpoint {checkpoint_id}: {error}")
        return False
    if not dry_run:
        config = {"configurable": {"thread_id": str(thread_id), "checkpoint_ns": namespace, "checkpoint_id": parent}}
        facts = {} if metadata is None else json.loads(metadata)
        saver.put(config, checkpoint, facts, checkpoint["channel_versions"])
        saver.restore_writes(config_of(str(thread_id), namespace, checkpoint_id), writes)
    return True
