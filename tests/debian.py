"""Debian packages that tests need and pip cannot bring."""

from __future__ import annotations

import os
import shutil
import subprocess

WAIT = ("-o", "DPkg::Lock::Timeout=300")  # seconds: another test process may be installing


def install(package: str) -> str:
    """Have apt install a package; return why it cannot, if it cannot."""
    if shutil.which("apt-get") is None:
        return "no apt-get that could install it"
    if os.geteuid() != 0:
        return "only root can install it here"
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *WAIT, package]):
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    return f"apt-get cannot install it ({done.stderr.strip()[-300:]})"
