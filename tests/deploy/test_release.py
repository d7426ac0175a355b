"""The wheel's bill of materials, and the workflows that build and publish."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("sbom", ROOT / "scripts" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bill_of_materials_lists_every_vendored_file_with_its_hash(sbom: ModuleType) -> None:
    listed = {
        file["name"]: file["hashes"][0]["content"]
        for package in sbom.document(ROOT)["components"]
        for file in package.get("components", ())
    }
    folders = ("moorage/doors/web/static/vendor", "moorage/doors/graphql/static")
    own = {"index.html", "page.js", "page.css", "HASHES", "hashes.txt", "LICENCES.txt"}
    present = {
        path.relative_to(ROOT / "src").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders
        for path in (ROOT / "src" / folder).iterdir()
        if path.name not in own and not path.name.endswith(".d.mts")
    }
    assert listed == present


def test_bill_of_materials_names_the_licence_that_each_package_has(sbom: ModuleType) -> None:
    vendor = ROOT / "src" / "moorage" / "doors" / "web" / "static" / "vendor"
    for package in sbom.vendored(ROOT):
        text = vendor / f"LICENSE.{package['name'].removeprefix('@').replace('/', '-')}"
        if text.exists():
            is_mit = "MIT License" in text.read_text(encoding="utf-8")
            assert package["licenses"][0]["license"]["id"] == ("MIT" if is_mit else "Apache-2.0"), package["name"]


def test_bill_of_materials_lists_every_requirement_outside_of_dev(sbom: ModuleType) -> None:
    wanted = list(PROJECT["dependencies"])
    wanted += [each for extra, some in PROJECT["optional-dependencies"].items() if extra != "dev" for each in some]
    listed = [prop["value"] for each in sbom.required(PROJECT) for prop in each["properties"]]
    assert sorted(listed) == sorted(each for each in wanted if not each.startswith(PROJECT["name"] + "["))


def test_bill_of_materials_is_the_same_every_time(sbom: ModuleType) -> None:
    assert sbom.document(ROOT) == sbom.document(ROOT)


def test_wheel_contains_the_bill_of_materials(tmp_path: Path, sbom: ModuleType) -> None:
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"  # an environment made by uv has no pip
    pip = [str(base), "-m", "pip", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the interpreter of this environment has no pip")
    build = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/sboms/" in name)
        written: dict[str, Any] = yaml.safe_load(archive.read(name))
    assert name == f"moorage-{PROJECT['version']}.dist-info/sboms/moorage.cdx.json"
    assert written == sbom.document(ROOT)


def test_hosted_ci_runs_the_projects_own_script_on_every_supported_python() -> None:
    (job,) = yaml.safe_load((WORKFLOWS / "ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    classified = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert job["strategy"]["matrix"]["python"] == classified
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]


def test_publishing_stores_no_secret_and_attests() -> None:
    text = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["steps"][-1]["with"]["attestations"] is True
    assert "./dev release dist" in [step.get("run") for step in jobs["build"]["steps"]]
