"""Doctor: check the store and summarize its content.

A damaged file is never repaired or overwritten. `--quarantine` moves it away under a name that says what it is, so that
it can be inspected and replaced by a backup.
"""

from __future__ import annotations

import os
from contextlib import closing
from datetime import datetime
from typing import Any

import apsw
import click

from moorage.config import is_redis, pick_context_url, without_password
from moorage.core.errors import AccessError, ServerUnreachable, StoreCorrupt, StoreError, Unsupported, utc_text
from moorage.doors.cli.app import App, command
from moorage.doors.cli.migrate import sqlite_file
from moorage.doors.cli.output import complain, facts, say, worded
from moorage.doors.cli.verdicts import NO
from moorage.doors.hooks import spool
from moorage.sync import OnServer

_COUNTS = {
    "sessions": "SELECT count(*) FROM sessions",
    "open_sessions": "SELECT count(*) FROM sessions WHERE finalized_at IS NULL",
    "entries": "SELECT count(*) FROM entries WHERE segment > 0",
    "pending_approvals": "SELECT coalesce(sum(pending_approvals), 0) FROM sessions",
}
_BESIDE = ("-wal", "-shm")


class Findings:
    """Facts, notes and problems of a store."""

    def __init__(self, url: str) -> None:
        self.facts: dict[str, Any] = {"url": url}
        self.problems: list[str] = []
        self.notes: list[str] = []  # worth knowing, but not problems
        self.is_damaged = False


@command("doctor", "moorage doctor", "moorage --json doctor", "moorage doctor --quarantine")
@click.option("--quarantine", is_flag=True, help="Move a damaged store file aside. A healthy one is not touched.")
def doctor(app: App, quarantine: bool) -> int:
    """Check the store and report problems.

    Exit code 1 if there is a problem.
    """
    if quarantine and app.is_remote:
        raise Unsupported("--quarantine moves the store's file: run it where the server keeps its store")
    found = Findings(without_password(app.full_url))
    if not app.is_remote and (context_url := pick_context_url(app.full_url)) is not None:
        found.facts["context_url"] = without_password(context_url)
    _look(app, found)
    _look_at_spool(app.full_url, found)
    moved = _quarantine(sqlite_file(app)) if quarantine and found.is_damaged else None
    told = {"problems": found.problems, "notes": found.notes, "ok": not found.problems, "quarantined": moved}
    app.show(found.facts | told, lambda: _show(found, moved, quarantine))
    return NO if found.problems and moved is None else 0


def _look(app: App, found: Findings) -> None:
    try:
        if app.full_url.startswith("sqlite://") and not _look_at_file(sqlite_file(app), found):
            return
        if is_redis(app.full_url):
            _look_at_redis(app.full_url, found)
        if app.is_remote:  # the server's own report, and its launchers
            assert isinstance(app.moor, OnServer)
            found.facts |= {**app.moor.health(), "launchers": len(app.moor.launchers())}
        problems = app.moor.check()
    except ServerUnreachable:
        raise
    except AccessError as error:
        found.notes.append(f"the store was not looked into: {error.message}")
    except StoreError as error:
        found.problems.append(error.message)
        found.is_damaged = isinstance(error, StoreCorrupt)
    else:
        found.problems += problems
        found.is_damaged = any(problem.startswith("integrity:") for problem in problems)


def _look_at_redis(url: str, found: Findings) -> None:
    """Note what the Redis servers keep, and what may be lost in a crash or a failover."""
    import asyncio

    from moorage.core.extras import provided_by

    with provided_by("redis", "Redis"):
        from moorage.stores.redis.checking import look
    told, costs = asyncio.run(look(url))
    found.facts |= told
    found.notes += costs


def _look_at_file(path: str, found: Findings) -> bool:
    """Note facts about a file; return whether it is a store of Moorage. Create and import nothing."""
    from moorage.legacy.database import is_older_file

    found.facts["file"] = os.path.abspath(path)
    found.facts["exists"] = os.path.exists(path)
    if not found.facts["exists"]:
        return False
    beside = [path + suffix for suffix in ("", *_BESIDE) if os.path.exists(path + suffix)]
    found.facts["bytes"] = sum(os.path.getsize(each) for each in beside)
    if is_older_file(path):
        found.notes.append(
            "this is the database of an older orchestrator; `moorage migrate --dry-run` shows what would be converted, "
            "any command brings it in"
        )
        return False
    _look_into(path, found)
    return True


def _look_at_spool(url: str, found: Findings) -> None:
    """Note the events that hooks could not store: they wait for the next hook, or were refused."""
    seen = spool.contents(url)
    found.facts |= {"spooled_events": seen.waiting, "refused_events": seen.refused}
    if seen.since is not None:
        found.facts["spooled_since"] = utc_text(seen.since)
        found.problems.append(
            f"events of hooks that wait in {spool.folder()}: {seen.waiting}, since {utc_text(seen.since)}; "
            "the next hook stores what waits for its store, `moorage hooks deliver` does so now"
            + (f" ({seen.elsewhere} for other stores: `moorage --url THEIRS hooks deliver`)" if seen.elsewhere else "")
        )
    if seen.refused:
        last = "" if seen.last_refusal is None else f" (the newest: {seen.last_refusal.reason})"
        found.problems.append(
            f"events of hooks that were refused: {seen.refused}{last}; each is a file *{spool.REFUSED} in "
            f"{spool.folder()} whose first line says why. `moorage hooks deliver --refused` tries "
            "them again on this store; delete them when you no longer need them"
        )


def _look_into(path: str, found: Findings) -> None:
    from moorage.stores.sqlite.connection import SqliteConnection, translating
    from moorage.stores.sqlite.migrate import LATEST, schema_version

    found.facts["sqlite"] = apsw.sqlite_lib_version()
    with closing(SqliteConnection(path)) as db, translating(path):
        found.facts["schema"] = schema_version(db)
        found.facts["journal_mode"] = db.raw.pragma("journal_mode")
        if found.facts["schema"] == LATEST:
            found.facts |= {name: db.raw.execute(sql).get for name, sql in _COUNTS.items()}
            _look_for_orphans(db.raw, found)


# Only an older orchestrator could create orphans. Moorage deletes a tree, or refuses to.
_ORPHANS = "FROM sessions WHERE parent IS NULL AND json_valid(metadata) AND metadata ->> 'orphaned' = 1"
_NAMED = 20  # orphans whose ids are listed


def _look_for_orphans(raw: apsw.Connection, found: Findings) -> None:
    count = raw.execute(f"SELECT count(*) {_ORPHANS}").get
    found.facts["orphaned"] = count
    if not count:
        return
    ids = [id_ for (id_,) in raw.execute(f"SELECT id {_ORPHANS} ORDER BY pk LIMIT {_NAMED}")]
    found.facts["orphaned_sessions"] = ids
    found.notes.append(
        f"{count} sessions are orphaned: their parent was deleted before they came here, and only its name is known "
        f"({', '.join(map(str, ids))}{', …' if count > _NAMED else ''}); delete them, or say that it is well with "
        """`moorage update ID --metadata '{"orphaned": false}'`"""
    )


def _quarantine(path: str) -> str:
    """Move the file and its companion files to a free name, and return that name."""
    stamp = f"{path}.corrupt-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    target, tries = stamp, 1
    while any(os.path.lexists(target + suffix) for suffix in ("", *_BESIDE)):
        tries += 1
        target = f"{stamp}-{tries}"
    for suffix in (*_BESIDE, ""):  # the database last: without its log it is still recognized as damaged
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, target + suffix)
    return target


def _show(found: Findings, moved: str | None, quarantine: bool) -> None:
    say(facts(worded(found.facts.items())))
    for remark in found.notes:
        say(remark)
    for problem in found.problems:
        complain(problem)
    if moved is not None:
        say(f"Moved to {moved}; the next command starts with an empty database, or put a backup in its place.")
    elif quarantine:
        say("Nothing was moved: the file is not damaged.")
    if not found.problems:
        say("Everything is in order.")
