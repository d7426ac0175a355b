"""Files and folders to import: what is found in them, what it is taken for, and in which order it comes in."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.core.errors import InvalidField, InvalidImport, ParentNotFound
from moorage.files.finding import find
from tests.service.doors import Place, Timed
from tests.service.histories import (
    EXPLORER,
    HOST,
    OLD,
    PROJECT,
    READER,
    STATE,
    a_project,
    a_state,
    said,
    write_lines,
    write_state,
)

ID = "agent-20260108-180530-abc12345"


def an_export(timed: Timed, path: Path, session_id: str, parent: str | None = None) -> Path:
    """An export of a session, which then is there no longer."""
    there = timed.connect(owner=f"owner-of-{session_id}")
    if parent is not None:
        there.create(session_id=parent)
    there.create(session_id=session_id, parent=parent)
    path.write_text("\n".join(there.export(session_id)))
    return path


def kinds(*sources: Path, kind: str = "auto") -> dict[str, str | None]:
    return {Path(file.name).name: file.kind for file in find(sources, kind)}


def test_file_format_is_detected_by_content(timed: Timed, tmp_path: Path) -> None:
    export = an_export(timed, tmp_path / "a", "s-1")
    state = tmp_path / "b"
    state.write_bytes(STATE.read_bytes())
    compact = tmp_path / "c"
    compact.write_text(json.dumps(a_state()))
    transcript = tmp_path / "d"
    transcript.write_bytes((PROJECT / f"{HOST}.jsonl").read_bytes())
    assert kinds(export, state, compact, transcript) == {
        "a": "moorage",
        "b": "state",
        "c": "state",
        "d": "claude-code",
    }


def test_a_transcript_may_begin_with_much_else(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        "broken",
        said("u-1", "hello"),
    ]
    assert kinds(write_lines(tmp_path / "x", lines)) == {"x": "claude-code"}


@pytest.mark.parametrize("text", ["", "\n\n", "hello", "{}", "[]", "null", '{"type": "other"}', '{"agent_id": "a"}'])
def test_unknown_format_is_refused_with_the_file_name(timed: Timed, tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(InvalidImport, match=r"notes\.txt: neither an export") as refused:
        timed.moor.import_files([STATE, path])
    assert refused.value.file == str(path)
    assert timed.moor.list().items == [], "nothing else came in either"


def test_a_path_that_is_not_there_is_refused(timed: Timed, tmp_path: Path) -> None:
    with pytest.raises(InvalidImport, match="cannot be read"):
        timed.moor.import_files([STATE, tmp_path / "nothing"])
    assert timed.moor.list().items == []


def test_a_kind_there_is_not_is_refused(timed: Timed) -> None:
    with pytest.raises(InvalidField, match="use one of auto, moorage, state, claude-code"):
        timed.moor.import_files([STATE], source="letters")


def test_given_format_overrides_detection(timed: Timed, tmp_path: Path) -> None:
    with pytest.raises(InvalidImport, match="not a line of an export"):
        timed.moor.import_files([STATE], source="moorage")
    report = timed.moor.import_files([STATE], source="claude-code")
    assert (report.imported, report.left_out_total) == ([], len(STATE.read_text().splitlines()))
    report = timed.moor.import_files([OLD], source="state")
    assert (report.imported, report.left_out_total) == ([], 1)


def test_only_the_requested_files_of_a_folder_are_imported(timed: Timed, tmp_path: Path) -> None:
    write_state(a_project(tmp_path), a_state())
    assert timed.moor.import_files([tmp_path], source="state").imported == [ID]
    assert timed.moor.import_files([tmp_path], source="claude-code").imported == [HOST, EXPLORER, READER]


def test_a_home_of_the_host_is_looked_through(timed: Timed, tmp_path: Path) -> None:
    a_project(tmp_path / ".claude" / "projects")
    write_state(tmp_path, a_state())
    (tmp_path / ".claude" / "history.jsonl").write_text('{"display": "hello"}\n')
    (tmp_path / ".claude" / "settings.json").write_text("{}")
    report = timed.moor.import_files([tmp_path / ".claude"])
    assert report.imported == [ID, HOST, EXPLORER, READER]
    assert report.left_out_total == 0


def test_sub_agents_beside_their_host_are_found_too(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    for path in sorted((project / HOST / "subagents").iterdir()):
        path.rename(project / path.name)
    assert timed.moor.import_files([project]).imported == [HOST, EXPLORER, READER]


def test_links_that_lead_round_and_round_and_pipes_are_left_alone(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    (project / "again").symlink_to(project)
    os.mkfifo(project / "00000000-0000-4000-8000-000000000000.jsonl")
    assert timed.moor.import_files([project]).imported == [HOST, EXPLORER, READER]


def test_a_pipe_that_was_named_is_read(timed: Timed, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(STATE.read_bytes()))
    writer.start()
    assert timed.moor.import_files([pipe]).imported == [ID]
    writer.join(timeout=10)


def test_a_pipe_with_nothing_known_is_refused(timed: Timed, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("hello"))
    writer.start()
    with pytest.raises(InvalidImport, match="neither an export"):
        timed.moor.import_files([pipe])
    writer.join(timeout=10)


def test_a_file_given_twice_is_read_once(timed: Timed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(a_project(tmp_path))
    report = timed.moor.import_files([f"{HOST}.jsonl", f"./{HOST}.jsonl", "."])
    assert (report.imported, report.already_there) == ([HOST, EXPLORER, READER], [])


# Exports among others ---------------------------------------------------------------------------


def test_exports_and_foreign_files_are_imported_together(timed: Timed, tmp_path: Path) -> None:
    export = an_export(timed, tmp_path / "s-1.jsonl", "s-1")
    report = timed.moor.import_files([OLD, STATE, export])
    assert report.imported == ["s-1", ID, OLD.stem, "o-03"]


def test_a_child_may_come_in_a_later_export_than_its_parent(timed: Timed, tmp_path: Path) -> None:
    parent = an_export(timed, tmp_path / "a.jsonl", "root")
    child = an_export(timed, tmp_path / "b.jsonl", "child", parent="root")
    with pytest.raises(ParentNotFound):
        timed.moor.import_files([child])
    assert timed.moor.import_files([parent, child]).imported == ["root", "child"]


def test_an_export_that_is_not_whole_keeps_everything_out(timed: Timed, tmp_path: Path) -> None:
    sound = an_export(timed, tmp_path / "a.jsonl", "s-1")
    cut = an_export(timed, tmp_path / "b.jsonl", "s-2")
    cut.write_text("\n".join(cut.read_text().splitlines()[:-1]))
    with pytest.raises(InvalidImport, match=r"b\.jsonl: line 3: the file ends within session s-2") as refused:
        timed.moor.import_files([sound, cut, STATE])
    assert (refused.value.file, refused.value.line) == (str(cut), 3)
    assert timed.moor.list().items == []


def test_an_export_alone_is_refused_as_import_refuses_it(timed: Timed, tmp_path: Path) -> None:
    cut = an_export(timed, tmp_path / "b.jsonl", "s-2")
    cut.write_text("\n".join(cut.read_text().splitlines()[:-1]))
    with pytest.raises(InvalidImport) as of_files:
        timed.moor.import_files([cut])
    with pytest.raises(InvalidImport) as of_lines:
        timed.moor.import_(cut.read_text().splitlines())
    assert of_files.value.to_dict() == of_lines.value.to_dict()


# With an event loop -----------------------------------------------------------------------------


async def test_the_event_loop_goes_on_while_files_are_read(place: Place) -> None:
    async with moorage.connect(place.url) as moor, asyncio.timeout(60):
        importing = asyncio.ensure_future(moor.import_files([PROJECT, STATE]))
        others = await asyncio.gather(*(moor.create("other", parent=None) for _ in range(5)))
        report = await importing
        assert report.imported == [ID, HOST, EXPLORER, READER]
        assert len((await moor.list(limit=100)).items) == len(others) + 4
