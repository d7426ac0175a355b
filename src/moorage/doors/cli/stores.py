"""Stores: check and summarize one, update its schema, seal its bodies, or copy it whole into another.

A damaged file is never repaired or overwritten. `--quarantine` moves it away under a name that says what it is, so that
it can be inspected and replaced by a backup.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import apsw
import click
from msgspec import Struct, to_builtins

from moorage import config
from moorage.core.errors import (
    AccessError,
    InvalidField,
    ServerUnreachable,
    StoreCorrupt,
    StoreError,
    Unsupported,
    utc_text,
)
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.connection import connect
from moorage.doors.cli.edge import NO
from moorage.doors.cli.output import complain, counting, facts, flat, say, stating, worded
from moorage.doors.hooks import spool
from moorage.ports import Store
from moorage.sync import OnServer

if TYPE_CHECKING:
    from moorage.stores.postgres.store import PostgresStore

_COUNTS = {
    "sessions": "SELECT count(*) FROM sessions",
    "open_sessions": "SELECT count(*) FROM sessions WHERE finalized_at IS NULL",
    "entries": "SELECT count(*) FROM entries WHERE segment > 0",
    "pending_approvals": "SELECT coalesce(sum(pending_approvals), 0) FROM sessions",
}
_BESIDE = ("-wal", "-shm")
Done = dict[str, Any]  # what was done, by name


class Findings(Struct):
    """Facts, notes and problems of a store."""

    facts: dict[str, Any]
    problems: list[str] = []
    notes: list[str] = []  # worth knowing, but not problems
    is_damaged: bool = False


@command("doctor", "moorage doctor", "moorage --json doctor", "moorage doctor --quarantine")
@arguments.flag("--quarantine", "Move a damaged store file aside. A healthy one is not touched.")
def doctor(app: App, quarantine: bool) -> int:
    """Check the store and report problems.

    Exit code 1 if there is a problem.
    """
    if quarantine and app.is_remote:
        raise Unsupported("--quarantine moves the store's file: run it where the server keeps its store")
    found = Findings({"url": config.without_password(app.full_url)})
    if not app.is_remote and (context_url := config.pick_context_url(app.full_url)) is not None:
        found.facts["context_url"] = config.without_password(context_url)
    _look(app, found)
    _look_at_spool(app.full_url, found)
    moved = _quarantine(sqlite_file(app)) if quarantine and found.is_damaged else None
    told = {"problems": found.problems, "notes": found.notes, "ok": not found.problems, "quarantined": moved}
    app.show(found.facts | told, lambda: _show_findings(found, moved, quarantine))
    return NO if found.problems and moved is None else 0


def _look(app: App, found: Findings) -> None:
    try:
        if app.full_url.startswith("sqlite://") and not _look_at_file(sqlite_file(app), found):
            return
        if config.is_redis(app.full_url):
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
    from moorage.core.extras import provided_by

    with provided_by("redis", "Redis"):
        from moorage.stores.redis.store import look
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
    from moorage.stores.sqlite.store import LATEST, schema_version

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
    number = raw.execute(f"SELECT count(*) {_ORPHANS}").get
    found.facts["orphaned"] = number
    if not number:
        return
    ids = [id_ for (id_,) in raw.execute(f"SELECT id {_ORPHANS} ORDER BY pk LIMIT {_NAMED}")]
    found.facts["orphaned_sessions"] = ids
    found.notes.append(
        f"{number} sessions are orphaned: their parent was deleted before they came here, and only its name is known "
        f"({', '.join(map(str, ids))}{', …' if number > _NAMED else ''}); delete them, or say that it is well with "
        """`moorage update ID --metadata '{"orphaned": false}'`"""
    )


def _quarantine(path: str) -> str:
    """Move the file and its companion files to a free name, and return that name."""
    stamp = f"{path}.corrupt-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    names = (stamp if number == 1 else f"{stamp}-{number}" for number in count(1))
    target = next(name for name in names if not any(os.path.lexists(name + suffix) for suffix in ("", *_BESIDE)))
    for suffix in (*_BESIDE, ""):  # the database last: without its log it is still recognized as damaged
        if os.path.lexists(path + suffix):
            os.rename(path + suffix, target + suffix)
    return target


def _show_findings(found: Findings, moved: str | None, quarantine: bool) -> None:
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


# Migrating --------------------------------------------------------------------------------------


@command(
    "migrate",
    "moorage migrate --dry-run",
    "moorage migrate --seal",
    "moorage migrate --from sqlite:///moorage.db --to sqlite:///elsewhere.db",
)
@arguments.flag("--dry-run", "Show what would change, and change nothing.")
@arguments.flag("--seal", "Then encrypt all stored data with the first encryption key.")
@click.option("--from", "source", metavar="URL", help="Copy this store …")
@click.option("--to", "target", metavar="URL", help="… into this empty one.")
@arguments.flag("--force", "Copy even if a server uses the store or turns are running.")
def migrate(app: App, dry_run: bool, seal: bool, source: str | None, target: str | None, force: bool) -> int:
    """Update the schema, or copy everything into another store.

    Every command updates the schema by itself; this one prints what it did. Repeating it is harmless. The database of
    an older orchestrator is converted, and its tables are kept. --seal works in small steps, can be interrupted and
    repeated, and removes the search index.

    With --from and --to, one store is copied into another and both are compared at the end. The first stays readable.
    After an interruption, the same command continues.
    """
    if source is not None or target is not None:
        copied = _copied(source, target, force=force, dry_run=dry_run)
        app.show(copied, lambda: say(facts(worded(flat(copied)))))
        return 0
    is_postgres = config.is_postgres(app.full_url)
    done = asyncio.run(_postgres(app.full_url, dry_run, seal)) if is_postgres else _sqlite(app, dry_run, seal)
    app.show(done, lambda: say(facts(worded(flat({name: value or "nothing" for name, value in done.items()})))))
    return NO if seal and not dry_run and _is_plain_left(done["sealed"]) else 0


def _is_plain_left(sealed: Done) -> bool:
    """Report what could not be sealed, and return whether there is any."""
    is_compact = sealed.get("is_compact", True)  # of a file; a database reuses its space by itself
    if sealed.get("plain_tables"):
        complain(
            f"{', '.join(sealed['plain_tables'])}: tables of an older orchestrator, kept as they were and not sealed; "
            "drop them when you no longer need them"
        )
    if not is_compact:
        complain("other processes use the file, so it may still have plain text in it; stop them and seal again")
    for problem in sealed["left"]:
        complain(f"left as it is: {problem}")
    return bool(sealed["left"] or not is_compact)


# SQLite -----------------------------------------------------------------------------------------


def _sqlite(app: App, dry_run: bool, seal: bool) -> Done:
    from moorage.stores.sqlite.store import LATEST

    path = sqlite_file(app)
    brought_in = _bring_in_older(path, dry_run)
    before = 0 if brought_in else _schema_of(path)
    missing = list(range(before + 1, LATEST + 1))
    if not dry_run:
        connect(app.url).close()  # opening the store applies missing migrations, or raises an error with the reason
    done: Done = {"url": app.full_url, "schema_before": before, "schema": before if dry_run else LATEST}
    done["missing" if dry_run else "applied"] = missing
    if brought_in:
        done["to_bring_in" if dry_run else "brought_in"] = brought_in
    return done | (_seal_file(path, dry_run) if seal else {})


def sqlite_file(app: App) -> str:
    """Return the file that the URL names. Raises Unsupported if it names none."""
    if not app.full_url.startswith("sqlite://"):
        why = "a server sees to its store's schema itself" if app.is_remote else "only those have a schema to look at"
        raise Unsupported(f"{app.full_url!r} is not a SQLite file; {why}")
    return config.sqlite_path(app.full_url)


def _bring_in_older(path: str, dry_run: bool) -> Done | None:
    """Import the database of an older orchestrator, or tell what would be imported; None for any other file."""
    from moorage.legacy import database as legacy

    if not legacy.is_older_file(path):
        return None
    done = legacy.rehearse(path) if dry_run else legacy.bring_in_file(path, config.find_sealer())
    return None if done is None else to_builtins(done)


def _schema_of(path: str) -> int:
    """Return the version of the schema, 0 if there is no file. Change nothing."""
    from moorage.stores.sqlite.connection import SqliteConnection, translating
    from moorage.stores.sqlite.store import schema_version

    if not os.path.exists(path):
        return 0
    with closing(SqliteConnection(path)) as db, translating(path):
        return schema_version(db)


def _seal_file(path: str, dry_run: bool) -> Done:
    """Seal a whole database, or count what remains to be sealed."""
    from moorage.core.inline import drive
    from moorage.stores.sql.sealed import count_plain
    from moorage.stores.sqlite.care import rewrite
    from moorage.stores.sqlite.connection import SqliteConnection, translating

    if dry_run and not os.path.exists(path):
        return {"to_seal": 0}
    with closing(SqliteConnection(path, sealer=config.find_sealer())) as db, translating(path):
        if dry_run:
            return {"to_seal": drive(count_plain(db.driven))}
        with counting("Sealing") as progress:
            return {"sealed": to_builtins(rewrite(db, progress))}


# PostgreSQL -------------------------------------------------------------------------------------


async def _postgres(url: str, dry_run: bool, seal: bool) -> Done:
    from moorage.stores.postgres.migrate import LATEST

    async with _opened(url) as opened:
        store = cast("PostgresStore", opened)
        before = await store.schema()
        missing = list(range(before + 1, LATEST + 1))
        done: Done = {"url": config.without_password(url), "schema_before": before}
        if dry_run:
            to_seal = {"to_seal": await store.count_plain() if before else 0} if seal else {}
            return done | {"schema": before, "missing": missing} | to_seal
        await store.owners()  # the first request brings the schema up to date
        done |= {"schema": max(before, LATEST), "applied": missing}
        if seal:
            with counting("Sealing") as progress:
                done["sealed"] = to_builtins(await store.seal(progress))
        return done


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = config.open_store(url, threaded=True)
    try:
        yield store
    finally:
        await store.close()


# Copying ----------------------------------------------------------------------------------------


def _copied(source: str | None, target: str | None, *, force: bool, dry_run: bool) -> Done:
    if source is None or target is None:
        raise click.UsageError("--from and --to go together: the store to copy, and an empty one to copy it into")
    names = {"from": _checked("from", source), "to": _checked("to", target)}
    if names["from"] == names["to"]:
        raise InvalidField("url", "of --to is the store to copy; name another store")
    return names | asyncio.run(_count(source) if dry_run else _copy(source, target, names["from"], force))


def _checked(what: str, url: str) -> str:
    """Return the canonical name of a persistent store, however its URL is written."""
    shown = config.without_password(url)
    if url.startswith("memory://") or config.is_server(url):
        why = "is a server" if config.is_server(url) else "is gone with its process"
        raise Unsupported(f"--{what} {shown} {why}; name the store itself, sqlite:///FILE or postgresql://…", url=shown)
    if not url.startswith("sqlite://"):
        return shown
    path = config.sqlite_path(url)
    if what == "from" and not os.path.exists(path):
        raise InvalidField("url", f"of --from is {shown}, and there is no such file")
    return config.sqlite_url(os.path.abspath(path))


async def _count(source: str) -> Done:
    from moorage.core.dump import DumpKind
    from moorage.service.copying import all_records

    async with _opened(source) as store:
        return {"to_copy": {kind.value: sum([1 async for _ in all_records(store, kind)]) for kind in DumpKind}}


async def _copy(source: str, target: str, name: str, force: bool) -> Done:
    from moorage.service.copying import copy_store

    async with _opened(source) as ours, _opened(target) as theirs:
        with stating("Copying") as state:
            tell = None if state is None else lambda doing, kind, count: state(f"{doing} … {kind} {count}")
            done = await copy_store(ours, theirs, name, config.SystemClock().now(), force=force, progress=tell)
    return {"copied": done.counts, "digest": done.digest, "went_on": done.went_on}
