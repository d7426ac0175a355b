"""A release in three steps with an approval in the middle. Run it again after whatever happened: it goes on.

    python examples/pipeline/release.py ID [URL]

prints what each step gave. If an agent asks a person, it says what and where and ends with exit code 3; answer with
`moorage approve`, and run it again. Without a URL it uses the store of your configuration.
"""

import asyncio
import sys
from pathlib import Path

from pipeline import AgentStep, Pipeline, PipelineSuspended

import moorage

AGENTS = Path(__file__).parent / "agents"
WAITS = 3

RELEASE = Pipeline(
    "release",
    [
        AgentStep("draft", "drafter", "Write the notes of release 1.2"),
        AgentStep("review", "reviewer", "Have this approved: {draft}"),
        AgentStep("publish", "publisher", "Publish this: {draft} ({review})"),
    ],
)


async def define_agents(moor: moorage.Moorage) -> None:
    known = {agent["name"] for agent in (await moor.agents()).items}
    for program in sorted(AGENTS.glob("*.py")):
        if program.stem not in known:
            command = [sys.executable, str(program)]
            table = {"name": program.stem, "kind": "command", "protocol": "jsonl", "command": command}
            await moor.define_agent({"agent": table})


async def main(pipeline_id: str, url: str | None = None) -> int:
    async with moorage.connect(url) as moor:
        await define_agents(moor)
        try:
            collected = await RELEASE.run(moor, pipeline_id)
        except PipelineSuspended as waits:
            for approval in waits.approvals:
                print(f"{waits.session_id} asks: {approval['question']} (moorage approve {approval['approval_id']})")
            return WAITS
    for step in RELEASE.steps:
        print(f"{step.name:9}{collected[step.name]}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
