"""A storm: launchers are killed and stopped while families of agents work; then the history must be whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moorage import config, sync
from moorage.service.inline import drive
from moorage.testing.history import problems_in
from tests.launcher.test_processes import is_alive, until

LENGTH = int(os.environ.get("MOORAGE_STORM", "1"))
FAMILIES = 8 * LENGTH
KILLS = 8 * LENGTH
SEED = int(os.environ.get("MOORAGE_SEED", "20261116"))
PARENT = """\
import os, subprocess, sys, time
prompt = sys.stdin.read()
open({journal!r}, "a").write(f"{{os.getpid()}}\\n")
if "Callbacks" in prompt:
    print("heard")
else:
    for number in range(3):
        key = os.environ["AGENT_RUN_ID"] + str(number)
        ask = ["run", "child", str(number), "--mode", "async_callback", "--idempotency-key", key]
        subprocess.run([sys.executable, "-m", "moorage", *ask], check=True, stdout=subprocess.DEVNULL)
    print("waiting")
"""
CHILD = """\
import os, sys, time
prompt = sys.stdin.read()
open({journal!r}, "a").write(f"{{os.getpid()}}\\n")
time.sleep(0.2)
print("did " + prompt)
"""


class Fleet:
    """Launchers that are killed, stopped and started again."""

    def __init__(self) -> None:
        self._live: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "moorage", "launcher", "--name", name, "--slots", "6"]
        limits = ["--lease", "0.5s", "--lost-after", "3s"]
        self._live[name] = subprocess.Popen([*command, *limits], stderr=subprocess.DEVNULL)

    def strike(self, chance: random.Random) -> None:
        """Kill one, or stop one for longer than it may be silent; it comes back."""
        name = chance.choice(sorted(self._live))
        process = self._live[name]
        if chance.random() < 0.3:
            process.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.2, 3.5))
            process.send_signal(signal.SIGCONT)
            return
        process.kill()
        process.wait()
        self.start(name)

    def end(self) -> None:
        for process in self._live.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._live.values():
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.mark.timeout(240 * LENGTH)
def test_nothing_is_lost_and_nothing_done_twice_in_a_storm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENT_SESSION_ID", "AGENT_SESSION_NAME", "AGENT_RUN_ID", "MOORAGE_URL"):
        monkeypatch.delenv(name, raising=False)
    home, journal = tmp_path / "home", tmp_path / "journal"
    monkeypatch.setenv("MOORAGE_HOME", str(home))
    (home / "agents").mkdir(parents=True)
    for name, code in (("parent", PARENT), ("child", CHILD)):
        script = tmp_path / f"{name}.py"
        script.write_text(code.format(journal=str(journal)))
        definition = f'[agent]\nname = "{name}"\nkind = "command"\nretry = "always"\n'
        (home / "agents" / f"{name}.toml").write_text(f'{definition}command = ["{sys.executable}", "{script}"]\n')
    chance, fleet, moor = random.Random(SEED), Fleet(), sync.connect()
    for name in ("one", "two", "three"):
        fleet.start(name)
    try:
        asked = [_ask(number) for number in range(FAMILIES)]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.1, 0.8))
            fleet.strike(chance)
        until(lambda: not moor.runs(open_only=True).items)
        until(lambda: not moor.inbox().items)
    finally:
        fleet.end()
        moor.close()
    store = config.open_store(config.pick_url(), threaded=False)
    try:
        assert drive(problems_in(store, "local", asked)) == []
    finally:
        drive(store.close())
    left = [int(line) for line in journal.read_text().split() if is_alive(int(line))]
    assert left == []


def _ask(number: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "moorage", "run", "parent", str(number), "--mode", "async_poll"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()
