"""The examples of the page, with the real framework."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("strands", reason="Strands is not installed; ./dev kits strands has it")

from tests.kits.pages import check_page


@pytest.mark.timeout(300)
def test_page_examples_run(tmp_path: Path) -> None:
    check_page("strands", tmp_path)
