#!/usr/bin/env python3
"""Build a release and try it out: `./dev release [FOLDER]`; FOLDER is `dist` unless given.

Builds the sdist, and the wheel from it; checks both; installs each into an empty environment and uses it there. Needs
Python and pip alone: the tools are installed by name into a temporary environment. Publishes nothing: see
docs/releasing.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("build", "twine", "cyclonedx-python-lib[json-validation]")
NEEDED_IN_SDIST = ("dev", ".ci/run", "README.md", "LICENSE", "scripts/sbom.py", "tests/test_repository.py")
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(None if error is None else str(error))
"""
USE_LIBRARY = """
from moorage import sync
with sync.connect("sqlite:///smoke.db") as moor:
    session = moor.create(agent="smoke", name="smoke")
    moor.append("smoke", "hello")
    moor.suspend("smoke", checkpoint={"step": 1})
    assert moor.resume("smoke").checkpoint == {"step": 1}
"""


def main(folder: str = "dist") -> int:
    """Build, check, install and use; return the exit code."""
    target = ROOT / folder
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        tools = Environment(Path(place) / "tools")
        with step("install the tools"):
            tools.install(*TOOLS)
        with step("build sdist and wheel"):
            tools.python("-m", "build", "--outdir", str(target), str(ROOT))
        wheel, sdist = only(target.glob("*.whl")), only(target.glob("*.tar.gz"))
        with step("check the metadata"):
            tools.python("-m", "twine", "check", "--strict", str(wheel), str(sdist))
            check_versions(wheel, sdist)
            check_sdist(sdist)
        with step("check the bill of materials"):
            tools.python("-c", VALIDATE, text=bill_of_materials(wheel))
        for artifact, extra in ((wheel, ""), (sdist, ""), (wheel, "[server]")):
            with step(f"install and use {artifact.name}{extra}"):
                use(Environment(Path(place) / f"{artifact.suffix}{extra}"), artifact, extra)
    print("\n".join(f"{path.stat().st_size:>10,}  {path}" for path in (wheel, sdist)))
    return 0


class Environment:
    """An empty virtual environment."""

    def __init__(self, place: Path) -> None:
        self.place = place
        run([sys.executable, "-m", "venv", str(place)])

    def install(self, *requirements: str) -> None:
        """Install by name or path."""
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)

    def python(self, *arguments: str, text: str = "", cwd: Path = ROOT) -> str:
        """Run this environment's Python and return its output."""
        return run([str(self.place / "bin" / "python"), *arguments], text=text, cwd=cwd)

    def script(self, name: str, *arguments: str, text: str = "") -> str:
        """Run a console script in the environment's own folder, with its own data."""
        return run([str(self.place / "bin" / name), *arguments], text=text, cwd=self.place)


def use(fresh: Environment, artifact: Path, extra: str) -> None:
    """Install an artifact and do with it what its users do first."""
    fresh.install(f"{artifact}{extra}")
    fresh.python("-c", USE_LIBRARY, cwd=fresh.place)
    assert fresh.script("moorage", "--version").split()[-1] == version()
    assert "hello" in fresh.script("moorage", "--url", "sqlite:///smoke.db", "run", "echo-agent", "hello")
    json.loads(fresh.script("moorage-hook", "pre-delegate", text='{"agent": "smoke"}'))
    if extra:
        serve(fresh)


def serve(fresh: Environment) -> None:
    """Start a server at a free port and ask it something."""
    command = [str(fresh.place / "bin" / "moorage"), "serve", "--port", "0", "--no-grpc", "--log-format", "json"]
    with subprocess.Popen(command, cwd=fresh.place, env=environment(fresh.place), stderr=subprocess.PIPE) as server:
        try:
            url = listening(server)
            assert "hello" in fresh.script("moorage", "--url", url, "run", "echo-agent", "hello")
        finally:
            server.terminate()
            server.communicate(timeout=30)


def listening(server: subprocess.Popen[bytes]) -> str:
    """Return the address that the server's log tells."""
    assert server.stderr is not None
    seen = []
    for line in server.stderr:
        seen.append(line.decode(errors="replace"))
        if found := re.search(r"http://127\.0\.0\.1:\d+", seen[-1]):
            return found[0]
    sys.exit(f"release: the server did not start:\n{''.join(seen)}")


def check_versions(wheel: Path, sdist: Path) -> None:
    """Make sure that the files, the package and pyproject.toml have one version."""
    module = (ROOT / "src" / "moorage" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{version()}"' in module, "src/moorage/__init__.py has another version than pyproject.toml"
    assert wheel.name == f"moorage-{version()}-py3-none-any.whl", wheel.name
    assert sdist.name == f"moorage-{version()}.tar.gz", sdist.name


def check_sdist(sdist: Path) -> None:
    """Make sure that the README's commands can be run from the sdist."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = [name for name in NEEDED_IN_SDIST if name not in names]
    assert not missing, f"the sdist lacks {missing}"


def bill_of_materials(wheel: Path) -> str:
    """Return the SBOM inside a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = only(name for name in archive.namelist() if ".dist-info/sboms/" in name)
        return archive.read(name).decode()


def version() -> str:
    """Return the version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def only(found: Iterator[Any]) -> Any:
    """Return the single item."""
    (item,) = found
    return item


def run(command: list[str], *, text: str = "", cwd: Path = ROOT) -> str:
    """Run a command and return its output; end with what it said if it fails."""
    env = environment(cwd)
    done = subprocess.run(command, cwd=cwd, env=env, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"\nrelease: {' '.join(command)} failed ({done.returncode})\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    """Return our environment variables without another Python's and without a caller's store."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MOORAGE_", "AGENT_"))}
    return kept | {"MOORAGE_HOME": str(home / "data")}


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(f"release: {name} … ", end="", flush=True)
    started = time.monotonic()
    yield
    print(f"ok, {time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
