"""A leading underscore means "free to change tomorrow": no module uses the private names of another one.

`ALLOWED` names the uses that are left. It only shrinks: a use that is gone has to leave the list, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "moorage"
ADAPTERS = SOURCE / "adapters"
GENERATED = ("_pb2.py", "_pb2_grpc.py")
DOCUMENTED = {"_asdict", "_fields", "_make", "_replace", "_exit", "_getframe"}  # public parts of the standard library

ALLOWED: dict[str, set[str]] = {  # by folder
    "adapters": {
        "_apply_temp_state",
        "_trim_temp_delta_state",
        "_commit_event_to_session",
    },  # of ADK
    "doors/grpc": {"_server_status"},  # grpcio has no public way
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in DOCUMENTED


def names_of(tree: ast.Module) -> set[str]:
    """Return the names that a module gives to something itself."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def private_uses(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module uses and does not define."""
    own = names_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("moorage"):
            yield from (name.name for name in node.names if is_private(name.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield node.attr


def test_no_module_uses_private_names_of_another() -> None:
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if not path.name.endswith(GENERATED):
            names = set(private_uses(ast.parse(path.read_text(encoding="utf-8"))))
            names -= names_for_subclasses() if path.is_relative_to(ADAPTERS) else set()
            found.setdefault(str(path.parent.relative_to(SOURCE)), set()).update(names)
    assert {folder: names for folder, names in found.items() if names} == ALLOWED


def names_for_subclasses() -> set[str]:
    """Return the names of the base class of all adapters, which users of an adapter should not see."""
    return names_of(ast.parse((ADAPTERS / "adapter.py").read_text(encoding="utf-8")))


def test_private_uses_would_be_found() -> None:
    lines = ("from moorage.client import _once", "from os import _exit", "self._own = 1", "self._own", "other._theirs")
    assert list(private_uses(ast.parse("\n".join((*lines, "row._replace()"))))) == ["_once", "_theirs"]
