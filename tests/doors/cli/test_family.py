"""tree, children, delete."""

import pytest

from tests.doors.cli.running import Cli


@pytest.fixture
def family(cli: Cli, plan: str) -> list[str]:
    """A parent, its two children and a grandchild."""
    first = cli("create", "--parent", plan, "--agent", "reviewer").id
    second = cli("create", "--parent", plan, "--name", "estimate").id
    return [plan, first, cli("create", "--parent", first).id, second]


def test_tree_draws_the_family(cli: Cli, family: list[str]) -> None:
    plan, first, grandchild, second = family
    assert cli("tree", plan).lines == [
        f"{plan}  plan-prod  architect  [idle, initializing]",
        f"├── {first}  reviewer  [created, initializing]",
        f"│   └── {grandchild}  [created, initializing]",
        f"└── {second}  estimate  [created, initializing]",
    ]


def test_tree_as_json_is_nested(cli: Cli, family: list[str]) -> None:
    plan, first, grandchild, second = family
    root = cli("tree", plan, "--json").json
    assert root["session"]["session_id"] == plan
    assert [child["session"]["session_id"] for child in root["children"]] == [first, second]
    assert root["children"][0]["children"][0]["session"]["session_id"] == grandchild


def test_children_are_listed_oldest_first(cli: Cli, family: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.core.query.PAGE", 1)
    plan, first, _, second = family
    assert [line.split("\t")[0] for line in cli("children", plan).lines] == [first, second]
    assert [item["session_id"] for item in cli("children", plan, "--json").json["items"]] == [first, second]


def test_delete_piped_never_asks_and_prints_what_went(cli: Cli, family: list[str]) -> None:
    done = cli("delete", "plan-prod")
    assert done.code == 0
    assert sorted(done.lines) == sorted(family)
    gone = cli("get", family[0], "--json")
    assert (gone.code, gone.json["code"]) == (3, "session_gone")


def test_delete_as_json_counts(cli: Cli, family: list[str]) -> None:
    gone = cli("delete", "plan-prod", "--json").json
    assert (gone["deleted_sessions"], gone["cascaded_children"], gone["messages"]) == (4, 3, 2)


def test_a_dry_run_deletes_nothing(cli: Cli, family: list[str]) -> None:
    assert len(cli("delete", "plan-prod", "--dry-run").lines) == 4
    assert len(cli("list").lines) == 4


def test_delete_without_cascade_is_refused_if_there_are_children(cli: Cli, family: list[str]) -> None:
    refused = cli("delete", "plan-prod", "--no-cascade", "--json")
    assert (refused.code, refused.json["code"]) == (4, "has_children")
    assert len(cli("list").lines) == 4
    assert cli("delete", family[3], "--no-cascade", "--force", "--yes").code == 0
