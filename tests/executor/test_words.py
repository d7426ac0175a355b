"""Words of an agent that a server runs, as they are said."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.executor import AgentExecutor
from tests.doors.cli.agent_files import define
from tests.doors.cli.talking import a_talk
from tests.executor.processes import PATIENCE, served

TALE = f"""
[agent]
name = "tale"
kind = "command"
protocol = "jsonl"
command = [{sys.executable!r}, "-c", '''
import json, os, sys, time
def tell(**event): print(json.dumps(event), flush=True)
next(sys.stdin)
tell(type="chunk", text="Once upon ")
while not os.path.exists(os.environ["MOORAGE_HOME"] + "/go"):
    time.sleep(0.02)
tell(type="chunk", text="a time")
tell(type="message", content="Once upon a time")
tell(type="message", content="The end")
''']
"""


@pytest.fixture
def address(tmp_path: Path, home: Path) -> Iterator[str]:
    define(home, TALE)
    with served(tmp_path, f"sqlite:///{tmp_path / 'shared.db'}") as url:
        yield url


async def test_conversation_on_a_server_yields_chunks_while_the_agent_speaks(address: str, home: Path) -> None:
    async with moorage.connect(address) as moor, asyncio.timeout(PATIENCE):
        talk = AgentExecutor(moor).execute_interactive("tale", initial_message="go", partial=True)
        first = await anext(talk)
        assert (first.type, first.content) == ("chunk", "Once upon ")
        (home / "go").touch()
        heard = [first.content]
        while (event := await anext(talk)).type != "waiting_for_input":
            heard.append(event.data["rest"] if event.type == "message" else event.content)
        await talk.close()
    assert "".join(heard) == "Once upon a time\nThe end"


async def test_listener_of_a_run_on_a_server_gets_words_while_they_are_said(address: str, home: Path) -> None:
    heard: list[str] = []

    def hear(_: str, event: dict[str, Any]) -> None:
        if event["type"] == "chunk":
            heard.append(event["text"])
            (home / "go").touch()  # without the first words there would be no others

    async with moorage.connect(address) as moor, asyncio.timeout(PATIENCE):
        reply = await moor.run("tale", "go", parent=None, on_event=hear)
    assert (reply.status, "".join(heard)) == ("completed", "Once upon a time\nThe end")


def test_run_on_a_terminal_shows_words_of_a_server_while_they_are_said(address: str, home: Path) -> None:
    with a_talk("--url", address, "run", "tale", "go") as talk:
        talk.wait_for("Once upon ")
        (home / "go").touch()
        talk.wait_for("a time\nThe end\n")
        assert talk.end() == 0
    assert talk.shown.count("The end") == 1
