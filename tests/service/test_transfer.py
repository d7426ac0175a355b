"""Export and import: out and in the same, twice the same, and a cut file is noticed."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage import sync
from moorage.core.errors import InvalidImport, MoorageError, NameTaken, ParentNotFound, SessionGone
from tests.fuzz.inputs import kept, many, tried
from tests.service.doors import Place, Timed


def a_full_session(moor: sync.Moorage, session_id: str = "s-1", **fields: Any) -> str:
    """One of everything that an export carries."""
    moor.create(
        "planner", session_id=session_id, purpose="plan", metadata={"a": [1, {"b": "ü"}]}, labels=["x"], **fields
    )
    parts = [{"type": "tool_call", "id": "c-1", "name": "weather", "input": {"city": "Lisbon"}}]
    moor.append(
        session_id,
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello", "client_key": "k-1"},
            {"role": "assistant", "content": parts},
        ],
    )
    moor.update(session_id, phase="planning", error="oops")
    asked = moor.request_approval(session_id, "Apply?", plan={"x": 1}, options=["later"])
    moor.decide(asked.approval_id, "later", note="tomorrow")
    moor.request_approval(session_id, "Really?")
    moor.context.merge(session_id, {"colour": "blue", "deep": {"n": None}})
    moor.context.put(session_id, "dying", 1, ttl=3600)
    moor.suspend(session_id, checkpoint={"step": 3}, reason="lunch")
    moor.compact(session_id, "so far")
    return session_id


def another_place(timed: Timed, owner: str = "elsewhere") -> sync.Moorage:
    """A place where none of it is: another owner of the same store."""
    return timed.connect(owner=owner)


def without_owner(lines: list[str]) -> list[Any]:
    def strip(line: str) -> Any:
        value = json.loads(line)
        if value.get("type") == "session":
            del value["session"]["owner"]
        return value

    return [strip(line) for line in lines]


@pytest.mark.parametrize("state", ["open", "held", "completed"])
def test_export_import_export_gives_the_same_again(timed: Timed, state: str) -> None:
    moor, there = timed.moor, another_place(timed)
    ref = a_full_session(moor, name="planner")
    if state == "held":
        moor.resume(ref)
    elif state == "completed":
        moor.finalize(ref, "completed", summary="Done")
    lines = list(moor.export(ref))
    report = there.import_(lines)
    assert (report.imported, report.already_there, report.entries) == ([ref], [], moor.get(ref).last_entry)
    assert without_owner(list(there.export(ref))) == without_owner(lines)
    assert there.get("planner").hold is None
    assert there.log(ref).items == moor.log(ref).items
    assert there.check() == []


def test_an_imported_session_goes_on_like_any_other(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    ref = a_full_session(moor)
    there.import_(list(moor.export(ref)))
    last = there.get(ref).last_entry
    (pending,) = there.approvals()
    there.approve(pending.approval_id)
    assert there.append(ref, {"content": "hello", "client_key": "k-1"})[0].number == 3, "keys are remembered"
    packet = there.resume(ref)
    assert packet.checkpoint == {"step": 3}
    assert packet.context == {"colour": "blue", "deep": {"n": None}, "dying": 1}
    assert there.append(ref, "on we go")[0].number > last
    assert {hit.number for hit in there.search("brief")} == {2}
    timed.forward(hours=2)
    assert "dying" not in there.context.get(ref)


def test_importing_twice_changes_nothing(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    ref = a_full_session(moor)
    lines = list(moor.export(ref))
    there.import_(lines)
    there.append(ref, "meanwhile")
    before = list(there.export(ref))
    report = there.import_(lines)
    assert (report.imported, report.already_there, report.entries) == ([], [ref], 0)
    assert list(there.export(ref)) == before
    assert len(list(there.events(follow=False))) == there.get(ref).last_entry


def test_a_tree_is_carried_whole(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    a_full_session(moor, "root", name="the-root")
    for child, parent in (("a", "root"), ("b", "root"), ("a1", "a")):
        a_full_session(moor, child, parent=parent)
    lines = list(moor.export("root", tree=True))
    assert there.import_(lines).imported == ["root", "a", "b", "a1"]
    assert without_owner(list(there.export("root", tree=True))) == without_owner(lines)
    assert [session.id for session in there.ancestors("a1")] == ["a", "root"]
    assert there.get("a1").depth == 2
    assert there.delete("root").deleted_sessions == 4


def test_a_fork_is_carried_with_all_it_reads_even_after_its_source_is_gone(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    source = a_full_session(moor)
    fork = moor.fork(source, at=5, session_id="fork")
    moor.append(fork.id, "elsewhere")
    lines = list(moor.export(fork.id))
    moor.delete(source)
    assert list(moor.export(fork.id)) == lines
    there.import_(lines)
    assert without_owner(list(there.export(fork.id))) == without_owner(lines)
    assert there.get(fork.id).forked_from == source
    deeper = there.fork(fork.id)
    assert [entry.content for entry in there.log(deeper.id) if entry.is_message][-1] == "elsewhere"


def test_a_fork_that_used_a_key_of_its_source_is_carried_too(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    moor.create(session_id="source")
    moor.append("source", {"content": "once", "client_key": "k-1"})
    fork = moor.fork("source", session_id="fork")
    moor.append(fork.id, {"content": "again", "client_key": "k-1"})
    lines = list(moor.export("fork"))
    there.import_(lines)
    assert without_owner(list(there.export("fork"))) == without_owner(lines)
    assert there.append("fork", {"content": "again", "client_key": "k-1"})[0].number == 4


def test_a_child_without_its_parent_is_refused_or_detached(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    moor.create(session_id="root")
    moor.create(session_id="child", parent="root")
    lines = list(moor.export("child"))
    with pytest.raises(ParentNotFound):
        there.import_(lines)
    assert there.list().items == []
    assert there.import_(lines, detach=True).imported == ["child"]
    child = there.get("child")
    assert (child.parent_session_id, child.root_session_id, child.depth) == (None, "child", 0)


def test_a_name_or_an_id_that_is_taken_or_spent_is_refused(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    lines = list(moor.export(a_full_session(moor, "s-1", name="planner")))
    there.create(session_id="other", name="planner")
    with pytest.raises(NameTaken):
        there.import_(lines)
    there.finalize("other")
    there.import_(lines)
    there.delete("s-1")
    with pytest.raises(SessionGone):
        there.import_(lines)


def test_import_does_not_take_over_approvals_of_another_session(timed: Timed) -> None:
    moor = timed.moor
    ref = a_full_session(moor)
    before, asked = list(moor.export(ref)), moor.approvals()
    renamed = "\n".join(before).replace('"s-1"', '"s-2"').replace("Really?", "Forged?").splitlines()
    with pytest.raises(InvalidImport, match="belongs to session s-1"):
        moor.import_(renamed)
    assert (list(moor.export(ref)), moor.approvals()) == (before, asked)
    assert [session.id for session in moor.list()] == ["s-1"]


def test_a_dry_run_brings_nothing_in(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    ref = a_full_session(moor)
    assert there.import_(list(moor.export(ref)), dry_run=True).imported == [ref]
    assert there.list().items == []


# Files that are not whole -----------------------------------------------------------------------


def test_a_file_cut_short_anywhere_is_refused_and_nothing_brought_in(timed: Timed) -> None:
    moor = timed.moor
    text = "\n".join(moor.export(a_full_session(moor))) + "\n"
    for length in [*range(0, len(text) - 2, 97), len(text) - 3]:
        there = another_place(timed, f"cut-at-{length}")
        with pytest.raises(InvalidImport):
            there.import_(text[:length].splitlines())
        assert there.list().items == []


def test_a_file_with_a_line_missing_twice_or_misplaced_is_refused(timed: Timed) -> None:
    moor = timed.moor
    lines = list(moor.export(a_full_session(moor)))
    entries = [number for number, line in enumerate(lines) if '"type":"entry"' in line]
    for number in entries:
        for wrong in (
            lines[:number] + lines[number + 1 :],
            lines[: number + 1] + lines[number:],
            [*lines[:number], *lines[number + 1 : -1], lines[number], lines[-1]]
            if number != entries[-1]
            else lines[1:],
        ):
            there = another_place(timed, "elsewhere")
            with pytest.raises(InvalidImport):
                there.import_(wrong)
            assert there.list().items == []


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        ["{}"],
        ["null"],
        ["not json"],
        [b"\xff\xfe"],
        ['{"type":"moorage"}'],
        ['{"type":"moorage","format":99}'],
        ['{"type":"other","format":1}'],
        ['{"type":"moorage","format":1}', '{"type":"entry"}'],
        ['{"type":"moorage","format":1}', '{"type":"session","session":{}}'],
        ['{"type":"moorage","format":1}', '{"type":"gossip"}'],
    ],
)
def test_invalid_export_is_refused_with_its_line(place: Place, lines: list[Any]) -> None:
    moor = place.connect()
    with pytest.raises(InvalidImport) as refused:
        moor.import_(lines)
    assert refused.value.code == "invalid_import"
    assert moor.list().items == []


def test_a_good_session_before_a_broken_one_is_kept_and_the_error_says_where(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    moor.create(session_id="s-1")
    moor.create(session_id="s-2")
    lines = [*moor.export("s-1"), *list(moor.export("s-2"))[1:-1]]
    with pytest.raises(InvalidImport, match="s-2"):
        there.import_(lines)
    assert [session.id for session in there.list()] == ["s-1"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_id", "../../evil"),
        ("session_id", ""),
        ("session_id", "x" * 500),
        ("session_name", "a b"),
        ("state", "sleeping"),
        ("phase", "sleeping"),
        ("created_at", "yesterday"),
        ("created_at", "2026-03-01T12:00:00"),
        ("version", -1),
        ("version", "1"),
        ("last_entry", 10**12),
        ("depth", -5),
        ("metadata", []),
        ("labels", ["b", "a"]),
        ("labels", ["a b"]),
    ],
)
def test_a_session_no_rule_would_have_made_is_refused(timed: Timed, field: str, value: Any) -> None:
    moor, there = timed.moor, another_place(timed)
    lines = list(moor.export(a_full_session(moor)))
    head = json.loads(lines[1])
    head["session"][field] = value
    with pytest.raises(MoorageError):
        there.import_([lines[0], json.dumps(head), *lines[2:]])
    assert there.list().items == []


def test_import_redacts_secrets_and_places_a_root_as_one(timed: Timed) -> None:
    moor, there = timed.moor, another_place(timed)
    lines = list(moor.export(a_full_session(moor)))
    head = json.loads(lines[1])
    head["session"] |= {"metadata": {"password": "hunter2", "kept": 1}, "depth": 999, "root_session_id": "elsewhere"}
    there.import_([lines[0], json.dumps(head), *lines[2:]])
    came = there.get(head["session"]["session_id"])
    assert came.metadata == {"password": "[redacted]", "kept": 1}
    assert (came.depth, came.root_session_id) == (0, came.session_id)


serial = count()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.timeout(120 + many(150))
@settings(max_examples=many(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_a_line_is_imported_or_refused_in_our_words(timed: Timed, data: st.DataObject) -> None:
    moor = timed.moor
    if not moor.list().items:
        a_full_session(moor)
    lines = list(moor.export("s-1"))
    number = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[number])
    inner = line.get(line.get("type"), line)
    target = inner if isinstance(inner, dict) else line
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(json_values)
    check_import(timed, "\n".join([*lines[:number], json.dumps(line), *lines[number + 1 :]]).encode())


def test_kept_files_are_imported_or_refused_in_our_words(timed: Timed) -> None:
    for file in kept("exports"):
        check_import(timed, file)


def check_import(timed: Timed, file: bytes) -> None:
    there = timed.connect(owner=f"elsewhere-{next(serial)}")
    with tried("exports", file):
        try:
            there.import_(file.decode().split("\n"))
        except MoorageError:
            assert there.list().items == []
            return
        for session in there.list():
            assert there.get(session.id) == session
            assert len(there.log(session.id, limit=1000)) == session.last_entry
            assert list(there.export(session.id))
        assert timed.moor.check() == []


# Markdown ---------------------------------------------------------------------------------------


def test_markdown_is_for_people(timed: Timed) -> None:
    text = "\n".join(timed.moor.export(a_full_session(timed.moor, name="planner"), format="markdown"))
    for part in ("# planner", "**Agent**: planner", "## 3 · user", "hello", "weather", "so far"):
        assert part in text


def test_an_export_of_a_session_in_use_is_of_one_instant(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    asked = moor.request_approval(session.id, "Apply?")
    lines = moor.export(session.id)
    begun = [next(lines), next(lines)]
    moor.approve(asked.approval_id)
    moor.context.put(session.id, "later", 1)
    moor.append(session.id, "later")
    exported = [*begun, *lines]

    moor.delete(session.id)
    elsewhere = sync.connect("memory://")
    assert elsewhere.import_(exported).imported == [session.id]
    assert elsewhere.get(session.id).pending_approvals == 1
    assert elsewhere.context.get(session.id) == {}


@pytest.mark.parametrize("data", [{}, {"summary": "s"}, {"summary": 7, "upto": 1}, {"summary": "s", "upto": 10**6}])
def test_a_summary_that_stands_for_nothing_is_refused(timed: Timed, data: dict[str, Any]) -> None:
    moor, there = timed.moor, another_place(timed)
    session = moor.create("planner")
    moor.append(session.id, ["one", "two"])
    moor.compact(session.id, "all said")
    lines = [json.loads(line) for line in moor.export(session.id)]
    for line in lines:
        if line["type"] == "entry" and line["entry"]["kind"] == "summary":
            line["entry"]["data"] = data
    with pytest.raises(InvalidImport):
        there.import_([json.dumps(line) for line in lines])
    assert there.list().items == []
