"""The peers' own environment: a venv under `bench/.peers`, made on first use, remade when `peers.txt` changes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".peers"
LIST = HERE / "peers.txt"
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


def python() -> Path:
    return FOLDER / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install() -> list[str]:
    """Make sure the peers are there; the answer names what could not be installed and why."""
    marker = FOLDER / "installed"
    if marker.exists() and marker.read_text() == _fingerprint():
        return []
    print("installing the peers into bench/.peers …", file=sys.stderr)
    venv.create(FOLDER, clear=True, with_pip=True)
    problems = _install_all()
    if not problems:
        marker.write_text(_fingerprint())
    return problems


def _install_all() -> list[str]:
    """All at once, or one by one when that fails: then a bad package costs only itself."""
    wanted = _wanted()
    if _pip(wanted) is None:
        return []
    return [f"{package} was not installed: {reason}" for package in wanted if (reason := _pip([package]))]


def _pip(packages: list[str]) -> str | None:
    command = [str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"pip took longer than {INSTALL_SECONDS} s"
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or ["pip failed"])[-1] if done.returncode else None


def _wanted() -> list[str]:
    lines = (line.strip() for line in LIST.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _fingerprint() -> str:
    return hashlib.sha256(f"{sys.version}\n{LIST.read_text()}".encode()).hexdigest()
