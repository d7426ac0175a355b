"""A guided tour: `python -m moorage.tour` lives one session through, in a temporary folder.

Every step opens the store anew, as another process would: what the next one finds was kept.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from tempfile import TemporaryDirectory

from moorage.api import Moorage
from moorage.client import connect

NAME = "plan-prod"
Shown = tuple[str, str, str]  # a command, the call that does the same, and what came of it


async def create(moor: Moorage) -> Shown:
    """Open a session for an agent, under a name of your choice"""
    session = await moor.create(agent="terraform-architect", name=NAME, parent=None)  # also if an agent takes the tour
    return (
        f"moorage create --agent terraform-architect --name {NAME}",
        f'await moor.create(agent="terraform-architect", name="{NAME}")',
        f"session {session.id}, {session.state}, in phase {session.phase}",
    )


async def talk(moor: Moorage) -> Shown:
    """Say something; it is on disk before the call returns"""
    reply = await moor.send(NAME, "Plan the change")
    return (
        f'moorage send {NAME} "Plan the change"',
        f'await moor.send("{NAME}", "Plan the change")',
        f"entry {reply.message.number} of the log, by the {reply.message.role}: {reply.message.text}",
    )


async def delegate(moor: Moorage) -> Shown:
    """Give a part of the work to a child; it knows its parent, and goes when its parent goes"""
    child = await moor.create(agent="cost-checker", parent=NAME)
    return (
        f"moorage create --agent cost-checker --parent {NAME}",
        f'await moor.create(agent="cost-checker", parent="{NAME}")',
        f"session {child.id}, child of {child.parent_session_name}",
    )


async def ask(moor: Moorage) -> Shown:
    """Ask a person, wait for days if need be, and be that person"""
    asked = await moor.request_approval(NAME, "Apply the plan?")
    status = (await moor.get(NAME)).status
    approval = await moor.approve(asked.approval_id)
    return (
        f'moorage request-approval {NAME} "Apply the plan?" && moorage approve {asked.approval_id}',
        f'await moor.approve((await moor.request_approval("{NAME}", "Apply the plan?")).approval_id)',
        f"the session was {status}; its question is now {approval.state}, by {approval.decided_by}",
    )


async def pause(moor: Moorage) -> Shown:
    """Pause, and hand over where you are"""
    session = await moor.suspend(NAME, checkpoint={"step": 3})
    return (
        f"""moorage suspend {NAME} --checkpoint '{{"step": 3}}'""",
        f'await moor.suspend("{NAME}", checkpoint={{"step": 3}})',
        f"the session is {session.state}",
    )


async def pick_up(moor: Moorage) -> Shown:
    """Pick it up, in this process or another, today or next month"""
    back = await moor.resume(NAME)
    return (
        f"moorage resume {NAME}",
        f'await moor.resume("{NAME}")',
        f"checkpoint {back.checkpoint}, messages {[entry.text for entry in back.messages]}, yours to drive",
    )


async def close(moor: Moorage) -> Shown:
    """Close it; from now on it can be read, forked or deleted, and nothing else"""
    session = await moor.finalize(NAME, "completed", summary="Applied")
    return (
        f"moorage finalize {NAME} completed --summary Applied",
        f'await moor.finalize("{NAME}", "completed", summary="Applied")',
        f"{session.state} after {session.duration_seconds:.2f} seconds, with {session.last_entry} entries in its log",
    )


STEPS = (create, talk, delegate, ask, pause, pick_up, close)


async def walk(url: str) -> None:
    """Take the steps one after another, and tell."""
    for number, step in enumerate(STEPS, 1):
        async with connect(url) as moor:
            shell, python, result = await step(moor)
        print(f"{number}. {step.__doc__}.\n     shell   {shell}\n     python  {python}\n     →       {result}\n")


def main() -> None:
    """Take the tour in a folder that is gone afterwards."""
    print("Moorage keeps an agent's session alive. This is the life of one, in a temporary folder.\n")
    with TemporaryDirectory(prefix="moorage-tour-") as folder:
        asyncio.run(walk(f"sqlite:///{folder}/moorage.db"))
    print(f"Now one that stays:\n\n     {command()} create --agent my-agent --name my-first-session")


def command() -> str:
    """How `moorage` is called from here."""
    beside = os.path.join(os.path.dirname(sys.executable), "moorage")
    return shlex.quote(os.path.relpath(beside)) if beside.startswith(os.getcwd() + os.sep) else "moorage"


if __name__ == "__main__":
    main()
