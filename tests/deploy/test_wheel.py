"""The built wheel: run by uvx and pipx from its path, and installed alone, without any extra."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.doors.mcp.ways import server_process

ROOT = Path(__file__).parents[2]
PATIENCE = 280
UNREACHABLE = re.compile(r"connection|resolve host|name resolution|no matching distribution|dns error", re.IGNORECASE)
pytestmark = pytest.mark.timeout(600)  # each of them downloads what the wheel needs


def run(*command: str | Path, **env: str) -> str:
    """Run a command and return its output; skip where packages cannot be downloaded."""
    trusting = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}  # tests have it empty
    env = {**trusting, "UV_SYSTEM_CERTS": "1", **env}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode != 0 and UNREACHABLE.search(done.stderr):
        pytest.skip(f"packages cannot be downloaded here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with pip, uv and pipx."""
    folder = tmp_path_factory.mktemp("tools")
    run(Path(sys.base_prefix) / "bin" / "python3", "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "uv", "pipx")
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a wheel")
    run(tools / "uv", "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_uvx_and_pipx_run_the_wheel_by_its_path(tools: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert run(tools / "uvx", "--from", wheel, "moorage", "--version").split()[-1] == version
    home = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_DEFAULT_PYTHON": str(tools / "python")}
    assert run(tools / "pipx", "run", "--spec", wheel, "moorage", "--version", **home).split()[-1] == version


USE_LIBRARY = """
import sys
from moorage import sync
with sync.connect(sys.argv[1]) as moor:
    moor.create(agent="smoke", name=sys.argv[2])
    moor.append(sys.argv[2], "hello")
    moor.suspend(sys.argv[2], checkpoint={"step": 1})
    assert moor.resume(sys.argv[2]).checkpoint == {"step": 1}
    print(moor.run("echo-agent", "hello").result)
"""


@pytest.fixture(scope="module")
def thin(tools: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("thin")
    run(tools / "uv", "venv", "--quiet", "--python", tools / "python", "--clear", folder)
    run(tools / "uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python", wheel)
    return folder / "bin"


def at_home(home: Path, **more: str) -> dict[str, str]:
    """Return environment variables with nothing of Moorage but its folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_", "PYTHON"))}
    return {**kept, "MOORAGE_HOME": str(home), **more}


def call(home: Path, *command: str | Path, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=at_home(home, **more),
        cwd=home,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def output(home: Path, *command: str | Path, text: str = "") -> str:
    done = call(home, *command, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plain_install_has_library_command_line_and_hook(thin: Path, tmp_path: Path) -> None:
    moorage = thin / "moorage"
    assert "hello" in output(tmp_path, thin / "python", "-c", USE_LIBRARY, f"sqlite:///{tmp_path}/lib.db", "mine")
    assert output(tmp_path, moorage, "create", "--agent", "smoke", "--name", "here").strip()
    assert "here" in output(tmp_path, moorage, "list")
    assert "hello" in output(tmp_path, moorage, "run", "echo-agent", "hello")
    asked = output(tmp_path, thin / "moorage-hook", "pre-delegate", text='{"agent": "smoke"}')
    assert "should_resume" in json.loads(asked)


def test_plain_install_has_the_remote_client_and_the_launcher(thin: Path, tmp_path: Path) -> None:
    served, here = tmp_path / "served", tmp_path / "here"
    served.mkdir()
    here.mkdir()
    assert "Take turns" in output(here, thin / "moorage", "launcher", "--help")
    with server_process(served) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert "hello" in output(here, thin / "python", "-c", USE_LIBRARY, url, "mine")
        assert "mine" in output(here, thin / "moorage", "--url", url, "list")
        command = [str(thin / "moorage"), "--url", url, "launcher", "--name", "elsewhere"]
        with subprocess.Popen(command, env=at_home(here), cwd=here, stderr=subprocess.PIPE, text=True) as launcher:
            try:
                deadline = time.monotonic() + 60
                while "elsewhere" not in output(here, thin / "moorage", "--url", url, "launchers"):
                    assert launcher.poll() is None
                    assert time.monotonic() < deadline
            finally:
                launcher.send_signal(signal.SIGTERM)
                _, told = launcher.communicate(timeout=60)
        assert launcher.returncode == 0, told


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["serve", "--port", "0"], "server"),
        (["mcp"], "mcp"),
        (["sample", "echo-agent"], "grpc"),
        (["--url", "postgresql://somebody@127.0.0.1:1/nothing", "list"], "postgres"),
        (["create", "--agent", "smoke"], "encryption"),
    ],
)
def test_command_without_its_extra_names_the_line_that_installs_it(
    thin: Path, tmp_path: Path, arguments: list[str], extra: str
) -> None:
    sealed = {"MOORAGE_ENCRYPTION_KEYS": output(tmp_path, thin / "moorage", "encryption-key", "k").strip()}
    done = call(tmp_path, thin / "moorage", *arguments, **(sealed if extra == "encryption" else {}))
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(rf"moorage: .+ is not installed; run: pip install 'moorage\[{extra}\]'\n", done.stderr)
    assert not done.stdout


def test_grpc_port_without_grpc_names_the_line_that_installs_it(tools: Path, wheel: Path, tmp_path: Path) -> None:
    run(tools / "uv", "venv", "--quiet", "--python", tools / "python", tmp_path / "server")
    programs = tmp_path / "server" / "bin"
    run(tools / "uv", "pip", "install", "--quiet", "--python", programs / "python", f"{wheel}[server]")
    done = call(tmp_path, programs / "moorage", "serve", "--port", "0", "--grpc-port", "0")
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1] == "moorage: gRPC is not installed; run: pip install 'moorage[grpc]'"
