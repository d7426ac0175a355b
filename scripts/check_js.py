#!/usr/bin/env python3
"""Check the web page's JavaScript where Node.js is at hand: its types (`tsc --checkJs`) and its state logic.

  scripts/check_js.py types    TypeScript comes from the npm registry, once, into the environment this Python runs in
  scripts/check_js.py logic    tests/doors/web/*.test.mjs, by Node.js alone

Exit code 3 says that this machine cannot check it, and why.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "src" / "moorage" / "doors" / "web"
TESTS = ROOT / "tests" / "doors" / "web"
TYPESCRIPT = "typescript@7"
CANNOT = 3


def main(what: str = "types") -> int:
    """Check it; what is wrong is printed."""
    node = shutil.which("node")
    if node is None:
        return cannot("there is no Node.js on this machine")
    if what == "logic":
        return run([node, "--test", "--test-reporter=spec", *map(str, sorted(TESTS.glob("*.test.mjs")))])
    compiler = typescript()
    if compiler is None:
        return cannot("TypeScript is not installed and npm could not fetch it")
    return run([node, str(compiler), "--project", str(PAGE / "tsconfig.json")])


def typescript() -> Path | None:
    """The compiler, fetched if it is not there yet."""
    folder = Path(sys.prefix) / "js"
    compiler = folder / "node_modules" / "typescript" / "bin" / "tsc"
    npm = shutil.which("npm")
    if not compiler.exists() and npm is not None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), TYPESCRIPT],
            check=False,
            capture_output=True,
            timeout=300,
        )
    return compiler if compiler.exists() else None


def run(command: list[str]) -> int:
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def cannot(why: str) -> int:
    print(f"JavaScript is not checked: {why}", file=sys.stderr)
    return CANNOT


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
