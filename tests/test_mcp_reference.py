"""The MCP pages match the tools and resources of the server."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "mcp_reference.py"


def test_pages_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("mcp_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.pages().items():
        assert path.read_text() == text, "run scripts/mcp_reference.py"
