"""Schemathesis on the door as it is served: every operation of its own OpenAPI document, all checks.

Longer, and with other values each time: MOORAGE_FUZZ=100 is for so many examples of each operation.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from moorage import sync
from tests.doors.http.server import free_port, serving_process

HERE = Path(__file__).parent
ROOT, HOOKS = HERE.parents[2], "tests.doors.http.fuzzing"
LONG = os.environ.get("MOORAGE_FUZZ")
HOW = ["--max-examples", LONG] if LONG else ["--max-examples", "3", "--seed", "1"]


@pytest.mark.timeout(7200 if LONG else 300)
def test_no_request_that_can_be_made_up_breaks_the_document(tmp_path: Path) -> None:
    store, port = f"sqlite:///{tmp_path / 'moorage.db'}", free_port()
    with sync.connect(store) as moor:
        key = moor.create_key(scopes=["admin"]).text
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[server]\nrate = 1000000\nburst = 1000000\n")
    with serving_process(store, port):
        url = f"http://127.0.0.1:{port}"
        done = ask_everything(url, key, tmp_path)
        paths = httpx2.get(f"{url}/openapi.json").json()["paths"].values()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {sum(map(len, paths)) - 1}" in done.stdout, "an operation was left out, besides the document's own"
    assert number(r"(\d+) generated", done.stdout) > 1000
    assert number(r"API Links: +(\d+) covered", done.stdout) >= 20, "answers lead to other operations"


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1])


def ask_everything(url: str, key: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Schemathesis as a process, and what it says."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", HERE / "fuzzing.toml"),
            *("run", f"{url}/openapi.json", "--phases", "coverage,fuzzing,stateful"),
            *("--header", f"Authorization: Bearer {key}"),
            *("--request-timeout", "60", "--continue-on-failure", *HOW),
        ],
        env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT), "FUZZED_URL": url, "FUZZED_KEY": key},
        cwd=folder,
        capture_output=True,
        text=True,
    )
