"""The examples of the page, with the real framework."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("agent_framework", reason="Agent Framework is not installed; ./dev kits agent-framework has it")

from tests.kits.pages import check_page


@pytest.mark.timeout(300)
def test_page_examples_run(tmp_path: Path) -> None:
    check_page("agent-framework", tmp_path)
