"""Start-up: a hook loads what it needs, and this is the list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import sync
from tests.doors.hooks.test_events import recorded

RULES = {
    *("holdfast", "holdfast.config", "holdfast.ports", "holdfast.core", "holdfast.service", "holdfast.stores"),
    *(f"holdfast.core.{name}" for name in "approval bundle codec context delegation duration entry errors".split()),
    *(f"holdfast.core.{name}" for name in "event fact family ids policy query redact session window".split()),
    *(f"holdfast.service.{name}" for name in "approvals delegation deps inline retention".split()),
}
STORE = {
    *("holdfast.stores.rows", "holdfast.stores.places", "holdfast.stores.sqlite"),
    *(f"holdfast.stores.sqlite.{name}" for name in "access connection context counts cursors facts family".split()),
    *(f"holdfast.stores.sqlite.{name}" for name in "find heads log migrate search store transfer".split()),
}
DOOR = {
    *("holdfast.doors", "holdfast.doors.start", "holdfast.doors.hooks"),
    *(f"holdfast.doors.hooks.{name}" for name in "desk main spool work".split()),
}
PLAIN = {"holdfast.compat", "holdfast.compat.pre_delegate", "holdfast.doors.hooks.plain"}
HOSTS = {
    *(f"holdfast.doors.hooks.{name}" for name in ("claude_code", "words")),
    *(f"holdfast.service.{name}" for name in ("context", "conversation", "hosts", "sessions")),
}
OTHERS = {"apsw", "msgspec"}  # and nothing else that is not the standard library's
HEAVY = {  # of the standard library
    *("argparse", "asyncio", "concurrent", "dataclasses", "email", "http", "importlib.metadata", "importlib.resources"),
    *("inspect", "json", "logging", "multiprocessing", "pathlib", "random", "shutil", "socket", "ssl", "subprocess"),
    *("tempfile", "tomllib", "traceback", "unittest", "urllib"),
}
_LOADED = """
import os, sys
def tell(code): sys.stderr.write(' '.join(sys.modules)); sys.stderr.flush(); leave(code)
leave, os._exit = os._exit, tell
sys.argv[1:] = {args!r}
from holdfast.doors.hooks.main import main
main()
"""


def loaded_by(event: dict[str, Any], *args: str) -> set[str]:
    """Return the modules that a hook has loaded when it ends."""
    command = [sys.executable, "-S", "-c", _LOADED.format(args=list(args))]  # without site: that is not ours
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, input=json.dumps(event), capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


CASES = [
    (({"agent_name": "a", "task_id": "T001"}, "pre-delegate"), PLAIN),
    (({"agent": "a", "task_id": "T001"}, "subagent-stop"), PLAIN | HOSTS),
    *((({"recorded": name},), HOSTS) for name in ("pre_tool_use-agent", "session_start-startup", "subagent_start")),
]


@pytest.mark.parametrize(("call", "more"), CASES, ids=[str(call[-1]) for call, _ in CASES])
def test_what_a_hook_loads_is_on_the_list(hf: sync.Holdfast, home: Path, call: tuple[Any, ...], more: set[str]) -> None:
    event, *args = call
    loaded = loaded_by(recorded(event["recorded"]) if "recorded" in event else event, *args)
    standard = set(sys.stdlib_module_names) | {"__main__"}
    ours = {name for name in loaded if name.partition(".")[0] == "holdfast"}
    others = {name.partition(".")[0] for name in loaded} - standard - {"holdfast"}

    assert ours - (RULES | STORE | DOOR | more) == set()
    assert others - OTHERS == set()
    assert {name for name in loaded if name in HEAVY or name.partition(".")[0] in HEAVY} == set()


def test_an_event_that_is_none_of_our_business_opens_nothing(home: Path) -> None:
    loaded = loaded_by(recorded("pre_tool_use-bash"))
    assert "apsw" not in loaded
    assert not home.exists()
