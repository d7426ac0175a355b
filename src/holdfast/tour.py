"""A guided tour: `python -m holdfast.tour` lives one session through, in a temporary folder.

Every step opens the store anew, as another process would: what the next one finds was kept.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from tempfile import TemporaryDirectory

from holdfast.client import Holdfast, connect

NAME = "plan-prod"
Shown = tuple[str, str, str]  # a command, the call that does the same, and what came of it


async def create(hf: Holdfast) -> Shown:
    """Open a session for an agent, under a name of your choice"""
    session = await hf.create(agent="terraform-architect", name=NAME, parent=None)  # whoever takes the tour
    return (
        f"holdfast create --agent terraform-architect --name {NAME}",
        f'await hf.create(agent="terraform-architect", name="{NAME}")',
        f"session {session.id}, {session.state}, in phase {session.phase}",
    )


async def talk(hf: Holdfast) -> Shown:
    """Say something; it is on disk before the call returns"""
    reply = await hf.send(NAME, "Plan the change")
    return (
        f'holdfast send {NAME} "Plan the change"',
        f'await hf.send("{NAME}", "Plan the change")',
        f"entry {reply.message.number} of the log, by the {reply.message.role}: {reply.message.text}",
    )


async def delegate(hf: Holdfast) -> Shown:
    """Give a part of the work to a child; it knows its parent, and goes when its parent goes"""
    child = await hf.create(agent="cost-checker", parent=NAME)
    return (
        f"holdfast create --agent cost-checker --parent {NAME}",
        f'await hf.create(agent="cost-checker", parent="{NAME}")',
        f"session {child.id}, child of {child.parent_session_name}",
    )


async def ask(hf: Holdfast) -> Shown:
    """Ask a person, wait for days if need be, and be that person"""
    asked = await hf.request_approval(NAME, "Apply the plan?")
    status = (await hf.get(NAME)).status
    approval = await hf.approve(asked.approval_id)
    return (
        f'holdfast request-approval {NAME} "Apply the plan?" && holdfast approve {asked.approval_id}',
        f'await hf.approve((await hf.request_approval("{NAME}", "Apply the plan?")).approval_id)',
        f"the session was {status}; its question is now {approval.state}, by {approval.decided_by}",
    )


async def pause(hf: Holdfast) -> Shown:
    """Pause, and hand over where you are"""
    session = await hf.suspend(NAME, checkpoint={"step": 3})
    return (
        f"""holdfast suspend {NAME} --checkpoint '{{"step": 3}}'""",
        f'await hf.suspend("{NAME}", checkpoint={{"step": 3}})',
        f"the session is {session.state}",
    )


async def pick_up(hf: Holdfast) -> Shown:
    """Pick it up, in this process or another, today or next month"""
    back = await hf.resume(NAME)
    return (
        f"holdfast resume {NAME}",
        f'await hf.resume("{NAME}")',
        f"checkpoint {back.checkpoint}, messages {[entry.text for entry in back.messages]}, yours to drive",
    )


async def close(hf: Holdfast) -> Shown:
    """Close it; from now on it can be read, forked or deleted, and nothing else"""
    session = await hf.finalize(NAME, "completed", summary="Applied")
    return (
        f"holdfast finalize {NAME} completed --summary Applied",
        f'await hf.finalize("{NAME}", "completed", summary="Applied")',
        f"{session.state} after {session.duration_seconds:.2f} seconds, with {session.last_entry} entries in its log",
    )


STEPS = (create, talk, delegate, ask, pause, pick_up, close)


async def walk(url: str) -> None:
    """Take the steps one after another, and tell."""
    for number, step in enumerate(STEPS, 1):
        async with connect(url) as hf:
            shell, python, result = await step(hf)
        print(f"{number}. {step.__doc__}.\n     shell   {shell}\n     python  {python}\n     →       {result}\n")


def main() -> None:
    """Take the tour in a folder that is gone afterwards."""
    print("Holdfast keeps an agent's session alive. This is the life of one, in a temporary folder.\n")
    with TemporaryDirectory(prefix="holdfast-tour-") as folder:
        asyncio.run(walk(f"sqlite:///{folder}/holdfast.db"))
    print(f"Now one that stays:\n\n     {command()} create --agent my-agent --name my-first-session")


def command() -> str:
    """How `holdfast` is called from here."""
    beside = os.path.join(os.path.dirname(sys.executable), "holdfast")
    return shlex.quote(os.path.relpath(beside)) if beside.startswith(os.getcwd() + os.sep) else "holdfast"


if __name__ == "__main__":
    main()
