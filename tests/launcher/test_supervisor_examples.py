"""The agents in examples/agents run as they are, and are those that the documentation shows."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.agents.registry import read_definition
from tests.launcher.turns import Running, Turns, job, shell

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "examples" / "agents"


@pytest.fixture
def example(turns: Turns) -> Any:
    def begin(name: str, **facts: Any) -> Running:
        path = AGENTS / f"{name}.toml"
        folder = turns.prepare(shell("never"))
        folder.prepare(replace(job(shell("never"), **facts), agent=read_definition(path.read_text(), str(path))))
        return Running(folder, folder.start())

    return begin


def test_the_shell_script_counts_words(example: Any) -> None:
    result = example("count-words", prompt="to be or not", env={"AGENT_SESSION_NAME": "hamlet"}).result()
    assert result["text"] == "Your prompt has 4 words.\nThis is session hamlet."
    empty = example("count-words", prompt="").result()
    assert empty["error"] == "it ended with exit status 1: there is nothing to count"


@pytest.mark.parametrize(("decision", "times"), [("approve", 3), ("reject", 2)])
def test_the_careful_one_asks_and_remembers(example: Any, decision: str, times: int) -> None:
    running = example("careful", prompt="water the plants", checkpoint={"times": 2})
    asked = running.until(lambda event: event["type"] == "approval")
    assert asked["question"] == "Shall I water the plants?"
    running.folder.send({"type": "decision", "id": asked["id"], "decision": decision, "note": None})
    assert running.result()["text"] == f"Your answer was {decision}; so far I did {times}."


def test_the_function_greets(example: Any) -> None:
    assert example("greeter", prompt="Ada").result()["text"] == "Hello Ada!"
    again = example("greeter", prompt="Grace", checkpoint={"names": ["Ada"]}).wait()
    assert again[0] == {"type": "checkpoint", "checkpoint": {"names": ["Ada", "Grace"]}}
    assert again[-1]["text"] == "Hello Grace! You come after Ada."


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    shown = dict(re.findall(r"\$ cat > \"\$MOORAGE_HOME/agents/([\w.-]+)\" <<'END'\n((?:>.*\n)+?)> END\n", page))
    del shown["hasty.toml"]  # it is wrong on purpose
    assert shown.keys() == {path.name for path in AGENTS.iterdir() if path.is_file()}
    for name, lines in shown.items():
        assert re.sub(r"^> ?", "", lines, flags=re.M) == (AGENTS / name).read_text(), name
    assert len((AGENTS / "count-words.sh").read_text().splitlines()) <= 10
    assert len((AGENTS / "careful.py").read_text().splitlines()) <= 20
