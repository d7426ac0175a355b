"""Whatever becomes of a file: importing it never fails, never brings in half a session, and says what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage import sync
from moorage.core.errors import InvalidImport
from moorage.core.window import unanswered_calls
from moorage.service.transfer import ImportReport
from tests.fuzz.inputs import kept, many, tried
from tests.service.doors import Timed, timed_on
from tests.service.histories import EXPLORER, HOST, OLD, PROJECT, READER, STATE

owners = (f"owner-{number}" for number in count())
examples = settings(max_examples=many(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
pytestmark = pytest.mark.timeout(120 + many(80))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("../../evil"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module", params=["model", "sqlite"])
def pool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timed]:
    """A store for all examples; each is an owner of its own."""
    with ExitStack() as connections:
        yield timed_on(request.param, tmp_path_factory.mktemp("store"), connections)


def imported(pool: Timed, source: Path) -> tuple[sync.Moorage, ImportReport]:
    """Import for a new owner, and check that all imported sessions are whole; then once more."""
    with tried("histories", packed(source)):
        return check_import(pool, source)


def packed(source: Path) -> bytes:
    """The file as the corpus has it, with its name on the first line; of a folder, its damaged files are not known."""
    return b"a folder\n" if source.is_dir() else source.name.encode() + b"\n" + source.read_bytes()


def check_import(pool: Timed, source: Path) -> tuple[sync.Moorage, ImportReport]:
    moor = pool.connect(owner=next(owners))
    report = moor.import_files([source], source="auto" if source.is_dir() else kind_of(source))
    sessions = {session.id: session for session in moor.list(limit=100)}
    assert sorted(sessions) == sorted(report.imported)
    for session in sessions.values():
        check_whole(moor, session.id)
    before = [list(moor.export(ref)) for ref in sorted(sessions)]
    again = moor.import_files([source], source="auto" if source.is_dir() else kind_of(source))
    assert (again.imported, sorted(again.already_there)) == ([], sorted(sessions))
    assert [list(moor.export(ref)) for ref in sorted(sessions)] == before
    return moor, report


def kind_of(source: Path) -> str:
    return "state" if source.suffix == ".json" else "claude-code"


def check_whole(moor: sync.Moorage, ref: str) -> None:
    """A session that any rule could have made, whose every result follows its call."""
    session, entries = moor.get(ref), moor.log(ref, limit=1000).items
    assert [entry.number for entry in entries] == list(range(1, session.last_entry + 1))
    messages = [entry for entry in entries if entry.is_message]
    open_calls: set[str] = set()
    for entry in messages:
        for part in entry.content if isinstance(entry.content, list) else ():
            if part["type"] == "tool_call":
                open_calls.add(part["id"])
            elif part["type"] == "tool_result":
                open_calls.remove(part["call_id"])
    assert {call for _, call, _ in unanswered_calls(messages)} == open_calls
    assert moor.messages(ref, last=3) is not None
    if not session.is_final:
        moor.fork(ref, session_id=f"{ref}-fork")
        moor.resume(f"{ref}-fork")
        moor.append(f"{ref}-fork", "on we go")
        moor.delete(f"{ref}-fork")


# Ways to mutilate a file ------------------------------------------------------------------------


def damaged(data: bytes, draw: Callable[[st.SearchStrategy[Any]], Any]) -> bytes:
    """The bytes cut, with something in the middle gone, repeated, or overwritten."""
    start, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    how = draw(st.sampled_from(["cut", "gone", "repeated", "overwritten"]))
    if how == "cut":
        return data[:end]
    if how == "gone":
        return data[:start] + data[end:]
    if how == "repeated":
        return data[:end] + data[start:]
    written: bytes = draw(st.binary(max_size=20))
    return data[:start] + written + data[start + 20 :]


def altered(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """The value with something, anywhere in it, replaced or taken out."""
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 5)) == 0:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: altered(value[key], draw)}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], altered(value[place], draw), *value[place + 1 :]]
    return draw(values)


def shuffled(lines: list[Any], draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[Any]:
    """The lines in another order, some missing, some twice."""
    order = draw(st.lists(st.integers(0, len(lines) - 1), max_size=2 * len(lines)))
    return [lines[place] for place in order]


# Transcripts ------------------------------------------------------------------------------------


def test_kept_files(pool: Timed, tmp_path: Path) -> None:
    for sent in kept("histories"):
        name, _, content = sent.partition(b"\n")
        (tmp_path / name.decode()).write_bytes(content)
        imported(pool, tmp_path / name.decode())


@examples
@given(data=st.data(), source=st.sampled_from([PROJECT / f"{HOST}.jsonl", OLD]))
def test_a_transcript_with_damaged_bytes(pool: Timed, tmp_path: Path, data: st.DataObject, source: Path) -> None:
    path = tmp_path / source.name
    whole = source.read_bytes()
    path.write_bytes(damaged(whole, data.draw))
    _, report = imported(pool, path)
    if report.imported == [] and path.read_bytes().strip():
        assert report.left_out_total or report.passed_over


@examples
@given(data=st.data(), source=st.sampled_from([PROJECT / f"{HOST}.jsonl", OLD]))
def test_a_transcript_in_which_anything_says_anything(
    pool: Timed, tmp_path: Path, data: st.DataObject, source: Path
) -> None:
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = altered(lines[place], data.draw)
    path = tmp_path / source.name
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    imported(pool, path)


@examples
@given(data=st.data(), source=st.sampled_from([PROJECT / f"{HOST}.jsonl", OLD]))
def test_a_transcript_in_any_order(pool: Timed, tmp_path: Path, data: st.DataObject, source: Path) -> None:
    lines = shuffled(source.read_text().splitlines(keepends=True), data.draw)
    path = tmp_path / source.name
    path.write_text("".join(lines))
    imported(pool, path)


@examples
@given(data=st.data())
def test_a_project_of_which_one_file_is_damaged(pool: Timed, tmp_path: Path, data: st.DataObject) -> None:
    files = sorted(path for path in PROJECT.rglob("*") if path.is_file())
    hurt = data.draw(st.sampled_from(files))
    for path in files:
        copy = tmp_path / path.relative_to(PROJECT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(damaged(path.read_bytes(), data.draw) if path == hurt else path.read_bytes())
    _, report = imported(pool, tmp_path)
    untouched = {HOST, EXPLORER, READER} - {hurt.stem.removeprefix("agent-").removesuffix(".meta")}
    missing = untouched - set(report.imported)
    assert not missing or report.left_out_total >= len(missing), "what does not come in is told"


# States -----------------------------------------------------------------------------------------


@examples
@given(data=st.data())
def test_a_state_with_damaged_bytes(pool: Timed, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(damaged(STATE.read_bytes(), data.draw))
    _, report = imported(pool, path)
    assert len(report.imported) + report.left_out_total == 1


@examples
@given(data=st.data())
def test_a_state_in_which_anything_says_anything(pool: Timed, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(altered(json.loads(STATE.read_text()), data.draw)))
    _, report = imported(pool, path)
    assert len(report.imported) + report.left_out_total == 1


# Told apart -------------------------------------------------------------------------------------


@examples
@given(data=st.data(), source=st.sampled_from([PROJECT / f"{HOST}.jsonl", OLD, STATE]))
def test_undecodable_file_is_refused_and_changes_nothing(
    pool: Timed, tmp_path: Path, data: st.DataObject, source: Path
) -> None:
    path = tmp_path / "something.bin"
    path.write_bytes(damaged(source.read_bytes(), data.draw))
    moor = pool.connect(owner=next(owners))
    report = ImportReport()
    with tried("histories", packed(path)):
        with suppress(InvalidImport):
            report = moor.import_files([path])
        assert sorted(session.id for session in moor.list()) == sorted(report.imported)
