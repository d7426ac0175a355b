"""Install Moorage with the lowest versions that it allows, and the newest test tools that go with them.

  python -m scripts.lowest UV PYTHON      into the environment of that PYTHON; `./dev lowest` calls this

Only direct dependencies are at their lowest: what those need in turn is for them to say.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# These run no test, but for schemathesis and openapi-python-client, which need a newer rich; starlette, for a
# benchmark, would pull ariadne up.
NO_TEST_TOOLS = {"import-linter", "moorage", "mypy", "openapi-python-client", "ruff", "schemathesis", "starlette"}
GO_WITH_OURS = {"grpcio-tools"}  # its newest would pull the gRPC packages up


def main(uv: str, python: str) -> int:
    """Install each direct dependency at its floor; return the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tools = [tool for tool in extras["dev"] if name_of(tool) not in NO_TEST_TOOLS]
    optional = [each for extra, wanted in extras.items() if extra != "dev" for each in wanted]
    direct = [each for each in [*project["dependencies"], *optional] if name_of(each) != "moorage"]
    held = [tool for tool in tools if name_of(tool) in GO_WITH_OURS]
    lowest = [each.replace(">=", "==") for each in [*direct, *held]]
    print(*lowest, sep=", ")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(lowest))
        constraints.flush()
        install = [uv, "pip", "install", "--quiet", "--python", python, "--constraint", constraints.name]
        return subprocess.run([*install, "--editable", ".[all]", *tools], cwd=ROOT, check=False).returncode


def name_of(requirement: str) -> str:
    """Return the normalized name that a requirement begins with."""
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
