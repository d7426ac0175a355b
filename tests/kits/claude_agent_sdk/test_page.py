"""The examples of the page, with the real framework."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("claude_agent_sdk", reason="the Claude Agent SDK is not installed; ./dev kits claude-agent-sdk")

from tests.kits.pages import check_page


@pytest.mark.timeout(300)
def test_page_examples_run(tmp_path: Path) -> None:
    check_page("claude-agent-sdk", tmp_path)
