"""docs/reference/mcp.md says what the MCP door answers to."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "mcp_reference.py"


def test_the_page_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("mcp_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == module.PAGE.read_text(), "run scripts/mcp_reference.py"
