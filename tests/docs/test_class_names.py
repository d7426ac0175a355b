"""A name of a class or a type alias belongs to one idea in the whole package."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.docs.prose import ROOT, files

SHARED = {  # name: why several classes may have it
    "Context": "moorage.sync has the classes of moorage.api and moorage.records, without `await`",
    "Memory": "the same",
    "Moorage": "the same",
    "Records": "the same",
    "MoorageSessionStore": "two frameworks call their port SessionStore; users import ours from the adapter's module",
    "Turn": "moorage.agents.python.Turn is what agents import; moorage.core.turn.Turn is what stores keep",
}
SHARED_ALIASES = {  # name: why it may have several definitions, or the name of a class
    "Decision": "moorage.agents.python.Decision is what agents import; stores take the function of moorage.ports",
    "HeldPacket": "a class for the type checker, and at run time the class it extends",
    "ParamType": "two versions of click",
    "SessionAnswer": "the same as HeldPacket",
}


def test_every_class_name_is_defined_once() -> None:
    several = {name: places for name, places in classes().items() if len(places) > 1}

    unexpected = {name: places for name, places in several.items() if name not in SHARED}
    assert not unexpected, f"give each class a name of its own: {unexpected}"
    assert several.keys() == SHARED.keys(), "SHARED names a class that is defined only once"


def test_aliases_of_one_name_have_one_definition_and_no_class_has_it() -> None:
    known, found = classes(), aliases()
    unclear = {name: places for name, places in found.items() if name in known or len(set(places.values())) > 1}

    unexpected = {name: places for name, places in unclear.items() if name not in SHARED_ALIASES}
    assert not unexpected, f"give each alias a name of its own: {unexpected}"
    assert unclear.keys() == SHARED_ALIASES.keys(), "SHARED_ALIASES names an alias that is clear"


def classes() -> dict[str, list[str]]:
    """Return where each class of the package is defined, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in files(".py"):
        if path.startswith("src/moorage/"):
            for node in ast.walk(ast.parse((ROOT / path).read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path}:{node.lineno}")
    return found


def aliases() -> dict[str, dict[str, str]]:
    """Return the definitions of each type alias of the package, by its name and place."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files(".py"):
        if path.startswith("src/moorage/"):
            for node in statements(ast.parse((ROOT / path).read_text()).body):
                if isinstance(node, ast.Assign) and re.fullmatch(
                    "[A-Z][a-z][A-Za-z]*", name := ast.unparse(node.targets[0])
                ):
                    found[name][f"{path}:{node.lineno}"] = ast.unparse(node.value)
    return found


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those under `if TYPE_CHECKING`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from statements([*node.body, *node.orelse])
        else:
            yield node
