"""Export and import: whole sessions as JSON lines, as Markdown to read, and from what others kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import IO, Any

import click

from moorage.config import without_password
from moorage.core.codec import decode
from moorage.core.errors import InvalidField, NotFound
from moorage.core.query import MAX_LIMIT
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.arguments import SESSION, STDIN
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import complain, is_terminal, printable, say
from moorage.doors.cli.progress import reading
from moorage.doors.cli.verdicts import NO
from moorage.files.finding import AUTO, SOURCES
from moorage.service.importing import ImportReport

HEADER = '{"type":"moorage"'


# Out --------------------------------------------------------------------------------------------


@command(
    "export",
    examples=(
        "moorage export plan-prod --tree > plan-prod.jsonl",
        "moorage export --all -o sessions.jsonl",
        "moorage export plan-prod --format markdown",
    ),
)
@click.argument("sessions", type=SESSION, nargs=-1, metavar="[SESSION]...")
@click.option("--all", "everything", is_flag=True, help="All sessions, with or without --tree.")
@click.option("--tree", is_flag=True, help="With all that hangs on them.")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True, help="The form."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE, whole or not at all."
)
@pass_app
def export(app: App, sessions: tuple[str, ...], everything: bool, tree: bool, form: str, output: str | None) -> None:
    """Write sessions as JSON lines, which `import` reads, or as Markdown.

    Secrets in tool calls are redacted on the way out.
    """
    if bool(sessions) is everything:
        raise UsageProblem("say what to export: either sessions or --all")
    lines = _all(app, form) if everything else _named(app, sessions, tree=tree, form=form)
    if form == "jsonl":
        lines = _with_one_header(lines)
    if output is not None:
        count = _write_whole(output, lines)
        app.show({"file": output, "format": form, "lines": count}, lambda: say(output))
    elif app.as_json:
        app.show(_as_document(lines, form), lambda: None)
    else:
        shown = printable if is_terminal() else str  # a terminal would obey what an agent wrote
        for line in lines:
            sys.stdout.write(f"{shown(line)}\n")


def _named(app: App, refs: Iterable[str], *, tree: bool, form: str) -> Iterator[str]:
    """The exports of these sessions, one after another."""
    for session_id in dict.fromkeys([app.id_of(ref) for ref in refs]):
        yield from app.moor.export(session_id, tree=tree, format=form)


def _all(app: App, form: str) -> Iterator[str]:
    """The exports of every session, without those that are deleted meanwhile: each is there whole or not at all."""
    for session_id in _all_ids(app):
        try:
            lines = list(app.moor.export(session_id, format=form))
        except NotFound as gone:
            complain(f"warning: left out: {gone.message}")
        else:
            yield from lines


def _all_ids(app: App) -> list[str]:
    """Every session, parents before their children."""
    found: list[tuple[int, str]] = []
    cursor: str | None = None
    while True:
        page = app.moor.list(sort="created", limit=MAX_LIMIT, cursor=cursor)
        found += [(session.depth, session.session_id) for session in page.items]
        if (cursor := page.next) is None:
            return [session_id for _, session_id in sorted(found, key=itemgetter(0))]


def _with_one_header(lines: Iterable[str]) -> Iterator[str]:
    """Several exports as one."""
    started = False
    for line in lines:
        if line.startswith(HEADER):
            if started:
                continue
            started = True
        yield line


def _as_document(lines: Iterable[str], form: str) -> dict[str, Any]:
    if form == "markdown":
        return {"format": form, "text": "\n".join(lines)}
    return {"format": form, "lines": [decode(line) for line in lines]}


def _write_whole(path: str, lines: Iterable[str]) -> int:
    """Write beside the file and put it in place when it is on disk; nobody ever sees half of it."""
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            count = sum(1 for line in lines if file.write(f"{line}\n"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise InvalidField("output", f"{path!r} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            os.unlink(beside)
    return count


# In ---------------------------------------------------------------------------------------------


@command(
    "import",
    examples=(
        "moorage import sessions.jsonl --dry-run",
        "moorage import .claude/session",
        "moorage import ~/.claude/projects/my-project",
        "moorage import chat.json --from openai",
        "moorage export plan-prod | moorage --url sqlite:///copy.db import -",
        "moorage import --postgres-table sessions --database postgresql:///agent_platform",
    ),
)
@click.argument("paths", type=click.Path(exists=True, allow_dash=True), nargs=-1, metavar="PATH|-...")
@click.option(
    "--from", "source", type=click.Choice(SOURCES), default=AUTO, show_default=True, help="Who wrote it, if you know."
)
@click.option("--dry-run", is_flag=True, help="Only say what would come in.")
@click.option("--detach", is_flag=True, help="Make sessions whose parent is not there roots.")
@click.option("--postgres-table", "table", metavar="TABLE", help="Rows of a table: session_id, context, updated_at.")
@click.option("--database", metavar="URL", help="The table's database, if it is not that of the store.")
@pass_app
@click.pass_context
def import_(
    ctx: click.Context,
    app: App,
    paths: tuple[str, ...],
    source: str,
    dry_run: bool,
    detach: bool,
    table: str | None,
    database: str | None,
) -> None:
    """Bring sessions in: exports, state.json files, transcripts of Claude Code, lists of messages; folders; a table.

    Importing twice changes nothing. An export is read to its end before anything is written, and one that
    was cut short changes nothing. Of what others kept, everything sound comes in; what was left out is
    told, and the exit code is 1.
    """
    if not paths and table is None:
        raise UsageProblem("say what to import: files, folders, or --postgres-table")
    with _opened(paths) as sources, _rows_of(app, table, database) as rows, reading("Importing") as progress:
        sources += rows
        report = app.moor.import_files(sources, source=source, detach=detach, dry_run=dry_run, progress=progress)
    app.show(report, lambda: _show_report(report, dry_run))
    ctx.exit(NO if report.left_out_total else 0)


@contextmanager
def _opened(paths: tuple[str, ...]) -> Iterator[list[str | IO[bytes]]]:
    """The paths, and for `-` a copy of standard input that can be read twice."""
    if STDIN not in paths:
        yield list(paths)
        return
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    with TemporaryFile() as copy:
        copyfileobj(sys.stdin.buffer, copy)
        yield [copy if path == STDIN else path for path in dict.fromkeys(paths)]


@contextmanager
def _rows_of(app: App, table: str | None, database: str | None) -> Iterator[list[str | IO[bytes]]]:
    """The rows of a table in a file, which is called like the table."""
    if table is None:
        if database is not None:
            raise UsageProblem("--database goes with --postgres-table")
        yield []
        return
    url = database or app.full_url
    if not url.startswith(("postgresql://", "postgres://")):
        raise UsageProblem(f"{without_password(url)} is no PostgreSQL database; name that of the table with --database")
    from tempfile import TemporaryFile

    from moorage.files.tables import write_rows

    with TemporaryFile() as rows:
        rows.raw.name = table  # type: ignore[attr-defined]  # so the report calls it
        yield [rows] if write_rows(url, table, rows) else []


def _show_report(report: ImportReport, dry_run: bool) -> None:
    for session_id in report.imported:
        say(session_id)
    for each in report.left_out:
        where = each.file if each.line is None else f"{each.file}:{each.line}"
        complain(f"left out: {where}: {each.reason}")
    if report.left_out_total > len(report.left_out):
        complain(f"left out: {report.left_out_total - len(report.left_out)} more")
    if is_terminal():
        say(_in_one_line(report, dry_run))


def _in_one_line(report: ImportReport, dry_run: bool) -> str:
    done = "Would import" if dry_run else "Imported"
    counts = [f"{len(report.already_there)} already there"]
    if report.left_out_total:
        counts.append(f"{report.left_out_total} left out")
    if report.passed_over:
        counts.append("passed over " + ", ".join(f"{count} {kind}" for kind, count in report.passed_over.items()))
    return f"{done} {len(report.imported)} sessions, {report.entries} entries; {'; '.join(counts)}."
