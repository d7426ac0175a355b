"""A guided tour: `python -m moorage.tour` shows one session from its creation to its end, in a temporary folder.

Every step opens the store anew, as another process would.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from tempfile import TemporaryDirectory

from moorage.api import Moorage
from moorage.connecting import connect

NAME, CHILD = "plan-prod", "cost"
Shown = tuple[str, str, str]  # a command, the call that does the same, and the result


async def create(moor: Moorage) -> Shown:
    """Create a session for an agent, with a name"""
    session = await moor.create(agent="terraform-architect", name=NAME, parent=None)  # also if an agent takes the tour
    return (
        f"moorage create --agent terraform-architect --name {NAME}",
        f'await moor.create(agent="terraform-architect", name="{NAME}")',
        f"{session.name} is {session.state}, in phase {session.phase}",
    )


async def talk(moor: Moorage) -> Shown:
    """Send a message; it is on disk when the call returns"""
    reply = await moor.send(NAME, "Plan the change")
    return (
        f'moorage send {NAME} "Plan the change"',
        f'await moor.send("{NAME}", "Plan the change")',
        f"entry {reply.message.number} of the log, by the {reply.message.role}: {reply.message.text}",
    )


async def delegate(moor: Moorage) -> Shown:
    """Give a part of the work to a child; deleting the parent deletes it, too"""
    child = await moor.create(agent="checker", name=CHILD, parent=NAME)
    return (
        f"moorage create --agent checker --name {CHILD} --parent {NAME}",
        f'await moor.create(agent="checker", name="{CHILD}", parent="{NAME}")',
        f"{child.name} is a child of {child.parent_session_name}",
    )


async def ask(moor: Moorage) -> Shown:
    """Ask a person for approval; no process has to run while the session waits"""
    asked = await moor.request_approval(NAME, "Apply the plan?")
    return (
        f'moorage request-approval {NAME} "Apply the plan?"',
        f'await moor.request_approval("{NAME}", "Apply the plan?")',
        f"the approval is {asked.state}, the session is {(await moor.get(NAME)).status}",
    )


async def answer(moor: Moorage) -> Shown:
    """Answer as that person"""
    approval = await moor.approve((await moor.approvals(NAME))[0].approval_id)
    return (
        f"moorage approve {NAME}",
        f'await moor.approve((await moor.approvals("{NAME}"))[0].approval_id)',
        f"the approval is {approval.state}, by {approval.decided_by}",
    )


async def pause(moor: Moorage) -> Shown:
    """Suspend the session, with a checkpoint for the process that resumes it"""
    session = await moor.suspend(NAME, checkpoint={"step": 3})
    return (
        f"""moorage suspend {NAME} --checkpoint '{{"step": 3}}'""",
        f'await moor.suspend("{NAME}", checkpoint={{"step": 3}})',
        f"the session is {session.state}",
    )


async def resume(moor: Moorage) -> Shown:
    """Resume it, in this process or another; only one process gets the hold"""
    back = await moor.resume(NAME)
    return (
        f"moorage resume {NAME}",
        f'await moor.resume("{NAME}")',
        f"checkpoint {back.checkpoint}, messages {[entry.text for entry in back.messages]}, a hold",
    )


async def close(moor: Moorage) -> Shown:
    """Finalize it; then it can only be read, exported, forked and deleted"""
    session = await moor.finalize(NAME, "completed", summary="Applied")
    return (
        f"moorage finalize {NAME} completed --summary Applied",
        f'await moor.finalize("{NAME}", "completed", summary="Applied")',
        f"{session.state} after {session.duration_seconds:.2f} seconds, with {session.last_entry} entries in its log",
    )


STEPS = (create, talk, delegate, ask, answer, pause, resume, close)


async def walk(url: str) -> None:
    """Take the steps one after another, and print them."""
    for number, step in enumerate(STEPS, 1):
        async with connect(url) as moor:
            shell, python, result = await step(moor)
        print(f"{number}. {step.__doc__}.\n   shell  {shell}\n   python {python}\n   →      {result}\n")


def main() -> None:
    """Take the tour in a folder that is deleted afterwards."""
    print("One session, from its creation to its end, in a temporary folder.")
    print("Each step is a command, or a call in Python.\n")
    with TemporaryDirectory(prefix="moorage-tour-") as folder:
        asyncio.run(walk(f"sqlite:///{folder}/moorage.db"))
    print(f"Create a session that stays:\n\n   {command()} create --agent my-agent --name my-first-session")


def command() -> str:
    """Return how to call `moorage` from the current folder."""
    beside = os.path.join(os.path.dirname(sys.executable), "moorage")
    return shlex.quote(os.path.relpath(beside)) if beside.startswith(os.getcwd() + os.sep) else "moorage"


if __name__ == "__main__":
    main()
