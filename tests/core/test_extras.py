"""Every hint to install an extra names the distribution, and comes from one place."""

import re
import tomllib
from pathlib import Path

import pytest

from moorage.core.errors import Unsupported
from moorage.core.extras import DISTRIBUTION, install_command, provided_by

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HINT = re.compile(r'(?:provided_by|missing)\(\s*"(\w+)"')


def test_missing_package_names_the_command_that_installs_it() -> None:
    with pytest.raises(Unsupported, match="gRPC is not installed") as raised, provided_by("grpc", "gRPC"):
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc")
    assert raised.value.message.endswith("run: pip install 'moorage[grpc]'")
    assert raised.value.extra == "grpc"


def test_missing_module_of_our_own_is_not_taken_for_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError), provided_by("grpc", "gRPC"):
        import moorage.core.nothing  # type: ignore[import-not-found]  # noqa: F401


def test_hints_name_this_distribution_and_extras_that_exist() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    extras = {extra for source in sources for extra in HINT.findall(source)}
    assert extras == {"encryption", "grpc", "mcp", "otel", "postgres", "redis", "server"}
    assert extras <= set(PROJECT["optional-dependencies"])
    assert (PROJECT["name"], install_command("mcp")) == (DISTRIBUTION, "pip install 'moorage[mcp]'")


def test_no_module_writes_an_install_command_of_its_own() -> None:
    found = [path.name for path in (ROOT / "src").rglob("*.py") if "pip install" in path.read_text()]
    assert found == ["extras.py"]
