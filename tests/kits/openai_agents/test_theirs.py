"""The SDK's own tests with ours in the place of SQLiteSession, as far as they are about any session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed; ./dev kits openai-agents has it")

from tests.kits.sources import source_of

FILES = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
# About connections, locks, damaged rows and error messages of SQLiteSession alone.
ABOUT_SQLITE = (
    *("close_closes_worker", "reaps_connections", "closes_retired", "keeps_connections", "closed_rejects_empty"),
    *("corrupt", "file_lock", "releases_write_lock", "rolls_back", "evicts_connection", "quarantined", "post_commit"),
)
AT_LEAST = 50  # tests that are about any session


@pytest.mark.timeout(600)
def test_their_own_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "theirs", "-k", f"not ({' or '.join(ABOUT_SQLITE)})", *FILES]
    folder = source_of("openai-agents")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:]
    passed = int(done.stdout.split(" passed")[0].split()[-1])
    assert passed >= AT_LEAST
