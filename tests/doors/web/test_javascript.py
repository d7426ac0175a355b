"""The JavaScript of the page: its types, and its logic without a browser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_js.py"
CANNOT = 3


@pytest.mark.parametrize("what", ["types", "logic"])
def test_javascript_passes_its_checks(what: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), what], capture_output=True, text=True, check=False)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
