"""Functions: a Python process that calls one, and speaks JSON lines for it."""

from __future__ import annotations

import os
import sys

from moorage.launcher.drivers.jsonl import JsonlDriver


class PythonDriver(JsonlDriver):
    """Starts `moorage.agents.python`, which does the rest."""

    numbers_lines = False

    def argv(self) -> list[str]:
        agent = self.job["agent"]
        beside = [os.path.dirname(agent["source"])] if agent.get("source") else []
        # -P: the folder it works in must not shadow our modules; it is looked into later
        return [sys.executable, "-P", "-m", "moorage.agents.python", agent["function"], *beside]

    def env(self) -> dict[str, str]:
        return {"PYTHONUNBUFFERED": "1"}
