"""Debian packages that tests need and pip cannot bring.

`./dev test` without arguments installs them before it starts the tests (`python -m tests.debian`): a download may take
longer than one test may. A test that runs alone installs what it misses itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time

PACKAGES = ("chromium-headless-shell", "fonts-liberation", "redis-server", "libfaketime")
WAIT = ("-o", "DPkg::Lock::Timeout=300")  # seconds: another test process may be installing
SMALL = ("--no-install-recommends", "-o", "Dpkg::Options::=--force-unsafe-io")  # no printers, no fsync for each file
LIMIT = 600  # seconds for each command


def install(*packages: str) -> str:
    """Have apt install packages; return why it cannot, if it cannot."""
    if shutil.which("apt-get") is None:
        return "no apt-get that could install it"
    if os.geteuid() != 0:
        return "only root can install it here"
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *WAIT, *SMALL, *packages]):
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT, env=env)
        except subprocess.TimeoutExpired:
            return f"apt-get takes longer than {LIMIT} s"
    return f"apt-get cannot install it ({done.stderr.strip()[-300:]})" if done.returncode else ""


def missing() -> list[str]:
    """Return the packages that are not installed whole, where dpkg can tell."""
    if shutil.which("dpkg-query") is None:
        return []
    return [package for package in PACKAGES if not _is_installed(package)]


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${Status}", package]
    return subprocess.run(query, check=False, capture_output=True, text=True).stdout == "install ok installed"


def main() -> None:
    """Install what is missing, and say so; tests that miss something say what they do without."""
    if not (wanted := missing()):
        return
    print(f"installing {', '.join(wanted)} … ", end="", flush=True)
    started = time.monotonic()
    problem = install(*wanted)
    print(problem or f"{time.monotonic() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
