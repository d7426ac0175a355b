"""docs/agents.md and docs/reference/agent-file.md tell of everything that an agent's author can write or be told."""

import re
from pathlib import Path

from moorage.agents import interface, python
from moorage.core.agent import (
    KNOWN,
    MAX_OUTPUT_BYTES,
    NEEDS,
    SET_BY_LAUNCHER,
    TAKES,
    TIMEOUT,
    AgentKind,
    definition_of,
)
from moorage.core.duration import duration_text
from moorage.launcher.drivers.jsonl import EVENTS
from moorage.launcher.turn_files import turn_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "agents.md").read_text() + (DOCS / "reference" / "agent-file.md").read_text()


def words(text: str) -> set[str]:
    """All inline code of a piece of the page, word by word."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    return {word for span in spans for word in re.findall(r"[\w-]+", span)}


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of a section's table, by each word of their first column."""
    cells = [line.strip("|").split(" | ") for line in section(heading).splitlines() if line.startswith("| `")]
    return {name: row for row in cells for name in re.findall(r"`([\w.-]+)`", row[0])}


def test_every_key_is_told_with_the_kinds_it_is_for() -> None:
    told = rows("The file")
    assert told.keys() == set(KNOWN)
    for key, row in told.items():
        kinds = {kind.value for kind in AgentKind if key in (*NEEDS[kind], *TAKES[kind])}
        if kinds == {kind.value for kind in AgentKind} - {"builtin"}:
            assert row[1].strip() == "all but `builtin`"
        elif kinds:
            assert words(row[1]) == kinds, key
        else:
            assert row[1].strip() == "all", key
        is_needed = row[-1].strip().rstrip("|").strip() == "needed"
        assert is_needed is (key in ("name", "kind") or any(key in needs for needs in NEEDS.values())), key


def test_the_defaults_shown_are_the_defaults() -> None:
    told = rows("The file")
    assert duration_text(TIMEOUT) in told["timeout"][-1]
    assert f"{MAX_OUTPUT_BYTES // 1024 // 1024} MiB" in told["max_output_bytes"][-1]


def test_the_files_shown_make_sense() -> None:
    import tomllib

    shown = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.M | re.S)
    assert [definition_of(tomllib.loads(text)["agent"]).name for text in shown] == [
        "gemini",
        "local-llama",
        "far-away",
        "reviewer",
    ]


def test_every_kind_event_and_reason_is_told() -> None:
    assert set(AgentKind) <= words(section("The file"))
    fields_of_a_turn = turn_of({"agent": {"name": "x"}}).keys() - {"type"}
    assert rows("JSON lines").keys() == {*EVENTS} | fields_of_a_turn
    ours = {value for name, value in vars(interface).items() if name.isupper() and isinstance(value, str)}
    assert rows("How an agent ends").keys() == ours


def test_everything_in_the_turn_is_told() -> None:
    turn = turn_of({"agent": {"name": "x"}})
    assert turn.keys() - {"type"} <= words(section("JSON lines"))
    assert turn.keys() - {"type"} == vars(python.Turn({**turn, "mcp_servers": {}}, None)).keys() - {"_wire"}  # type: ignore[arg-type]
    said = {name for name in dir(python.Turn) if not name.startswith("_")}
    assert said <= words(section("Functions"))


def test_every_variable_is_told() -> None:
    told = rows("Environment of an agent").keys()
    assert told == set(SET_BY_LAUNCHER)
