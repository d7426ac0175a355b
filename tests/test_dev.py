"""./dev, in a small checkout of its own: real environments, made by pip, with nothing to download.

The checkout has this repository's `dev` and scripts, and a project that needs no packages. Its tools only say who they
are and which environment they run in.
"""

import ensurepip
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import environments, kits

ROOT = Path(__file__).parents[1]
HERE = ".".join(map(str, sys.version_info[:2]))
PATIENCE = 280
pytestmark = pytest.mark.timeout(300)  # each environment takes some seconds of a processor
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(Path(ensurepip.__file__).parent / "_bundled")}

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "moorage"
version = "0"

[project.optional-dependencies]
server = []
grpc = []
mcp = []
dev = []
"""

# Just enough of a build backend to install a folder in place.
BACKEND = """
import os, zipfile

INFO = "moorage-0.dist-info"
EXTRAS = "".join(f"Provides-Extra: {extra}\\n" for extra in ("server", "grpc", "mcp", "dev"))

def build_editable(folder, config_settings=None, metadata_directory=None):
    files = {
        "moorage.pth": os.path.join(os.getcwd(), "src") + "\\n",
        f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: moorage\\nVersion: 0\\n" + EXTRAS,
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    name = "moorage-0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{INFO}/RECORD", "".join(f"{path},,\\n" for path in [*files, f"{INFO}/RECORD"]))
    return name
"""

TOOL = "import os, sys; print('ran', {name!r}, os.path.basename(sys.prefix), *sys.argv[1:])"
TOOLS = ("moorage", "ruff", "mypy", "pytest")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a checkout")
    shutil.copy(ROOT / "dev", folder)
    (folder / "scripts").mkdir()
    for script in ("environments.py", "kits.py"):
        shutil.copy(ROOT / "scripts" / script, folder / "scripts")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    for tool in TOOLS:
        (folder / "src" / tool).mkdir(parents=True)
        (folder / "src" / tool / "__main__.py").write_text(TOOL.format(name=tool))
    (folder / "src" / "importlinter").mkdir()
    (folder / "src" / "importlinter" / "cli.py").write_text(
        f"def lint_imports_command():\n    {TOOL.format(name='lint-imports')}\n"
    )
    (folder / "tests").mkdir()
    (folder / "tests" / "debian.py").write_text(TOOL.format(name="debian"))
    broken = folder / "broken" / "uv"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'pyenv: uv: command not found' >&2\nexit 127\n")
    broken.chmod(0o755)
    return folder


def dev(checkout: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ./dev, where `uv` is a program that fails and this Python is on PATH."""
    path = os.pathsep.join((str(checkout / "broken"), str(Path(sys.executable).parent), os.defpath))
    return subprocess.run(
        [sys.executable, str(checkout / "dev"), *args],
        env={**os.environ, "PATH": path, **OFFLINE, "PYENV_ROOT": str(checkout / "none"), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def environments_in(checkout: Path) -> dict[str, float]:
    """Return the environments that are there, and when each was finished."""
    return {stamp.parent.name: stamp.stat().st_mtime for stamp in checkout.glob(".venv*/dev-stamp")}


@pytest.fixture(scope="module")
def first_up(checkout: Path) -> subprocess.CompletedProcess[str]:
    return dev(checkout, "up", "--port", "0")


def test_up_makes_a_small_environment_with_pip_where_uv_does_not_run(
    checkout: Path, first_up: subprocess.CompletedProcess[str]
) -> None:
    assert first_up.returncode == 0, first_up.stderr
    assert first_up.stdout.splitlines()[-1] == "ran moorage .venv-up serve --port 0"
    assert (checkout / ".venv-up" / "bin" / "pip").exists()


def test_each_step_of_making_an_environment_is_one_line(first_up: subprocess.CompletedProcess[str]) -> None:
    first, *steps, _ = first_up.stdout.splitlines()
    assert first == "dev: making .venv-up (once; again when its packages change)"
    assert [step.split("…")[0].strip() for step in steps] == ["an empty environment", "pip", "packages"]
    assert all(re.search(r" … \d+\.\d s$", step) for step in steps)
    assert "WARNING" not in first_up.stderr
    assert "notice" not in first_up.stderr


@pytest.fixture(scope="module")
def first_test(checkout: Path, first_up: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert "making" not in dev(checkout, "up").stdout
    return dev(checkout, "test", "-k", "something")


def test_alternating_up_and_test_makes_each_environment_once(
    checkout: Path, first_test: subprocess.CompletedProcess[str]
) -> None:
    assert first_test.returncode == 0, first_test.stderr
    assert "dev: making .venv " in first_test.stdout
    assert "ran pytest .venv " in first_test.stdout
    made = environments_in(checkout)
    assert {".venv", ".venv-up"} <= set(made)
    for command in ("up", "test", "up"):
        assert "making" not in dev(checkout, command).stdout
    assert dev(checkout, "up").stdout == "ran moorage .venv serve\n"  # it has all that serving needs
    assert environments_in(checkout) == made


def test_debian_packages_are_installed_before_all_tests_and_not_before_some(
    checkout: Path, first_test: subprocess.CompletedProcess[str]
) -> None:
    every = [line.split()[1] for line in dev(checkout, "test").stdout.splitlines() if line.startswith("ran ")]
    assert every.index("debian") == every.index("pytest") - 1
    assert "ran debian" not in first_test.stdout


def test_environment_is_made_again_when_packages_change_and_not_when_settings_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "ROOT", checkout)
    before = environments.DEV.stamp()
    for added, is_same in (("\n[tool.mypy]\nstrict = true\n", True), ("\n[project.scripts]\nx = 'y'\n", False)):
        (checkout / "pyproject.toml").write_text(PYPROJECT + added)
        assert (environments.DEV.stamp() == before) is is_same
    (checkout / "pyproject.toml").write_text(PYPROJECT)


def test_another_python_has_an_environment_of_its_own(
    checkout: Path, first_test: subprocess.CompletedProcess[str]
) -> None:
    # The Python is the same, so a copy is what would be made; making one takes half a minute on a busy machine.
    shutil.copytree(checkout / ".venv", checkout / f".venv-{HERE}", symlinks=True)
    before = environments_in(checkout).get(".venv")
    done = dev(checkout, "test", "--python", HERE, "-q")
    assert done.returncode == 0, done.stderr
    assert "making" not in done.stdout
    assert set(re.findall(r"^ran \S+ (\S+)", done.stdout, re.MULTILINE)) == {f".venv-{HERE}"}
    assert re.search(rf"^ran pytest \.venv-{re.escape(HERE)} .*-q$", done.stdout, re.MULTILINE)
    assert environments_in(checkout).get(".venv") == before


@pytest.mark.parametrize(
    ("version", "says"), [("3.99", "there is no Python 3.99"), ("thirteen", "no version of Python")]
)
def test_python_that_is_not_there_is_said_before_anything_is_made(checkout: Path, version: str, says: str) -> None:
    done = dev(checkout, "test", "--python", version)
    assert done.returncode != 0
    assert says in done.stderr
    assert not (checkout / f".venv-{version}").exists()


def test_python_that_only_pyenv_knows_is_found(checkout: Path, tmp_path: Path) -> None:
    programs = tmp_path / "versions" / f"{HERE}.1" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(sys.executable)
    done = dev(checkout, "test", "--python", HERE, PATH=f"{checkout / 'broken'}:{tmp_path}", PYENV_ROOT=str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("args", "names", "rest"),
    [
        ((), ["one", "two"], []),
        (("two",), ["two"], []),
        (("two", "-k", "one"), ["two"], ["-k", "one"]),
        (("-x",), ["one", "two"], ["-x"]),
    ],
)
def test_kits_are_chosen_by_the_first_arguments(
    args: tuple[str, ...], names: list[str], rest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kits, "KITS", {"one": (), "two": ()})
    assert kits.chosen(args) == (names, rest)


def test_every_kit_has_an_extra_and_tests() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in kits.KITS:
        assert name in extras
        assert list((ROOT / kits.tests(name)).glob("test_*.py"))


def test_every_command_is_in_the_help_and_in_the_guide() -> None:
    shown = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    commands = set(re.findall(r"^  \./dev (\w+)", shown, re.MULTILINE))
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    assert commands - set(re.findall(r"`\./dev (\w+)", guide)) == {"help"}
    assert set(re.findall(r'^    "(\w+)": \w+,$', (ROOT / "dev").read_text(), re.MULTILINE)) == commands - {"help"}
