"""The GraphQL pages match the schema."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "scripts" / "graphql_reference.py"


def test_pages_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location("graphql_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.pages().items():
        assert path.read_text() == text, "run scripts/graphql_reference.py"
