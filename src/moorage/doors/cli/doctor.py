"""Doctor: is the store whole, and what is in it?

A damaged file is never repaired or overwritten. `--set-aside` moves it away under a name
that says what it is, so that it can be looked into and a backup put in its place.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any

import click

from moorage.core.errors import AccessError, ServerUnreachable, StoreCorrupt, StoreError, Unsupported, utc_text
from moorage.doors.cli.app import App, command
from moorage.doors.cli.care import sqlite_file
from moorage.doors.cli.output import complain, facts, say
from moorage.doors.cli.verdicts import NO

_COUNTS = {
    "sessions": "SELECT count(*) FROM sessions",
    "open_sessions": "SELECT count(*) FROM sessions WHERE finalized_at IS NULL",
    "entries": "SELECT count(*) FROM entries WHERE segment > 0",
    "pending_approvals": "SELECT coalesce(sum(pending_approvals), 0) FROM sessions",
}
_BESIDE = ("-wal", "-shm")

TYPE_CHECKING = False
if TYPE_CHECKING:
    import apsw


class Findings:
    """What the doctor saw."""

    def __init__(self, url: str) -> None:
        self.facts: dict[str, Any] = {"url": url}
        self.problems: list[str] = []
        self.notes: list[str] = []  # what is worth knowing, and nothing wrong
        self.is_damaged = False

    def blame(self, error: StoreError) -> None:
        """An error is a finding like any other."""
        self.problems.append(error.message)
        self.is_damaged = self.is_damaged or isinstance(error, StoreCorrupt)


@command("doctor", examples=("moorage doctor", "moorage --json doctor", "moorage doctor --set-aside"))
@click.option("--set-aside", is_flag=True, help="Move a damaged file away; a whole one stays where it is.")
@click.pass_context
def doctor(ctx: click.Context, set_aside: bool) -> None:
    """Look at the store and say what is wrong: exit code 1 if something is."""
    app = ctx.ensure_object(App)
    if set_aside and app.is_remote:
        raise Unsupported("--set-aside moves the store's file: run it where the server keeps its store")
    found = Findings(app.full_url)
    _look(app, found)
    _look_at_spool(app.full_url, found)
    moved = _set_aside(sqlite_file(app)) if set_aside and found.is_damaged else None
    told = {"problems": found.problems, "notes": found.notes, "ok": not found.problems, "set_aside": moved}
    answer = found.facts | told
    app.show(answer, lambda: _show(found, moved, set_aside))
    ctx.exit(NO if found.problems and moved is None else 0)


def _look(app: App, found: Findings) -> None:
    is_file = app.full_url.startswith("sqlite://")
    path = sqlite_file(app) if is_file else ""
    try:
        if is_file:
            found.facts["file"] = os.path.abspath(path)
            found.facts["exists"] = os.path.exists(path)
            if not found.facts["exists"]:
                return  # the doctor looks, and creates nothing
            found.facts["bytes"] = sum(_size(path + suffix) for suffix in ("", *_BESIDE))
            if _is_older(path, found):
                return
            _look_into(path, found)
        if app.is_remote:
            found.facts |= _health(app)
        problems = app.moor.check()
    except ServerUnreachable:
        raise
    except AccessError as error:
        found.notes.append(f"the store was not looked into: {error.message}")
    except StoreError as error:
        found.blame(error)
    else:
        found.problems += problems
        found.is_damaged = any(problem.startswith("integrity:") for problem in problems)


def _health(app: App) -> dict[str, Any]:
    """What the server says of itself, and who works for it."""
    told = app.moor.health()  # what only a server has
    return {**told, "launchers": len(app.moor.launchers())}


def _is_older(path: str, found: Findings) -> bool:
    """An older orchestrator's database is only told of: the doctor brings nothing in."""
    from moorage.legacy.database import is_older_file

    if is_older := is_older_file(path):
        found.notes.append(
            "this is the database of an older orchestrator; `moorage migrate --dry-run` says what would come in, "
            "any command brings it in"
        )
    return is_older


def _look_at_spool(url: str, found: Findings) -> None:
    """What hooks could not store: it waits for the next one, or was refused for good."""
    from moorage.doors.hooks import spool

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
            "them again on this store; delete them when they are of no more use"
        )


def _look_into(path: str, found: Findings) -> None:
    import apsw

    from moorage.stores.sqlite.connection import Connection, translating
    from moorage.stores.sqlite.migrate import LATEST, schema_version

    found.facts["sqlite"] = apsw.sqlite_lib_version()
    db = Connection(path)
    try:
        with translating(path):
            found.facts["schema"] = schema_version(db)
            found.facts["journal_mode"] = db.raw.pragma("journal_mode")
            if found.facts["schema"] == LATEST:
                found.facts |= {name: db.raw.execute(sql).get for name, sql in _COUNTS.items()}
                _look_for_orphans(db.raw, found)
    finally:
        db.close()


# Only an older orchestrator could make any; ours deletes a tree, or refuses to.
_ORPHANS = "FROM sessions WHERE parent IS NULL AND json_valid(metadata) AND metadata ->> 'orphaned' = 1"
_NAMED = 20  # orphans whose ids are told


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


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _set_aside(path: str) -> str:
    """Move the file and what belongs to it to a name nobody has; its new name."""
    stamp = f"{path}.corrupt-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    target, tries = stamp, 1
    while any(os.path.lexists(target + suffix) for suffix in ("", *_BESIDE)):
        tries += 1
        target = f"{stamp}-{tries}"
    for suffix in (*_BESIDE, ""):  # the database last: without its log it still is known to be damaged
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, target + suffix)
    return target


def _show(found: Findings, moved: str | None, set_aside: bool) -> None:
    say(facts(found.facts.items()))
    for remark in found.notes:
        say(remark)
    for problem in found.problems:
        complain(problem)
    if moved is not None:
        say(f"Set aside as {moved}; the next command starts with an empty database, or put a backup in its place.")
    elif set_aside:
        say("Nothing was set aside: the file is not damaged.")
    if not found.problems:
        say("Everything is in order.")
