"""Care: throw away what is old, bring the schema up to date."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import click
from msgspec import to_builtins

from moorage.core.errors import MoorageError, Unsupported
from moorage.core.session import State
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import one_of
from moorage.doors.cli.connection import connect
from moorage.doors.cli.output import complain, facts, fields, is_terminal, note, say, short_age, table
from moorage.doors.cli.progress import counting
from moorage.service.retention import Cleanup, Removal


@command(
    "cleanup",
    examples=(
        "moorage cleanup --dry-run",
        "moorage cleanup",
        "moorage cleanup --hours 168 --state completed --state failed",
    ),
)
@click.option("--hours", type=float, metavar="N", help="Untouched for so long, whatever the configuration says.")
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    shell_complete=one_of(*State),
    help="Only in these states; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@pass_app
def cleanup(app: App, hours: float | None, states: tuple[str, ...], dry_run: bool) -> None:
    """Delete what nobody touched for long, and what is past its time to live.

    How long, the configuration says, by state; 24 hours if it says nothing. A tree goes only
    when every member may: none that runs, is held or waits for an answer. Piped, one line for
    each: id, state, agent, name, why, how long untouched, its limit, and the setting that says so.
    """
    with counting("Cleaning up") as progress, _telling_what_went(progress, dry_run) as told:
        done = app.moor.cleanup(hours, states=states or None, dry_run=dry_run, progress=told)
    app.show(done, lambda: _show_gone(done))


@contextmanager
def _telling_what_went(progress: Callable[[int], None] | None, dry_run: bool) -> Iterator[Callable[[int], None]]:
    """Count along; if it fails half way, say that something is gone already."""
    went = 0

    def told(count: int) -> None:
        nonlocal went
        went = count
        if progress is not None:
            progress(count)

    try:
        yield told
    except MoorageError:
        if went and not dry_run:
            complain(f"before this failed, {went} sessions were deleted; `moorage audit` lists them")
        raise


def _show_gone(done: Cleanup) -> None:
    rows = [_row(gone) for gone in done.sessions]
    if not is_terminal():
        for row in rows:
            say(fields(*row))
        return
    if rows:
        table(_COLUMNS, rows, spare=_SPARE)
    note(f"{'Would delete' if done.dry_run else 'Deleted'} {done.removed} sessions.")


_COLUMNS = ("session", "state", "agent", "name", "why", "idle", "limit", "set by")
_SPARE = ("name", "agent", "state", "idle")  # which go first where a row does not fit


def _row(gone: Removal) -> tuple[object, ...]:
    idle = (gone.deleted_at - gone.last_activity_at).total_seconds()
    limit = None if gone.limit_seconds is None else duration_text(gone.limit_seconds)
    who = (gone.session_id, gone.state, gone.agent_name, gone.session_name)
    return (*who, gone.reason, short_age(idle), limit, gone.limit_from)


def duration_text(seconds: float) -> str:
    """A duration as the configuration file would have it: in the largest unit that it is a whole number of."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:g}s"


@command(
    "migrate",
    examples=(
        "moorage migrate --dry-run",
        "moorage migrate --seal",
        "moorage migrate --from sqlite:///moorage.db --to sqlite:///elsewhere.db",
    ),
)
@click.option("--dry-run", is_flag=True, help="Only say what is missing, or what would be copied.")
@click.option("--seal", is_flag=True, help="Then seal everything that is there with the first encryption key.")
@click.option("--from", "source", metavar="URL", help="Copy this whole store instead …")
@click.option("--to", "target", metavar="URL", help="… into this empty one.")
@click.option("--force", is_flag=True, help="Copy although a server uses the store, or turns run in it.")
@pass_app
def migrate(app: App, dry_run: bool, seal: bool, source: str | None, target: str | None, force: bool) -> None:
    """Bring the database to the newest schema, or move everything into another store. Twice is harmless.

    Every command does so by itself; this one tells what it did. The database of an older
    orchestrator is brought in: its sessions become ours, its own tables are kept beside them.
    To seal goes in small steps, and may be interrupted and repeated; the search index goes.

    With --from and --to, everything one store has is copied into another, as it is, while the first stays
    readable; both are compared in the end. Cut off, the same command goes on where it was.
    """
    if source is not None or target is not None:
        from moorage.doors.cli.copying import copy

        copy(app, source, target, force=force, dry_run=dry_run)
        return
    done = _migrate_database(app, dry_run, seal) if is_postgres(app) else _migrate_file(app, dry_run, seal)
    app.show(done, lambda: say(facts(_flat(done))))
    if seal and not dry_run:
        _tell_what_is_left(done["sealed"])


def is_postgres(app: App) -> bool:
    """Whether the store is one of PostgreSQL's."""
    return app.full_url.startswith(("postgresql://", "postgres://"))


def _migrate_database(app: App, dry_run: bool, seal: bool) -> dict[str, Any]:
    from moorage.config import without_password
    from moorage.doors.cli import databases

    return databases.migrate(app.full_url, without_password(app.full_url), dry_run=dry_run, seal=seal)


def _migrate_file(app: App, dry_run: bool, seal: bool) -> dict[str, Any]:
    from moorage.stores.sqlite.migrate import LATEST

    brought_in = _bring_in_older(sqlite_file(app), dry_run)
    before = 0 if brought_in else schema_of(sqlite_file(app))
    missing = list(range(before + 1, LATEST + 1))
    if not dry_run:
        connect(app.url).close()  # opening the store applies what is missing, or says why it cannot
    done: dict[str, Any] = {
        "url": app.full_url,
        "schema_before": before,
        "schema": before if dry_run else LATEST,
        "missing" if dry_run else "applied": missing,
    }
    if brought_in:
        done["to_bring_in" if dry_run else "brought_in"] = brought_in
    if seal:
        done |= _seal(sqlite_file(app), dry_run)
    return done


def _flat(done: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in done.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", number) for part, number in value.items())
        else:
            yield name, value or "nothing"


def _seal(path: str, dry_run: bool) -> dict[str, Any]:
    """Seal a whole database, or only count what is to be sealed."""
    from moorage.config import find_sealer
    from moorage.stores.sqlite.connection import Connection, translating
    from moorage.stores.sqlite.sealed import count_plain, rewrite

    if dry_run and not os.path.exists(path):
        return {"to_seal": 0}
    with closing(Connection(path, sealer=find_sealer())) as db, translating(path):
        if dry_run:
            return {"to_seal": count_plain(db)}
        with counting("Sealing") as progress:
            return {"sealed": to_builtins(rewrite(db, progress))}


def _tell_what_is_left(sealed: dict[str, Any]) -> None:
    """What somebody has to do about it yet."""
    is_compact = sealed.get("is_compact", True)  # of a file; a database sees to its own
    if sealed.get("plain_tables"):
        complain(
            f"{', '.join(sealed['plain_tables'])}: tables of an older orchestrator, kept as they were and not sealed; "
            "drop them when they are of no more use"
        )
    if not is_compact:
        complain("others use the file, so parts of what was plain may still be in it; stop them and seal again")
    for problem in sealed["left"]:
        complain(f"left as it is: {problem}")
    if sealed["left"] or not is_compact:
        click.get_current_context().exit(1)


def _bring_in_older(path: str, dry_run: bool) -> dict[str, Any] | None:
    """What became, or would become, of an older orchestrator's database; None if this is none."""
    from moorage.config import find_sealer
    from moorage.legacy import database as legacy

    if not legacy.is_older_file(path):
        return None
    done = legacy.rehearse(path) if dry_run else legacy.bring_in_file(path, find_sealer())
    return None if done is None else to_builtins(done)


def sqlite_file(app: App) -> str:
    """The file behind the URL. Raises Unsupported for a store that is none."""
    from moorage.config import sqlite_path

    if not app.full_url.startswith("sqlite://"):
        why = "a server sees to its store's schema itself" if app.is_remote else "only those have a schema to look at"
        raise Unsupported(f"{app.full_url!r} is no SQLite file; {why}")
    return sqlite_path(app.full_url)


def schema_of(path: str) -> int:
    """The schema's version; 0 if there is no file yet. Changes nothing."""
    if not os.path.exists(path):
        return 0
    from moorage.stores.sqlite.connection import Connection, translating
    from moorage.stores.sqlite.migrate import schema_version

    db = Connection(path)
    try:
        with translating(path):
            return schema_version(db)
    finally:
        db.close()
