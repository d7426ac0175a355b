"""`--test`: both hooks on a store of their own, step by step."""

from __future__ import annotations

import sys
import tempfile
import time

from msgspec import json

from moorage import config
from moorage.doors.hooks.context import Json
from moorage.doors.hooks.work import HookWork

AGENT, TASK = "terraform-architect", "T001"


def run() -> int:
    """Try both hooks and print the results; return 1 if a result was wrong."""
    with tempfile.TemporaryDirectory(prefix="moorage-test-") as folder:
        trial = _Trial(config.sqlite_url(f"{folder}/{config.FILE_NAME}"))
        print(f"A store of its own: {trial.url}")
        trial.all_steps()
    print("All went as it should." if trial.went_well else "Something did not go as it should.")
    sys.stdout.flush()
    return 0 if trial.went_well else 1


class _Trial:
    def __init__(self, url: str) -> None:
        self.url, self.went_well = url, True

    def all_steps(self) -> None:
        """Run all steps: no session, a new one, one that waits for a person, its end."""
        asked: Json = {"agent_name": AGENT, "task_id": TASK, "task_description": "Plan the change", "metadata": {}}
        self.step("pre-delegate", asked, "there is nothing to pick up", should_resume=False)
        created = self.step("pre-delegate", {**asked, "create": True}, "a new session", created=True)["agent_id"]
        self.enter(created, "approval")  # as an agent does before it waits for a person
        waits = "the work that waits for a person can be picked up"
        self.step("pre-delegate", asked, waits, should_resume=True, agent_id=created)
        ended: Json = {"agent": AGENT, "task_id": TASK, "exit_code": 0, "output": "Planned."}
        self.step("subagent-stop", ended, "suspended: a person was asked", outcome="suspended")
        self.enter(created, "executing")  # as an agent does after its answer came
        self.step("subagent-stop", ended, "closed", outcome="completed")

    def step(self, command: str, event: Json, expected: str, **wanted: object) -> Json:
        work = HookWork(command, json.encode(event), url=self.url, create=False, deadline=time.monotonic() + 10)
        answer = work.answer()
        right = not answer.complaint and answer.code == 0 and wanted.items() <= answer.body.items()
        self.went_well = self.went_well and right
        print(f"{'ok ' if right else 'NO '} {command}: {expected}\n    {json.encode(answer.body).decode()}")
        if answer.complaint:
            print(f"    {answer.complaint}")
        return answer.body

    def enter(self, session_id: str, phase: str) -> None:
        from moorage import sync

        with sync.connect(self.url) as moor:
            moor.update(session_id, phase=phase)
        print(f"    the agent enters phase {phase}")
