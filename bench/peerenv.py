"""The peers' own environments: venvs under `bench`, made on first use, remade when their lists change.

Most are in `.peers` (`peers.txt`), those on Redis in `.peers-redis` (`peers-redis.txt`): what they need differs.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMON, ON_REDIS = "peers", "peers-redis"
INSTALL_SECONDS = 900

# None of them has to phone home to write a row.
QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "AGNO_TELEMETRY": "false",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Peer:
    """A column of the table."""

    name: str
    contender: str


PEERS = (
    Peer("OpenAI Agents", "bench.peers.openai_agents:OpenAIAgents"),
    Peer("LangGraph", "bench.peers.langgraph_saver:LangGraph"),
    Peer("ADK database", "bench.peers.adk:AdkDatabase"),
    Peer("ADK sqlite", "bench.peers.adk:AdkSqlite"),
    Peer("Agno", "bench.peers.agno_db:Agno"),
)


def python(which: str = COMMON) -> Path:
    """Return the interpreter of an environment."""
    return HERE / f".{which}" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install(which: str = COMMON) -> list[str]:
    """Make sure the peers are there; the answer names what could not be installed and why."""
    folder = HERE / f".{which}"
    marker = folder / "installed"
    if marker.exists() and marker.read_text() == _fingerprint(which):
        return []
    print(f"installing the peers into bench/.{which} …", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    problems = _install_all(which)
    if not problems:
        marker.write_text(_fingerprint(which))
    return problems


def _install_all(which: str) -> list[str]:
    """All at once, or one by one when that fails: then a bad package costs only itself."""
    wanted = _wanted(which)
    together = [line for line in wanted if not line.startswith("--")]
    alone = [line for line in wanted if line.startswith("--")]  # with options of their own
    if _pip(which, together) is None:
        together = []
    return [f"{line} was not installed: {why}" for line in (*together, *alone) if (why := _pip(which, line.split()))]


def _pip(which: str, packages: list[str]) -> str | None:
    command = [str(python(which)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"pip took longer than {INSTALL_SECONDS} s"
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1] if done.returncode else None


def _wanted(which: str) -> list[str]:
    lines = (line.strip() for line in _list(which).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _list(which: str) -> str:
    return (HERE / f"{which}.txt").read_text()


def _fingerprint(which: str) -> str:
    return hashlib.sha256(f"{sys.version}\n{_list(which)}".encode()).hexdigest()
