#!/usr/bin/env python3
"""Fetch the libraries of the web page anew: `scripts/refresh_vendor.py [NAME@VERSION …]`.

Packages come from the npm registry by name, through `npm pack`; nothing of them is run. Files are kept as they are,
except that they import each other by relative paths (a browser knows no package names) and name no source maps.
`HASHES` beside them has package, version and SHA-256 of every file; a test compares it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "src" / "moorage" / "doors" / "web" / "static" / "vendor"
CHECKS = ROOT / "tests" / "doors" / "web" / "vendor"

# Which file of a package becomes which file of ours.
WANTED = {
    "preact": {"dist/preact.mjs": PAGE / "preact.mjs", "hooks/dist/hooks.mjs": PAGE / "hooks.mjs"},
    "htm": {"dist/htm.mjs": PAGE / "htm.mjs"},
    "@preact/signals-core": {"dist/signals-core.mjs": PAGE / "signals-core.mjs"},
    "@preact/signals": {"dist/signals.mjs": PAGE / "signals.mjs"},
    "uplot": {"dist/uPlot.esm.js": PAGE / "uplot.mjs", "dist/uPlot.min.css": PAGE / "uplot.css"},
    "axe-core": {"axe.min.js": CHECKS / "axe.min.js"},
}
OURS = {
    "preact": "./preact.mjs",
    "preact/hooks": "./hooks.mjs",
    "@preact/signals-core": "./signals-core.mjs",
}


def main(*pinned: str) -> None:
    """Fetch every package, in the version that is pinned or the newest."""
    versions = dict(each.rsplit("@", 1) for each in pinned)
    lists: dict[Path, list[str]] = {PAGE: [], CHECKS: []}
    for name, files in WANTED.items():
        folder = next(iter(files.values())).parent
        lists[folder] += fetch(name, versions.get(name, "latest"), files)
    for folder, lines in lists.items():
        (folder / "HASHES").write_text("".join(f"{line}\n" for line in lines))
        print(folder.relative_to(ROOT), *lines, sep="\n  ")


def fetch(name: str, version: str, files: dict[str, Path]) -> list[str]:
    """Fetch one package and keep these files and its licence; return its lines of the list."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--ignore-scripts", f"{name}@{version}"]
        packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(Path(folder) / packed) as archive:
            texts = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
            kept = {place: _ours(_text(archive, texts[source])) for source, place in files.items()}
            first = next(iter(files.values()))
            licence = first.with_name(f"LICENSE.{name.removeprefix('@').replace('/', '-')}")
            kept[licence] = _ours(_text(archive, texts["LICENSE"]))
    exact = packed.removesuffix(".tgz").rsplit("-", 1)[1]
    return [_kept(place, text, f"{name}@{exact}") for place, text in kept.items()]


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()


def _ours(text: str) -> str:
    """The same file, importing its neighbours by path."""
    for package, path in OURS.items():
        text = re.sub(rf'(from\s*)"{re.escape(package)}"', rf'\1"{path}"', text)
    text = re.sub(r"^//[#@] sourceMappingURL=.*$", "", text, flags=re.MULTILINE)
    return text.replace("\r\n", "\n").rstrip() + "\n"


def _kept(place: Path, text: str, package: str) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return f"{hashlib.sha256(text.encode()).hexdigest()}  {place.name}  {package}"


if __name__ == "__main__":
    main(*sys.argv[1:])
