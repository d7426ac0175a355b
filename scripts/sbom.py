#!/usr/bin/env python3
"""Describe a wheel as a software bill of materials: `scripts/sbom.py` prints it.

The document is CycloneDX 1.6. It lists the JavaScript files that the wheel contains, with the package, version,
licence and SHA-256 of each, and the Python distributions that the wheel requires, per extra. Hatchling runs
`SbomHook` for every wheel and puts the document into `.dist-info/sboms/` (PEP 770). The same sources give the same
bytes: there is no time and no random number in it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]

WEB_HASHES = "src/moorage/doors/web/static/vendor/HASHES"
GRAPHIQL_HASHES = "src/moorage/doors/graphql/static/hashes.txt"
NAME = re.compile(r"[A-Za-z0-9._-]+")
APACHE = frozenset({"htm"})  # every other vendored package has the MIT licence


def document(root: Path) -> Component:
    """Return the bill of materials of the checkout at `root`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    components = [*vendored(root), *required(project)]
    own = {
        "type": "application",
        "bom-ref": purl("pypi", project["name"], project["version"]),
        "name": project["name"],
        "version": project["version"],
        "description": project["description"],
        "licenses": [{"license": {"id": project["license"]}}],
        "purl": purl("pypi", project["name"], project["version"]),
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own['purl'])}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }


def vendored(root: Path) -> Iterator[Component]:
    """Return the JavaScript packages inside the wheel, each with its files and their hashes."""
    packages: dict[str, list[tuple[str, str]]] = {}
    for file, digest, package in [*_page_files(root), *_graphiql_files(root)]:
        packages.setdefault(package, []).append((file, digest))
    for package, files in packages.items():
        name, _, version = package.rpartition("@")
        yield {
            "type": "library",
            "bom-ref": purl("npm", name, version),
            "name": name,
            "version": version,
            "licenses": [{"license": {"id": "Apache-2.0" if name in APACHE else "MIT"}}],
            "purl": purl("npm", name, version),
            "components": [
                {"type": "file", "name": file, "hashes": [{"alg": "SHA-256", "content": digest}]}
                for file, digest in files
            ],
        }


def required(project: dict[str, Any]) -> Iterator[Component]:
    """Return the distributions the wheel asks for; those of an extra are optional."""
    groups = {None: project["dependencies"], **project["optional-dependencies"]}
    wanted: dict[str, list[tuple[str | None, str]]] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            asked = NAME.match(requirement)
            assert asked is not None, requirement
            if extra != "dev" and asked[0] != project["name"]:
                wanted.setdefault(asked[0], []).append((extra, requirement))
    for name, uses in wanted.items():
        yield {
            "type": "library",
            "bom-ref": purl("pypi", name),
            "name": name,
            "scope": "required" if any(extra is None for extra, _ in uses) else "optional",
            "purl": purl("pypi", name),
            "properties": [
                {"name": f"moorage:requirement:{extra or 'always'}", "value": requirement}
                for extra, requirement in uses
            ],
        }


def purl(kind: str, name: str, version: str | None = None) -> str:
    """Return a package URL."""
    return f"pkg:{kind}/{quote(name, safe='/')}" + ("" if version is None else f"@{version}")


def _page_files(root: Path) -> Iterator[tuple[str, str, str]]:
    folder = Path(WEB_HASHES).parent
    for line in (root / WEB_HASHES).read_text(encoding="utf-8").splitlines():
        digest, file, package = line.split()
        yield _in_wheel(folder / file), digest, package


def _graphiql_files(root: Path) -> Iterator[tuple[str, str, str]]:
    folder = Path(GRAPHIQL_HASHES).parent
    pinned = re.findall(r'^    "([\w/.-]+@[\d.]+)": \(', (root / "scripts/graphiql.py").read_text("utf-8"), re.M)
    packages = {package.rpartition("@")[0]: package for package in pinned}
    for line in (root / GRAPHIQL_HASHES).read_text(encoding="utf-8").splitlines():
        digest, file = line.split()
        yield _in_wheel(folder / file), digest, packages[file.partition(".")[0]]


def _in_wheel(path: Path) -> str:
    return path.relative_to("src").as_posix()


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # printed by hand, outside a build
    pass
else:

    class SbomHook(BuildHookInterface):  # type: ignore[misc, type-arg, unused-ignore]  # hatchling is only there in a build
        """Put the document into the wheel."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Write the document where hatchling picks it up."""
            self.folder = tempfile.TemporaryDirectory()
            path = Path(self.folder.name) / "moorage.cdx.json"
            path.write_text(json.dumps(document(Path(self.root)), indent=2), encoding="utf-8")
            build_data["sbom_files"].append(str(path))

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            """Remove the file again."""
            self.folder.cleanup()


if __name__ == "__main__":
    json.dump(document(Path(__file__).resolve().parents[1]), sys.stdout, indent=2)
    print()
