"""Export and import: whole sessions as JSON lines, and as Markdown to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from typing import IO, Any

import click

from holdfast.core.codec import decode
from holdfast.core.errors import InvalidField, NotFound
from holdfast.core.query import MAX_LIMIT
from holdfast.doors.cli.app import App, command, pass_app
from holdfast.doors.cli.arguments import SESSION, STDIN
from holdfast.doors.cli.edge import UsageProblem
from holdfast.doors.cli.output import complain, is_terminal, say
from holdfast.doors.cli.progress import reading
from holdfast.service.transfer import ImportReport

HEADER = '{"type":"holdfast"'


# Out --------------------------------------------------------------------------------------------


@command(
    "export",
    examples=(
        "holdfast export plan-prod --tree > plan-prod.jsonl",
        "holdfast export --all -o sessions.jsonl",
        "holdfast export plan-prod --format markdown",
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
        for line in lines:
            sys.stdout.write(f"{line}\n")


def _named(app: App, refs: Iterable[str], *, tree: bool, form: str) -> Iterator[str]:
    """The exports of these sessions, one after another."""
    for session_id in dict.fromkeys([app.id_of(ref) for ref in refs]):
        yield from app.hf.export(session_id, tree=tree, format=form)


def _all(app: App, form: str) -> Iterator[str]:
    """The exports of every session, without those that are deleted meanwhile: each is there whole or not at all."""
    for session_id in _all_ids(app):
        try:
            lines = list(app.hf.export(session_id, format=form))
        except NotFound as gone:
            complain(f"warning: left out: {gone.message}")
        else:
            yield from lines


def _all_ids(app: App) -> list[str]:
    """Every session, parents before their children."""
    found: list[tuple[int, str]] = []
    cursor: str | None = None
    while True:
        page = app.hf.list(sort="created", limit=MAX_LIMIT, cursor=cursor)
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
        "holdfast import sessions.jsonl --dry-run",
        "holdfast import sessions.jsonl",
        "holdfast export plan-prod | holdfast --url sqlite:///copy.db import -",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), metavar="FILE|-")
@click.option("--dry-run", is_flag=True, help="Only say what would come in.")
@click.option("--detach", is_flag=True, help="Make sessions whose parent is not there roots.")
@pass_app
def import_(app: App, file: str, dry_run: bool, detach: bool) -> None:
    """Bring exported sessions in. Importing twice changes nothing.

    The file is read to its end before anything is written: one that was cut short changes nothing.
    """
    with _opened(file) as source, reading("Importing", 2 * _size_of(source)) as advance:
        report = app.hf.import_(_counted(source, advance), detach=detach, dry_run=True)
        if not dry_run:
            source.seek(0)
            report = app.hf.import_(_counted(source, advance), detach=detach)
    app.show(report, lambda: _show_report(report, dry_run))


def _opened(file: str) -> IO[bytes]:
    """The file, or a copy of standard input that can be read twice."""
    if file != STDIN:
        return open(file, "rb")
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    copy = TemporaryFile()  # noqa: SIM115  # the caller closes it
    copyfileobj(sys.stdin.buffer, copy)
    copy.seek(0)
    return copy


def _size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _counted(lines: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for line in lines:
        yield line
        advance(len(line))


def _show_report(report: ImportReport, dry_run: bool) -> None:
    for session_id in report.imported:
        say(session_id)
    if is_terminal():
        done = "Would import" if dry_run else "Imported"
        counts = f"{len(report.imported)} sessions, {report.entries} entries"
        say(f"{done} {counts}; {len(report.already_there)} already there.")
