"""An agent asks before it acts; a person answers; another process goes on.

    python examples/approval.py ask   [URL]      the agent plans, asks, and ends
    python examples/approval.py answer [URL]     a person says yes
    python examples/approval.py go-on [URL]      any process, any time later

Without a step all three run, one after the other. Without a URL it uses the store of your configuration.
"""

import asyncio
import sys

import moorage

NAME = "release-notes"
PLAN = {"publish": "notes.md", "channels": ["mail", "web"]}


async def ask(url: str | None) -> None:
    async with moorage.connect(url) as moor:
        session = await moor.create(agent="writer", name=NAME, parent=None)
        await moor.append(session.id, "Write and publish the release notes")
        await moor.update(session.id, phase="planning")
        await moor.save_checkpoint(session.id, {"draft": "notes.md"})
        approval = await moor.request_approval(session.id, "Publish notes.md?", plan=PLAN, expires_in=7 * 86400)
        print(f"asked      {approval.question}")


async def answer(url: str | None) -> None:
    async with moorage.connect(url, by="editor") as moor:
        for approval in await moor.approvals(NAME):
            decided = await moor.decide(approval.approval_id, "approve", note="go", plan_hash=approval.plan_hash)
            print(f"answered   {decided.state} by {decided.decided_by}")


async def go_on(url: str | None) -> None:
    async with moorage.connect(url) as moor:
        back = await moor.resume(NAME)
        print(f"resumed    in phase {back.session.phase} with {back.checkpoint}")
        [approval] = await moor.approvals(NAME, pending_only=False)
        outcome = "completed" if approval.state == "approved" else "abandoned"
        session = await moor.finalize(NAME, outcome, summary=approval.note, token=back.hold.token)
        print(f"finalized  {session.state}")


STEPS = {"ask": ask, "answer": answer, "go-on": go_on}


async def main(*args: str) -> None:
    chosen = [args[0]] if args and args[0] in STEPS else list(STEPS)
    url = next((arg for arg in args if arg not in STEPS), None)
    for step in chosen:
        await STEPS[step](url)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
