#!/usr/bin/env python3
"""Bring GraphiQL into `src/moorage/doors/graphql/static`, so that its page works without the internet.

    python scripts/graphiql.py           fetch the packages with npm, and write the files with their hashes
    python scripts/graphiql.py --check   exit 1 if a file is not the one that was fetched; works offline

GraphiQL 3 is the last with an editor that comes in one file; its fonts are left out (three quarters of its
style sheet), so the page has those of the reader's system.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

STATIC = Path(__file__).parents[1] / "src" / "moorage" / "doors" / "graphql" / "static"
HASHES = STATIC / "hashes.txt"
FILES = {
    "graphiql@3.9.0": ("graphiql.min.js", "graphiql.min.css"),
    "react@18.3.1": ("umd/react.production.min.js",),
    "react-dom@18.3.1": ("umd/react-dom.production.min.js",),
}
FONT = re.compile(r"@font-face\{[^}]*\}")
SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\s*$|\n?/\*# sourceMappingURL=\S+ \*/\s*$")


def main() -> int:
    """Fetch, or compare."""
    if "--check" in sys.argv[1:]:
        wrong = list(changed())
        print("\n".join(wrong), end="\n" if wrong else "")
        return int(bool(wrong))
    with tempfile.TemporaryDirectory() as folder:
        licences = [_fetched(package, Path(folder)) for package in FILES]
    (STATIC / "LICENCES.txt").write_text("\n\n".join(licences), encoding="utf-8")
    HASHES.write_text("".join(f"{_hash(name)}  {name}\n" for name in sorted(_names())), encoding="utf-8")
    return 0


def changed() -> Iterator[str]:
    """Yield the problems of the existing files."""
    lines = [line.split("  ") for line in HASHES.read_text(encoding="utf-8").splitlines()]
    told = {name: digest for digest, name in lines}
    for name in sorted(told.keys() | _names()):
        if name not in told or not (STATIC / name).is_file() or _hash(name) != told[name]:
            yield f"{name} is not what was fetched; run scripts/graphiql.py"


def _names() -> set[str]:
    return {name.rpartition("/")[2] for names in FILES.values() for name in names}


def _hash(name: str) -> str:
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()


def _fetched(package: str, folder: Path) -> str:
    """Write a package's files; its licence."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    with tarfile.open(folder / packed) as archive:
        for name in FILES[package]:
            text = _member(archive, name)
            text = SOURCE_MAP.sub("", FONT.sub("", text) if name.endswith(".css") else text)
            (STATIC / name.rpartition("/")[2]).write_text(f"{text.rstrip()}\n", encoding="utf-8")
        return f"{package}\n\n{_member(archive, 'LICENSE')}"


def _member(archive: tarfile.TarFile, name: str) -> str:
    found = archive.extractfile(f"package/{name}")
    assert found is not None
    return found.read().decode()


if __name__ == "__main__":
    raise SystemExit(main())
