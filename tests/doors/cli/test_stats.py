"""`moorage stats`: lines for pipes, a table and a plot for people, one document for programs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moorage import sync
from moorage.core.policy import Delegation
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import a_session, drive, finalized
from tests.doors.cli.running import Cli, Terminal, a_terminal, run

NOW = (datetime.now(UTC) - timedelta(hours=1)).replace(minute=30, second=0, microsecond=0)  # past, and on no border


@pytest.fixture
def work(cli: Cli, database: Path) -> None:
    """Four sessions of two agents over ten days, one of them resumed twice; four delegations."""
    cli("list")  # so that there is a store
    store = SqliteStore.open(database)
    for name, agent, days, minutes in (("s-1", "a", 10, 1), ("s-2", "a", 2, 9), ("s-3", "b", 1, 0), ("s-4", "a", 0, 0)):
        at = NOW - timedelta(days=days)
        usage = {"usage": {"input_tokens": 100, "output_tokens": 7}} if name == "s-1" else {}
        task = "T001" if name == "s-1" else None
        decide = a_session(
            name, at=at, owner="local", agent_name=agent, task_id=task, spare_task_id=name, metadata=usage
        )
        drive(store.create("local", decide))
        if minutes:
            drive(store.apply("local", name, finalized("completed", at + timedelta(minutes=minutes))))
    for number, (session_id, days) in enumerate([("s-1", 9), ("s-1", 9), (None, 1), ("s-3", 1)]):
        drive(
            store.record_delegation(
                "local",
                Delegation(
                    delegation_id=f"d-{number}",
                    at=NOW - timedelta(days=days),
                    resumed=session_id is not None,
                    reason="test",
                    agent_name="a",
                    session_id=session_id,
                ),
            )
        )
    drive(store.close())
    cli("update", "s-3", "--error", "oops")


def test_piped_it_is_one_line_for_each_measure(cli: Cli, work: None) -> None:
    rows = {name: rest for name, *rest in (line.split("\t") for line in cli("stats").lines)}
    assert rows.pop("storage")[1:] == ["-", "-"]
    assert rows.pop("storage.per_session")[1:] == ["< 5 KB per small session", "-"]
    assert rows == {
        "sessions": ["4", "-", "-"],
        "sessions.created": ["2", "-", "-"],
        "sessions.completed": ["2", "-", "-"],
        "delegations": ["4", "-", "-"],
        "resumed": ["3", "-", "-"],
        "resume_rate": ["0.75", "> 60 %", "yes"],
        "resume_success": ["1.0", "> 80 %", "yes"],
        "resume_success.still_open": ["1", "-", "-"],
        "duration_median": ["300.0", "< 5 min", "no"],
        "duration_p95": ["516.0", "< 30 min", "yes"],
        "error_rate": ["0.25", "< 10 %", "no"],
        "callbacks": ["0", "-", "-"],
        "callbacks.delivered": ["0", "-", "-"],
        "callbacks.waiting": ["0", "-", "-"],
        "callbacks.dead_letters": ["0", "-", "-"],
        "input_tokens": ["100", "-", "-"],
        "output_tokens": ["7", "-", "-"],
    }


def test_json_is_the_whole_answer(cli: Cli, work: None, database: Path) -> None:
    found = cli("stats", "--json", "--by", "agent", "--plot").json
    assert found["total"]["resume_rate"] == {"value": 0.75, "unit": "share", "target": "> 60 %", "met": True}
    assert [(group["key"], group["sessions"]) for group in found["groups"]] == [("a", 3), ("b", 1)]
    assert found["storage"]["bytes"] > 100_000
    with sync.connect(f"sqlite:///{database}") as moor:
        assert found["total"]["states"] == moor.stats().total.states


@pytest.mark.parametrize(
    ("line", "sessions", "delegations"),
    [
        ("--agent a", 3, 4),
        ("--agent b", 1, 0),
        ("--task-id T001", 1, 0),
        ("--task-id s-2", 1, 0),
        ("--since 3d", 3, 2),
        ("--since 36h", 2, 2),
        ("--until 3d", 1, 2),
        ("--since 15d --until 1w", 1, 2),
        ("--since 2020-01-01", 4, 4),
        ("--since 2020-01-01T00:00:00+02:00 --until 2020-01-02", 0, 0),
    ],
)
def test_stats_can_be_filtered(cli: Cli, work: None, line: str, sessions: int, delegations: int) -> None:
    total = cli("--json", "stats", *line.split()).json["total"]
    assert (total["sessions"], total["delegations"]) == (sessions, delegations)


def test_since_begins_with_that_very_instant(cli: Cli, work: None) -> None:
    at = (NOW - timedelta(days=1)).isoformat()
    assert cli("--json", "stats", "--since", at).json["total"]["sessions"] == 2
    assert cli("--json", "stats", "--until", at).json["total"]["sessions"] == 2


def test_piped_groups_are_one_line_each(cli: Cli, work: None) -> None:
    lines = [line.split("\t") for line in cli("stats", "--by", "agent").lines]
    assert lines == [
        ["a", "3", "4", "3", "0.75", "1.0", "300.0", "516.0", "0.0", "100", "7", "0", "0", "0"],
        ["b", "1", "0", "0", "-", "-", "-", "-", "1.0", "-", "-", "0", "0", "0"],
    ]


@pytest.mark.parametrize(("by", "count"), [("hour", 5), ("day", 5), ("task", 5)])
def test_times_are_told_as_instants(cli: Cli, work: None, by: str, count: int) -> None:
    keys = [line.split("\t")[0] for line in cli("stats", "--by", by).lines]
    assert len(keys) == count
    if by != "task":
        assert [datetime.fromisoformat(key) for key in keys] == sorted(datetime.fromisoformat(key) for key in keys)
        assert all(key.endswith(":00:00Z") for key in keys)


def test_an_empty_store_has_nothing_to_measure(cli: Cli, terminal: Terminal) -> None:
    assert cli("stats").lines[:4] == [
        "sessions\t0\t-\t-",
        "delegations\t0\t-\t-",
        "resumed\t0\t-\t-",
        "resume_rate\t-\t> 60 %\t-",
    ]
    assert cli("stats", "--by", "day").out == ""
    assert cli("stats", "--plot").out.count("│") == 0
    assert "Nothing to count." in terminal.run("stats", "--by", "agent").out


def test_counting_does_not_make_a_store_of_another_program(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file.db").write_text("no database at all, but long enough to be looked at")
    done = cli("stats", "--url", f"sqlite:///{tmp_path / 'file.db'}", "--json")
    assert (done.code, done.json["code"]) == (5, "store_corrupt")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("stats --by month", "invalid_by"),
        ("stats --since yesterday", "invalid_since"),
        ("stats --until 7x", "invalid_until"),
        ("stats --since 999999w", "invalid_since"),
        ("stats --since 0001-01-01T00:00:00+14:00", "invalid_since"),
        ("stats something", "usage"),
        ("list --since soon", "invalid_created_after"),
    ],
)
def test_invalid_stats_options_are_refused(cli: Cli, line: str, code: str) -> None:
    done = cli("--json", *line.split())
    assert (done.code, done.json["code"]) == (2, code)
    assert done.err.startswith("moorage: ")


# On a terminal ----------------------------------------------------------------------------------


def test_a_person_gets_a_table_and_a_plot(work: None, terminal: Terminal) -> None:
    out = terminal.run("stats").out
    table, _, plot = out.partition("\n\n")
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert lines[0] == "MEASURE VALUE TARGET MET"
    assert "sessions 4" in lines
    assert "resume rate 75.0 % > 60 % yes" in lines
    assert "duration median 5 min 0 s < 5 min no" in lines
    assert "error rate 25.0 % < 10 % no" in lines
    assert "Targets are goals that Moorage sets itself" in table
    title, *drawn = plot.splitlines()
    first, last = NOW - timedelta(days=10), NOW
    assert title == f"sessions a day, {first:%Y-%m-%d} to {last:%Y-%m-%d} UTC"
    assert drawn[0].strip().startswith("1 │█")
    assert "share of delegations resumed" in drawn


def test_a_short_time_is_drawn_in_hours_and_a_long_one_in_weeks(work: None) -> None:
    with a_terminal(20) as narrow:
        assert "sessions an hour, " in narrow.run("stats", "--since", "30h").out
        assert "sessions a day, " in narrow.run("stats", "--since", "3d").out
        assert "sessions a week, " not in narrow.run("stats", "--by", "day").out
    with a_terminal(16) as narrow:  # eight columns; ten days do not fit
        assert "sessions a week, " in narrow.run("stats").out.replace("\n", " ")


def test_groups_are_a_table_with_targets_and_what_misses_them(work: None, terminal: Terminal) -> None:
    out = terminal.run("stats", "--by", "agent").out
    head, a, b, total, *rest = [" ".join(line.split()) for line in out.splitlines()]
    assert head.startswith("AGENT SESSIONS DELEGATIONS RESUMED > 60 % SUCCESS > 80 % MEDIAN < 5 MIN")
    assert a == "a 3 4 75.0 % 100.0 % 5 min 0 s ! 8 min 36 s 0.0 %"
    assert b == "b 1 0 - - - - 100.0 % !"
    assert total.startswith("in all 4 4 75.0 %")
    assert rest[0].startswith("! misses its target")


def test_a_narrow_terminal_does_without_the_durations_first(work: None) -> None:
    with a_terminal(80) as narrow:
        head = narrow.run("stats", "--by", "agent").out.splitlines()[0]
    assert " ".join(head.split()) == "AGENT SESSIONS DELEGATIONS RESUMED > 60 % SUCCESS > 80 % ERRORS < 10 %"


def test_the_plot_can_be_had_and_done_without(cli: Cli, work: None, terminal: Terminal) -> None:
    assert "│" not in terminal.run("stats", "--no-plot").out
    assert "│" not in cli("stats").out
    piped = cli("stats", "--by", "agent", "--plot").out
    assert piped.startswith("a\t3\t")
    assert "sessions a day, " in piped


def test_a_terminal_without_blocks_gets_plain_characters(work: None) -> None:
    done = run("stats", "--plot", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert "|#" in done.out
    assert done.out.isascii()
    assert "\\u" not in done.out


def test_an_agents_name_cannot_drive_the_terminal(cli: Cli, terminal: Terminal) -> None:
    cli("create", "--agent", "evil\u202eagent")
    for out in (terminal.run("stats", "--by", "agent").out, cli("stats", "--by", "agent").out):
        assert "\u202e" not in out


# Sessions of a time -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--since 3d", "s-4 s-3 s-2"),
        ("--until 3d", "s-1"),
        ("--since 15d --until 36h", "s-2 s-1"),
        ("--created-after 3d --created-before 36h", "s-2"),
        ("--updated-after 5m", "s-3"),
    ],
)
def test_sessions_of_a_time_are_listed(cli: Cli, work: None, line: str, expected: str) -> None:
    assert " ".join(line.split("\t")[0] for line in cli("list", *line.split()).lines) == expected
