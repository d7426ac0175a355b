"""audit: which sessions were deleted, when, by whom and why."""

import re
from pathlib import Path

import apsw
import pytest

from tests.doors.cli.running import Cli, Terminal

AN_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def gone(cli: Cli, plan: str, database: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a session that went with its child by hand, and one, `old-one`, that a cleanup took a month ago."""
    monkeypatch.setenv("USER", "ann")
    cli("create", "--session-id", "old-one")
    cli("finalize", "old-one", "failed")
    cli("cleanup", "--hours", "0", "--state", "failed")
    db = apsw.Connection(str(database))
    db.execute("UPDATE tombstones SET deleted_at = deleted_at - 30 * 86400 * 1000000")
    db.close()
    cli("create", "--session-id", "child", "--parent", plan, "--agent", "helper")
    cli("delete", plan, "--yes")
    return plan


def test_piped_it_is_one_line_each_newest_first(cli: Cli, gone: str) -> None:
    root, child, old = (line.split("\t") for line in cli("audit").lines)
    assert (root[0], *root[2:]) == (gone, "ann", "deleted", "active", "architect", "plan-prod", "T001", "-")
    assert (child[0], *child[2:]) == ("child", "ann", "deleted", "created", "helper", "-", "T001", gone)
    assert (old[0], *old[2:]) == ("old-one", "ann", "retention", "failed", "-", "-", "old-one", "-")
    assert all(re.fullmatch(AN_INSTANT, line[1]) for line in (root, child, old))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("--reason retention", ["old-one"]),
        ("--reason nothing", []),
        ("--since 7d", ["plan", "child"]),
        ("--since 60d", ["plan", "child", "old-one"]),
        ("--since 2020-01-31T09:30:00Z --limit 2", ["plan", "child"]),
        ("--since 2222-01-01", []),
        ("--since 5200w --reason retention", ["old-one"]),
        ("--limit 1", ["plan"]),
    ],
)
def test_it_can_be_narrowed_down(cli: Cli, gone: str, options: str, found: list[str]) -> None:
    done = cli("audit", *options.split())
    assert (done.code, done.err) == (0, "")
    assert [line.split("\t")[0] for line in done.lines] == [gone if name == "plan" else name for name in found]


def test_json_is_a_page_that_goes_on(cli: Cli, gone: str) -> None:
    first = cli("audit", "--json", "--limit", "2").json
    assert [tombstone["session_id"] for tombstone in first["items"]] == [gone, "child"]
    rest = cli("audit", "--json", "--cursor", first["next"]).json
    assert [tombstone["session_id"] for tombstone in rest["items"]] == ["old-one"]
    assert rest["next"] is None
    tombstone = rest["items"][0]
    assert (tombstone["reason"], tombstone["deleted_by"], tombstone["state"], tombstone["task_id"]) == (
        *("retention", "ann", "failed", "old-one"),
    )


def test_more_than_a_page_is_listed_whole(cli: Cli, plan: str, database: Path) -> None:
    db = apsw.Connection(str(database))
    db.execute(
        "WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 2500) INSERT INTO tombstones "
        "(owner, id, state, root_of_deletion, deleted_at, reason) "
        "SELECT 'local', 't-' || i, 'failed', 't-' || i, i, 'deleted' FROM c"
    )
    db.close()
    assert [line.split("\t")[0] for line in cli("audit").lines] == [f"t-{number}" for number in range(2500, 0, -1)]
    assert len(cli("audit", "--json").json["items"]) == 2500


def test_on_a_terminal_it_is_a_table_that_says_if_there_is_more(cli: Cli, gone: str, terminal: Terminal) -> None:
    shown = terminal.run("audit", "--limit", "2").out
    assert re.search(r"NAME +SESSION +WHEN +WHY +BY +STATE +AGENT +TASK +WENT WITH", shown)
    assert "There are more: --limit N shows N of them, `moorage audit | cat` all." in shown
    assert "Nothing was deleted." in terminal.run("audit", "--reason", "nothing").out


def test_of_an_empty_store_it_is_empty(cli: Cli) -> None:
    assert (cli("audit").out, cli("audit", "--json").json) == ("", {"items": [], "next": None})
