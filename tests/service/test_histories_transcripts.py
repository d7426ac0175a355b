"""Transcripts of Claude Code: conversations become sessions, sub-agents their children."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from moorage.core.entry import Entry
from moorage.service.transfer import ImportReport
from tests.service.doors import Timed
from tests.service.histories import (
    EXPLORER,
    HOST,
    OLD,
    PROJECT,
    READER,
    a_project,
    changed,
    lines_of,
    said,
    write_lines,
)

MIB = 1024 * 1024


def messages(moor: sync.Moorage, ref: str) -> list[Entry]:
    return [entry for entry in moor.log(ref, limit=1000) if entry.is_message]


def texts(moor: sync.Moorage, ref: str) -> list[tuple[str | None, str]]:
    return [(entry.role, entry.text) for entry in messages(moor, ref)]


def a_transcript(folder: Path, *lines: dict[str, Any] | str) -> Path:
    return write_lines(folder / f"{HOST}.jsonl", lines)


def reasons(report: ImportReport) -> list[tuple[int | None, str]]:
    return [(left.line, left.reason) for left in report.left_out]


# A project with a conversation and its sub-agents -----------------------------------------------


@pytest.fixture
def moor(timed: Timed) -> sync.Moorage:
    report = timed.moor.import_files([PROJECT])
    assert report.imported == [HOST, EXPLORER, READER], report
    assert report.left_out == []
    assert report.passed_over == {"host": 5, "attachment": 3, "thinking": 1, "image": 1}
    return timed.moor


def test_imported_host_session_is_suspended_with_its_facts(moor: sync.Moorage) -> None:
    session = moor.get(HOST)
    assert (session.state, session.agent, session.interface) == ("suspended", "claude-code", "claude-code")
    assert (session.purpose, session.project_dir) == ("Pod restarts", "/srv/shop")
    assert session.created_at == datetime(2026, 3, 2, 9, 0, 0, 512000, tzinfo=UTC)
    assert session.last_activity_at == session.updated_at == datetime(2026, 3, 2, 9, 0, 32, tzinfo=UTC)
    assert session.metadata == {
        "host": "claude-code",
        "host_version": "2.1.325",
        "usage": {"input_tokens": 140, "output_tokens": 80, "cache_read_input_tokens": 35},
    }
    assert moor.log(HOST).items[-1].data == {"reason": "imported", "suspended_by": "person"}
    assert (session.error_count, session.last_error) == (0, "API Error: 529 overloaded")


def test_conversation_is_imported_in_order_without_host_lines(moor: sync.Moorage) -> None:
    assert texts(moor, HOST) == [
        ("user", "Why does the pod restart?"),
        ("assistant", "I look at the pod and ask for help."),
        ("tool", ""),
        ("tool", ""),
        ("assistant", "An agent looks into it."),
        (
            "user",
            f"<task-notification><task-id>{EXPLORER}</task-id>"
            "<result>The limit is too low.</result></task-notification>",
        ),
        ("assistant", "The memory limit is too low."),
        ("user", "Is it this graph?"),
        ("assistant", "Yes: it grows by the hour."),
        ("user", "Then raise it."),
        ("assistant", ""),
    ]
    assert "of the host's own" not in "\n".join(moor.export(HOST))
    assert "I should look first" not in "\n".join(moor.export(HOST))
    assert [entry.data for entry in moor.log(HOST, kinds=["error"])] == [{"error": "API Error: 529 overloaded"}]


def test_blocks_of_one_reply_are_one_message_even_with_a_result_between_them(moor: sync.Moorage) -> None:
    reply, first, second = messages(moor, HOST)[1:4]
    assert isinstance(reply.content, list)
    assert [part["type"] for part in reply.content] == ["text", "tool_call", "tool_call"]
    assert [part["id"] for part in reply.content[1:]] == ["toolu_01", "toolu_02"]
    assert reply.content[1]["input"] == {"command": "kubectl get pod"}
    assert first.content == [
        {"type": "tool_result", "call_id": "toolu_01", "output": "shop-1  0/1  OOMKilled", "is_error": False}
    ]
    assert second.content == [
        {
            "type": "tool_result",
            "call_id": "toolu_02",
            "output": "Async agent launched successfully.",
            "is_error": False,
        }
    ]


def test_a_picture_is_referred_to(moor: sync.Moorage) -> None:
    content = next(entry.content for entry in messages(moor, HOST) if entry.text == "Is it this graph?")
    assert isinstance(content, list)
    assert content[0] == {"type": "image", "media_type": "image/png", "size": 12, "transcript_uuid": "u-16"}


def test_compaction_is_imported_as_a_summary(moor: sync.Moorage) -> None:
    (summary,) = moor.log(HOST, kinds=["summary"])
    assert summary.data is not None
    assert summary.data["upto"] == next(e.number for e in messages(moor, HOST) if e.text == "Is it this graph?")
    window = [entry.text for entry in moor.messages(HOST, last=10)]
    assert window == [
        "The summary below covers the earlier portion: the limit is too low.",
        "Yes: it grows by the hour.",
        "Then raise it.",
        "",
    ]


def test_sub_agents_hang_on_the_one_that_called_them(moor: sync.Moorage) -> None:
    assert [session.id for session in moor.ancestors(READER)] == [EXPLORER, HOST]
    explorer, reader = moor.get(EXPLORER), moor.get(READER)
    assert (explorer.agent, explorer.purpose, explorer.task_id) == ("Explore", "Find the leak", HOST)
    assert {name: explorer.metadata[name] for name in ("tool_use_id", "description", "host_session_id")} == {
        "tool_use_id": "toolu_02",
        "description": "Find the leak",
        "host_session_id": HOST,
    }
    assert (reader.agent, reader.depth, reader.metadata["tool_use_id"]) == ("general-purpose", 2, "toolu_s1")


def test_a_sub_agent_that_answered_is_completed_and_one_cut_off_is_suspended(moor: sync.Moorage) -> None:
    explorer, reader = moor.get(EXPLORER), moor.get(READER)
    assert (explorer.state, explorer.phase, explorer.summary) == ("completed", "completed", "The limit is too low.")
    assert (explorer.duration_seconds, explorer.finalized_at) == (4.85, explorer.last_activity_at)
    assert reader.state == "suspended"


def test_unfinished_call_is_repaired_on_resume(moor: sync.Moorage) -> None:
    packet = moor.resume(HOST)
    assert packet.messages[-1].role == "tool"
    assert moor.append(HOST, "on we go")
    assert {hit.session_id for hit in moor.search("graph")} == {HOST}
    assert moor.check() == []


def test_importing_twice_changes_nothing(moor: sync.Moorage) -> None:
    before = list(moor.export(HOST, tree=True))
    report = moor.import_files([PROJECT, PROJECT / f"{HOST}.jsonl"])
    assert (report.imported, report.already_there) == ([], [HOST, EXPLORER, READER])
    assert (report.left_out_total, report.passed_over) == (0, {})
    assert list(moor.export(HOST, tree=True)) == before


def test_imported_session_survives_export_and_import(moor: sync.Moorage, timed: Timed) -> None:
    lines = list(moor.export(HOST, tree=True))
    there = timed.connect(owner="elsewhere")
    assert there.import_(lines).imported == [HOST, EXPLORER, READER]


# How files are given ----------------------------------------------------------------------------


def test_a_transcript_brings_its_sub_agents_along(timed: Timed) -> None:
    assert timed.moor.import_files([PROJECT / f"{HOST}.jsonl"]).imported == [HOST, EXPLORER, READER]


def test_an_open_file_will_do(timed: Timed) -> None:
    with (PROJECT / f"{HOST}.jsonl").open("rb") as file:
        assert timed.moor.import_files([file]).imported == [HOST]


def test_a_sub_agent_alone_needs_its_host_or_to_be_detached(timed: Timed) -> None:
    path = PROJECT / HOST / "subagents" / f"agent-{EXPLORER}.jsonl"
    report = timed.moor.import_files([path])
    assert (report.imported, report.left_out_total) == ([], 1)
    assert f"its parent {HOST} is not there" in report.left_out[0].reason
    assert timed.moor.import_files([path], detach=True).imported == [EXPLORER]
    assert timed.moor.get(EXPLORER).parent_session_id is None


def test_a_sub_agent_hangs_on_the_host_that_is_there_and_shares_its_task(timed: Timed) -> None:
    timed.moor.create("claude-code", session_id=HOST, task_id="T-9")
    report = timed.moor.import_files([PROJECT])
    assert (report.imported, report.already_there) == ([EXPLORER, READER], [HOST])
    assert [timed.moor.get(ref).task_id for ref in (HOST, EXPLORER, READER)] == ["T-9"] * 3
    assert timed.moor.get(HOST).last_entry == 1, "what hooks recorded is left alone"


def test_without_a_file_beside_it_the_call_tells_who_it_was(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    for about in project.rglob("*.meta.json"):
        about.unlink()
    timed.moor.import_files([project])
    explorer, reader = timed.moor.get(EXPLORER), timed.moor.get(READER)
    assert (explorer.agent, explorer.purpose, explorer.metadata["tool_use_id"]) == (
        "Explore",
        "Find the leak",
        "toolu_02",
    )
    assert (explorer.parent_session_id, reader.parent_session_id) == (HOST, EXPLORER)


def test_a_file_beside_it_that_cannot_be_read_is_told(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    (project / HOST / "subagents" / f"agent-{EXPLORER}.meta.json").write_text("{")
    report = timed.moor.import_files([project])
    assert report.imported == [HOST, EXPLORER, READER]
    assert report.left_out_total == 1


def test_sidechains_of_older_hosts_are_children(timed: Timed) -> None:
    report = timed.moor.import_files([OLD])
    assert report.imported == [OLD.stem, "o-03"]
    child = timed.moor.get("o-03")
    assert (child.parent_session_id, child.agent, child.state) == (OLD.stem, "general-purpose", "completed")
    assert child.metadata["tool_use_id"] == "toolu_o1"
    assert texts(timed.moor, "o-03")[-1] == ("assistant", "There are 42.")
    assert texts(timed.moor, OLD.stem)[-1] == ("assistant", "42 files.")
    assert timed.moor.get(OLD.stem).purpose == "Counting files"


def test_a_fork_of_the_host_is_a_session_of_its_own(timed: Timed, tmp_path: Path) -> None:
    other = "5e9a0c1e-7d3b-4f60-9a1c-000000000000"
    project = a_project(tmp_path)
    write_lines(
        project / f"{other}.jsonl", [{**line, "sessionId": other} for line in lines_of(project / f"{HOST}.jsonl")]
    )
    assert timed.moor.import_files([project]).imported == [other, HOST, EXPLORER, READER]
    assert timed.moor.get(EXPLORER).parent_session_id == HOST


def test_lines_of_a_session_that_was_resumed_under_another_id_stay_together(timed: Timed, tmp_path: Path) -> None:
    path = a_transcript(tmp_path, said("u-1", "before", session_id="older-session"), said("u-2", "after"))
    assert timed.moor.import_files([path]).imported == [HOST]
    assert texts(timed.moor, HOST) == [("user", "before"), ("user", "after")]


def test_lines_of_several_sessions_are_not_mixed_up(timed: Timed, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "mixed.jsonl", [said("u-1", "a"), said("u-2", "b", session_id="other-session")])
    report = timed.moor.import_files([path])
    assert (report.imported, report.left_out_total) == ([], 1)
    assert "several sessions" in report.left_out[0].reason


def test_a_transcript_in_which_nothing_was_said_is_passed_over(timed: Timed, tmp_path: Path) -> None:
    path = a_transcript(tmp_path, {"type": "mode", "mode": "normal", "sessionId": HOST})
    report = timed.moor.import_files([path])
    assert (report.imported, report.left_out_total, report.passed_over["empty"]) == ([], 0, 1)


# Transcripts that are not whole -----------------------------------------------------------------


def test_a_last_line_that_was_cut_short_is_told_and_the_rest_comes_in(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    path = project / f"{HOST}.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:23], lines[23][:150]]))
    report = timed.moor.import_files([project])
    assert report.imported == [HOST, EXPLORER, READER]
    ((line, reason),) = reasons(report)
    assert line == 24
    assert reason.startswith("the last line was cut short")
    assert texts(timed.moor, HOST)[-1] == ("user", "Then raise it.")


def test_a_broken_line_in_the_middle_is_told_with_its_number(timed: Timed, tmp_path: Path) -> None:
    lines = (said("u-1", "first"), '{"type":"user","uu', "", "\x00\x00", said("u-2", "last"))
    report = timed.moor.import_files([a_transcript(tmp_path, *lines)])
    assert report.imported == [HOST]
    assert [line for line, _ in reasons(report)] == [2, 4]
    assert texts(timed.moor, HOST) == [("user", "first"), ("user", "last")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"timestamp": 5},
        {"timestamp": "yesterday"},
        {"timestamp": "0001-01-01T00:00:00+14:00"},
        {"timestamp": "9999-01-01T00:00:00Z"},
        {"uuid": 7},
        {"message": None},
        {"message": "hello"},
        {"message": {"role": "user", "content": 7}},
        {"message": {"role": "user", "content": [7]}},
        {"message": {"role": "user", "content": [{"text": "no type"}]}},
        {"message": {"role": "user", "content": [{"type": "text"}]}},
        {"message": {"role": "user", "content": [{"type": "tool_result", "content": "no call"}]}},
        {"message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [1]}]}},
        {"message": {"role": "user", "content": [{"type": "tool_call"}]}},
        {"message": {"role": "user", "content": [{"type": "odd", "n": 10**30}]}},
        {"message": {"role": "user", "content": [{"type": "odd", "n": json.loads("[" * 70 + "]" * 70)}]}},
    ],
)
def test_a_line_that_the_host_would_not_write_is_left_out(timed: Timed, tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = a_transcript(tmp_path, said("u-1", "first"), {**said("u-2", "wrong"), **wrong}, said("u-3", "last"))
    report = timed.moor.import_files([path])
    assert report.imported == [HOST]
    assert [line for line, _ in reasons(report)] == [2]
    assert texts(timed.moor, HOST) == [("user", "first"), ("user", "last")]


def test_unknown_host_lines_are_skipped(timed: Timed, tmp_path: Path) -> None:
    news = {"type": "mood", "uuid": {"a": 1}, "timestamp": "soon", "sessionId": HOST}
    report = timed.moor.import_files([a_transcript(tmp_path, news, said("u-1", "hello"))])
    assert (report.imported, report.left_out_total, report.passed_over) == ([HOST], 0, {"host": 1})


def test_half_a_letter_at_the_end_of_a_cut_text_does_not_cost_the_line(timed: Timed, tmp_path: Path) -> None:
    line = json.dumps(said("u-1", "cut here: X and a whole 🙂")).replace("X", r"\ud83d")
    report = timed.moor.import_files([a_transcript(tmp_path, line)])
    assert (report.imported, report.left_out_total) == ([HOST], 0)
    assert texts(timed.moor, HOST) == [("user", "cut here: \N{REPLACEMENT CHARACTER} and a whole 🙂")]


def test_a_result_whose_call_is_lost_stays_out(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    changed(project / f"{HOST}.jsonl", lambda lines: lines.pop(8))
    report = timed.moor.import_files([project])
    assert report.imported == [HOST, EXPLORER, READER]
    assert reasons(report) == [(9, "a result of the call 'toolu_01', which is not there")]
    assert "OOMKilled" not in "\n".join(timed.moor.export(HOST))
    calls = [part for e in messages(timed.moor, HOST) if isinstance(e.content, list) for part in e.content]
    assert [part["id"] for part in calls if part["type"] == "tool_call"] == ["toolu_02", "toolu_03"]


def test_a_second_result_of_the_same_call_stays_out(timed: Timed, tmp_path: Path) -> None:
    def again(lines: list[dict[str, Any]]) -> None:
        lines.insert(10, {**lines[9], "uuid": "u-again"})

    project = a_project(tmp_path)
    changed(project / f"{HOST}.jsonl", again)
    report = timed.moor.import_files([project])
    assert [line for line, _ in reasons(report)] == [11]


def test_lines_that_a_host_wrote_twice_count_once(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    changed(project / f"{HOST}.jsonl", lambda lines: lines.extend(lines[2:10]))
    report = timed.moor.import_files([project])
    assert (report.left_out_total, report.passed_over["repeated"]) == (0, 7)
    assert len(messages(timed.moor, HOST)) == 11


@pytest.mark.parametrize("letter", ["x", "ü", "🙂"])
def test_large_message_is_cut_with_a_visible_mark(timed: Timed, tmp_path: Path, letter: str) -> None:
    call = {"type": "tool_use", "id": "t-1", "name": "Read", "input": {"path": "big.log"}}
    result = {"type": "tool_result", "tool_use_id": "t-1", "content": letter * MIB}
    path = a_transcript(
        tmp_path,
        said("u-1", [call], role="assistant", message={"id": "m-1"}),
        said("u-2", [result]),
        said("u-3", letter * 2 * MIB),
    )
    report = timed.moor.import_files([path])
    assert report.imported == [HOST]
    assert reasons(report) == [(line, "a message of more than 1 MiB; its long texts are cut") for line in (2, 3)]
    assert texts(timed.moor, HOST)[-1][1].endswith("characters left out]")
    given = messages(timed.moor, HOST)[1].content
    assert isinstance(given, list)
    assert (given[0]["call_id"], given[0]["output"][:3]) == ("t-1", letter * 3)
    assert timed.moor.resume(HOST).messages


def test_a_line_longer_than_any_line_is_left_out(timed: Timed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.service.histories.transcripts.MAX_LINE", 1000)
    monkeypatch.setattr("moorage.files.finding.MAX_LINE", 1000)
    path = a_transcript(tmp_path, said("u-1", "first"), said("u-2", "x" * 5000), said("u-3", "last"))
    report = timed.moor.import_files([path])
    assert [line for line, _ in reasons(report)] == [2]
    assert texts(timed.moor, HOST) == [("user", "first"), ("user", "last")]


def test_skipped_lines_are_counted_and_listed_up_to_a_limit(timed: Timed, tmp_path: Path) -> None:
    path = a_transcript(tmp_path, said("u-1", "first"), *["broken"] * 250, said("u-2", "last"))
    report = timed.moor.import_files([path])
    assert (len(report.left_out), report.left_out_total) == (100, 250)


def test_a_line_of_a_sub_agent_that_lost_its_sign_is_not_taken_for_the_hosts(timed: Timed, tmp_path: Path) -> None:
    def unsigned(lines: list[dict[str, Any]]) -> None:
        del lines[0]["agentId"]
        lines[0]["isSidechain"] = False

    path = changed(a_project(tmp_path) / HOST / "subagents" / f"agent-{EXPLORER}.jsonl", unsigned)
    assert timed.moor.import_files([path], detach=True).imported == [EXPLORER]
    assert texts(timed.moor, EXPLORER)[0] == ("user", "Find out why the pod restarts.")


def test_a_file_called_like_a_transcript_that_is_none_is_told(timed: Timed, tmp_path: Path) -> None:
    project = a_project(tmp_path)
    (project / "00000000-0000-4000-8000-000000000000.jsonl").write_text("damaged\n")
    (project / "notes.jsonl").write_text('{"a": 1}\n')
    report = timed.moor.import_files([project])
    assert report.imported == [HOST, EXPLORER, READER]
    assert [Path(left.file).name for left in report.left_out] == ["00000000-0000-4000-8000-000000000000.jsonl"]


def test_dry_run_lists_imports_and_stores_nothing(timed: Timed) -> None:
    report = timed.moor.import_files([PROJECT], dry_run=True)
    assert report.imported == [HOST, EXPLORER, READER]
    assert timed.moor.list().items == []


def test_progress_is_told_in_bytes(timed: Timed) -> None:
    told: list[tuple[int, int]] = []
    timed.moor.import_files([OLD], progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (OLD.stat().st_size, OLD.stat().st_size)
