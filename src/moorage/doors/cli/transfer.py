"""Export and import: whole sessions as JSON lines, as Markdown to read, and from files of other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import IO, Any

import click

from moorage.adapters import TARGETS
from moorage.config import is_postgres, replacing, without_password
from moorage.core.codec import decode
from moorage.core.errors import InvalidField, NotFound
from moorage.core.query import every
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, command
from moorage.doors.cli.edge import NO, UsageProblem
from moorage.doors.cli.output import complain, is_terminal, printable, reading, say, show_json
from moorage.doors.cli.wording import counted
from moorage.files.finding import AUTO, SOURCES
from moorage.service.transfer import ImportReport

FILE, FORMATS = click.Path(exists=True, dir_okay=False), click.Choice(["jsonl", "markdown"])
SOURCE = click.Choice(SOURCES)
HEADER = '{"type":"moorage"'


# Out --------------------------------------------------------------------------------------------


@command(
    "export",
    "moorage export plan-prod --tree > plan-prod.jsonl",
    "moorage export --all -o sessions.jsonl",
    "moorage export plan-prod --format markdown",
)
@click.argument("sessions", type=arguments.SESSION, nargs=-1, metavar="[SESSION]...")
@arguments.flag("--all", "everything", "Export all sessions.")
@arguments.flag("--tree", "Include their descendants.")
@click.option("--format", "form", type=FORMATS, default="jsonl", show_default=True, help="Output format.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE, completely or not at all."
)
def export(app: App, sessions: tuple[str, ...], everything: bool, tree: bool, form: str, output: str | None) -> None:
    """Write sessions as JSON lines or as Markdown.

    `import` reads JSON lines. Secrets in tool calls are redacted.
    """
    if bool(sessions) is everything:
        raise UsageProblem("say what to export: either sessions or --all")
    ids = dict.fromkeys([app.id_of(ref) for ref in sessions])
    named = (line for id in ids for line in app.moor.export(id, tree=tree, format=form))
    lines = _all(app, form) if everything else named
    if form == "jsonl":  # several exports in one file have one header
        lines = (line for number, line in enumerate(lines) if number == 0 or not line.startswith(HEADER))
    if output is not None:
        written = _write_whole(output, lines)
        app.show({"file": output, "format": form, "lines": written}, lambda: say(output))
    elif app.as_json:
        document = {"text": "\n".join(lines)} if form == "markdown" else {"lines": [decode(line) for line in lines]}
        show_json({"format": form, **document})
    else:
        shown = printable if is_terminal() else str  # a terminal would interpret control characters of the text
        for line in lines:
            sys.stdout.write(f"{shown(line)}\n")


def _all(app: App, form: str) -> Iterator[str]:
    """Yield the exports of all sessions, parents before children; leave out a session deleted meanwhile."""
    sessions = sorted(every(partial(app.moor.list, sort="created")), key=lambda session: session.depth)
    for session_id in [session.session_id for session in sessions]:
        try:
            lines = list(app.moor.export(session_id, format=form))
        except NotFound as gone:
            complain(f"warning: left out: {gone.message}")
        else:
            yield from lines


def _write_whole(path: str, lines: Iterable[str]) -> int:
    """Write the lines to a file, completely or not at all; return their number."""
    try:
        with replacing(path, mode=0o600) as file:
            return sum(1 for line in lines if file.write(f"{line}\n".encode()))
    except OSError as error:
        raise InvalidField("output", f"{path!r} cannot be written: {error.strerror}") from None


# In ---------------------------------------------------------------------------------------------


def _postgres_url(value: str, _: str) -> str:
    """Return the URL of a PostgreSQL database; one for SQLAlchemy may name its driver."""
    from moorage.adapters.moving import is_postgres

    if not is_postgres(value):
        raise click.BadParameter("not a PostgreSQL URL; write postgresql://USER@HOST/DATABASE")
    return value


POSTGRES = arguments.Parsed("url", _postgres_url)
MOVING = {"langgraph": "langgraph.moving", "openai": "openai_moving", "adk": "adk_moving"}  # what reads their files


@command(
    "import",
    "moorage import sessions.jsonl --dry-run",
    "moorage import .claude/session",
    "moorage import ~/.claude/projects/my-project",
    "moorage import chat.json --from openai",
    "moorage export plan-prod | moorage --url sqlite:///copy.db import -",
    "moorage import --postgres-table sessions --database postgresql:///agent_platform",
    "moorage import --langgraph-sqlite checkpoints.sqlite --dry-run",
    "moorage import --openai-sqlite conversations.db",
    "moorage import --adk-sqlite sessions.db",
    "moorage import --langgraph-postgres postgresql://me@db.example/agents --dry-run",
)
@click.argument("paths", type=click.Path(exists=True, allow_dash=True), nargs=-1, metavar="PATH|-...")
@click.option(
    "--from", "source", type=SOURCE, default=AUTO, show_default=True, help="Format of the files; by default detected."
)
@arguments.flag("--dry-run", "Show what would be imported, and write nothing.")
@arguments.flag("--detach", "Import sessions whose parent is missing as roots.")
@click.option("--postgres-table", "table", metavar="TABLE", help="A table with session_id, context, updated_at.")
@click.option("--database", metavar="URL", help="The database of the table, if it is not the store's.")
@click.option("--langgraph-sqlite", type=FILE, metavar="FILE", help="Threads of LangGraph's SqliteSaver.")
@click.option("--langgraph-postgres", type=POSTGRES, help="Threads of LangGraph's PostgresSaver.")
@click.option("--openai-sqlite", type=FILE, metavar="FILE", help="Sessions of OpenAI's SQLiteSession.")
@click.option("--openai-postgres", type=POSTGRES, help="Sessions of OpenAI's SQLAlchemySession.")
@click.option("--adk-sqlite", type=FILE, metavar="FILE", help="Sessions of Google ADK's own services.")
@click.option("--adk-postgres", type=POSTGRES, help="Sessions of Google ADK's DatabaseSessionService.")
def import_(app: App, /, paths: tuple[str, ...], table: str | None, database: str | None, **known: Any) -> int:
    """Import sessions from files, folders or a table.

    It reads exports, state.json files, transcripts of Claude Code, and lists of messages. Importing twice changes
    nothing. An export is imported completely or not at all. Of files of other programs, all valid parts are imported;
    invalid ones are reported, and the exit code is 1.
    """
    options = [(f"{name}_{kind}", module) for name, module in MOVING.items() for kind in ("sqlite", "postgres")]
    kept = [(module, source) for option, module in options if (source := known.pop(option)) is not None]
    if not paths and table is None and not kept:
        raise UsageProblem("say what to import: files, folders, --postgres-table, or the database of a framework")
    files = [sys.stdin.buffer if path == arguments.STDIN else path for path in dict.fromkeys(paths)]
    with _rows_of(app, table, database) as rows, reading("Importing") as progress:
        sources = files + rows
        report = app.moor.import_files(sources, progress=progress, **known) if sources else ImportReport()
    for module, source in kept:
        move_in = import_module(f"moorage.adapters.{module}").move_in
        report.add(move_in(app.moor, source, dry_run=known["dry_run"]))
    app.show(report, lambda: _show_report(report, known["dry_run"]))
    return NO if report.left_out_total else 0


@contextmanager
def _rows_of(app: App, table: str | None, database: str | None) -> Iterator[list[str | IO[bytes]]]:
    """Yield a file with the rows of a table, named like the table."""
    if table is None:
        if database is not None:
            raise UsageProblem("--database goes with --postgres-table")
        yield []
        return
    url = database or app.full_url
    if not is_postgres(url):
        shown = without_password(url)
        raise UsageProblem(f"{shown} is not a PostgreSQL database; name that of the table with --database")
    from tempfile import TemporaryFile

    from moorage.files.taking import write_rows

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
    came = f"{counted(len(report.imported), 'session')}, {counted(report.entries, 'entry', 'entries')}"
    return f"{done} {came}; {'; '.join(counts)}."


# Elsewhere --------------------------------------------------------------------------------------


@command(
    "continue",
    "moorage continue plan-prod --in openai-agents",
    "moorage continue plan-prod --in langgraph --as thread-7 --dry-run",
    "moorage continue plan-prod --in claude --folder ~/projects/web",
)
@arguments.session
@click.option("--in", "framework", type=click.Choice(TARGETS), required=True, help="The framework to continue in.")
@click.option("--as", "framework_id", metavar="ID", help="The id in that framework; generated by default.")
@click.option(
    "--folder", type=click.Path(file_okay=False), default=".", metavar="DIR", help="Project folder of a Claude session."
)
@arguments.flag("--dry-run", "Show what would be copied, and write nothing.")
def continue_(app: App, session: str, **wanted: Any) -> None:
    """Copy a session for another framework.

    Prints the id of the copy. Messages, tool calls with their results and the system prompt are copied; what cannot
    be copied is reported. The session itself does not change.
    """
    import asyncio

    from moorage.adapters.continuing import continue_in

    done = asyncio.run(continue_in(app.moor, app.id_of(session), **wanted))
    for each in done.left_out:
        complain(f"left out: {each}")
    if done.system_prompt and not app.as_json:
        complain(f"pass the system prompt yourself: {done.system_prompt}")
    told = f"{counted(done.messages, 'message')} of {done.continues} go on in {done.framework} as {done.framework_id}."
    app.tell(done, f"Would be carried: {told}" if wanted["dry_run"] else told, done.framework_id)
