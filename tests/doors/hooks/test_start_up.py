"""Start-up: a hook loads what it needs, and this is the list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage import sync
from tests.doors.hooks.test_events import recorded

RULES = {
    *(
        "moorage",
        "moorage.clocks",
        "moorage.config",
        "moorage.ports",
        "moorage.core",
        "moorage.core.brief",
        "moorage.service",
        "moorage.stores",
    ),
    *(f"moorage.core.{name}" for name in "approval codec duration entry errors fact family".split()),
    *(f"moorage.core.{name}" for name in "ids inline policy query redact session status window".split()),
    *(f"moorage.service.{name}" for name in "approvals delegation deps inline retention".split()),
}
STORE = {
    *("moorage.stores.rows", "moorage.stores.session_rows", "moorage.stores.sqlite", "moorage.stores.sql"),
    *(f"moorage.stores.sql.{name}" for name in "changes counts db family find history lookup".split()),
    *(f"moorage.stores.sql.{name}" for name in "store views".split()),
    *(f"moorage.stores.sqlite.{name}" for name in "access connection".split()),
    *(f"moorage.stores.sqlite.{name}" for name in "store writes".split()),
}
DOOR = {
    *("moorage.doors", "moorage.doors.start", "moorage.doors.hooks"),
    *(f"moorage.doors.hooks.{name}" for name in "context main spool work".split()),
}
PLAIN = {"moorage.compat", "moorage.compat.pre_delegate", "moorage.doors.hooks.plain"}
HOSTS = {
    "moorage.doors.hooks.claude_code",
    *(f"moorage.service.{name}" for name in ("conversation", "hosts", "sessions", "status")),
}
OTHERS = {"apsw", "msgspec"}  # and nothing else that is not the standard library's
HEAVY = {  # of the standard library
    *("argparse", "asyncio", "concurrent", "dataclasses", "email", "http", "importlib.metadata", "importlib.resources"),
    *("inspect", "json", "logging", "multiprocessing", "pathlib", "random", "shutil", "socket", "ssl", "subprocess"),
    *("tempfile", "threading", "tomllib", "traceback", "unittest", "urllib"),
}
_LOADED = """
import os, sys
read = []
def note(event, args): event == 'open' and str(args[0]).endswith('.sql') and read.append(str(args[0]))
sys.addaudithook(note)
def tell(code): sys.stderr.write(' '.join([*sys.modules, *read])); sys.stderr.flush(); leave(code)
leave, os._exit = os._exit, tell
sys.argv[1:] = {args!r}
from moorage.doors.hooks.main import main
main()
"""


def loaded_by(event: dict[str, Any], *args: str) -> set[str]:
    """Return the modules that a hook has loaded when it ends, and the files of statements that it has read."""
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
def test_hook_imports_only_listed_modules(
    moor: sync.Moorage, home: Path, call: tuple[Any, ...], more: set[str]
) -> None:
    event, *args = call
    loaded = loaded_by(recorded(event["recorded"]) if "recorded" in event else event, *args)
    standard = set(sys.stdlib_module_names) | {"__main__"}
    ours = {name for name in loaded if name.partition(".")[0] == "moorage"}
    others = {name.partition(".")[0] for name in loaded} - standard - {"moorage"}

    assert {name for name in loaded if os.sep in name} == set()
    assert ours - (RULES | STORE | DOOR | more) == set()
    assert others - OTHERS == set()
    assert {name for name in loaded if name in HEAVY or name.partition(".")[0] in HEAVY} == set()


def test_an_event_that_is_none_of_our_business_opens_nothing(home: Path) -> None:
    loaded = loaded_by(recorded("pre_tool_use-bash"))
    assert "apsw" not in loaded
    assert not home.exists()
