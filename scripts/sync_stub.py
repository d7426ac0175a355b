#!/usr/bin/env python3
"""Write `src/moorage/sync.pyi`: what `moorage.sync` offers, spelled out for type checkers.

At run time `moorage.sync` drives the methods of `moorage.client`; no type checker sees that. So the
signatures are taken from client.py, without `async`, and the rest from sync.py:

    python scripts/sync_stub.py           write the stub
    python scripts/sync_stub.py --check   exit 1 if it is not fresh
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "moorage"
STUB = PACKAGE / "sync.pyi"
CLASSES = ("ContextDoor", "Moorage")  # in the order in which the stub has them
WIDTH = 120
HEADER = '''"""Moorage without `await`, for type checkers. Written by scripts/sync_stub.py; do not edit."""'''

Function = ast.FunctionDef | ast.AsyncFunctionDef
Places = dict[str, tuple[str, str]]  # the name in use → its module, and its name there
STREAMS: Places = {"Iterator": ("collections.abc", "Iterator")}  # what asynchronous ones become


def main() -> int:
    """Write the stub, or compare it."""
    text = stub()
    if "--check" in sys.argv[1:]:
        fresh = STUB.exists() and STUB.read_text() == text
        print("fresh" if fresh else f"{STUB.name} is stale: run scripts/sync_stub.py")
        return 0 if fresh else 1
    STUB.write_text(text)
    return 0


def stub() -> str:
    """The whole stub."""
    client, sync = _parsed("client.py"), _parsed("sync.py")
    parts = [_variable(node) for node in sync.body if isinstance(node, ast.Assign) and not _is_switch(node)]
    parts += [_shown(node) for node in _functions(sync) if node.name != "connect"]
    parts += [_class(name, client, sync) for name in CLASSES]
    parts += [_shown(node) for node in _functions(sync) if node.name == "connect"]
    body = "\n".join(parts)
    places = {**STREAMS, **_imported(client), **_defined(client), **_imported(sync)}
    return f"{HEADER}\n\n{_imports(body, places)}\n\n{body}"


def _is_switch(node: ast.Assign) -> bool:
    """Whether this tells type checkers from everybody else."""
    return ast.unparse(node) == "TYPE_CHECKING = False"


def _parsed(name: str) -> ast.Module:
    return ast.parse((PACKAGE / name).read_text())


# Signatures -------------------------------------------------------------------------------------


def _class(name: str, client: ast.Module, sync: ast.Module) -> str:
    """A class of sync.py, with the methods that the client's class of that name has."""
    theirs, ours = _class_of(client, name), _class_of(sync, name)
    doc = f'    """{ast.get_docstring(ours)}"""\n'
    attributes = "".join(f"    {text}\n" for text in _attributes(ours))
    dunders = "".join(_shown(node, "    ") for node in _functions(ours, dunders=True))
    methods = _stacked(_shown(node, "    ") for node in _overloaded(_functions(theirs)))
    return "\n".join(part for part in (f"class {name}:\n{doc}", attributes, dunders + methods) if part)


def _stacked(methods: Iterable[str]) -> str:
    """Put a blank line behind each method, as the formatter does, except behind one without a body."""
    return "".join(text if text.endswith(" ...\n") else f"{text}\n" for text in methods).rstrip("\n") + "\n"


def _class_of(module: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name)


def _attributes(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call(func=ast.Name(id=kind))):
                yield f"{name}: {kind}"


def _functions(node: ast.Module | ast.ClassDef, *, dunders: bool = False) -> Iterator[Function]:
    for child in node.body:
        if isinstance(child, Function) and (not child.name.startswith("_") or (dunders and child.name[:2] == "__")):
            yield child


def _overloaded(functions: Iterable[Function]) -> Iterator[Function]:
    """The functions, with overloads in the place of what implements them; the first has its docstring."""
    overloads: list[Function] = []
    for node in functions:
        if _is_overload(node):
            overloads.append(node)
        elif overloads:
            overloads[0].body = node.body
            yield from overloads
            overloads = []
        else:
            yield node


def _is_overload(node: Function) -> bool:
    return any(ast.unparse(each) == "overload" for each in node.decorator_list)


def _shown(node: Function, indent: str = "") -> str:
    """A function as the formatter lays it out: signature, docstring or an ellipsis."""
    doc = ast.get_docstring(node)
    returns = ast.unparse(node.returns) if node.returns else "None"
    signature = _fitted(node.name, _arguments(node.args), returns.replace("AsyncIterator", "Iterator"), indent, doc)
    signature = f"{indent}@overload\n{signature}" if _is_overload(node) else signature
    if doc is None:
        return f"{signature} ...\n"
    lines = "\n".join(f"{indent}    {line}" if line else "" for line in f'"""{doc}'.splitlines())
    closing = f"\n{indent}    " if "\n" in doc else ""
    return f'{signature}\n{lines}{closing}"""\n'


def _fitted(name: str, arguments: list[str], returns: str, indent: str, doc: str | None) -> str:
    """One line if it fits, else all arguments on the second, else one per line."""
    opening, closing = f"{indent}def {name}(", f") -> {returns}:"
    together = ", ".join(arguments)
    if len(opening + together + closing) + (4 if doc is None else 0) <= WIDTH:
        return opening + together + closing
    if len(indent) + 4 + len(together) <= WIDTH:
        return f"{opening}\n{indent}    {together}\n{indent}{closing}"
    lines = "".join(f"{indent}    {argument},\n" for argument in arguments)
    return f"{opening}\n{lines}{indent}{closing}"


def _arguments(args: ast.arguments) -> list[str]:
    plain = [*args.posonlyargs, *args.args]
    missing = len(plain) - len(args.defaults)
    shown = [_argument(arg, args.defaults[i - missing] if i >= missing else None) for i, arg in enumerate(plain)]
    if args.vararg:
        shown.append(f"*{_argument(args.vararg, None)}")
    elif args.kwonlyargs:
        shown.append("*")
    return shown + [_argument(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    text = f"{arg.arg}: {ast.unparse(arg.annotation)}" if arg.annotation else arg.arg
    return text if default is None else f"{text} = {_quoted(default)}"


def _variable(node: ast.Assign) -> str:
    return f"{ast.unparse(node.targets[0])} = {_quoted(node.value)}\n"


def _quoted(node: ast.expr) -> str:
    return ast.unparse(node).replace("'", '"')


# Imports ----------------------------------------------------------------------------------------


def _imported(module: ast.Module) -> Places:
    for_types = [node for block in module.body if isinstance(block, ast.If) for node in block.body]
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in [*module.body, *for_types]
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _defined(client: ast.Module) -> Places:
    targets = (node.targets[0] for node in client.body if isinstance(node, ast.Assign))
    return {target.id: ("moorage.client", target.id) for target in targets if isinstance(target, ast.Name)}


def _imports(body: str, places: Places) -> str:
    """The imports that the body needs: standard library, others, our own."""
    names = (node for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name))
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    wanted: dict[str, list[str]] = {}
    for name in sorted(used & places.keys()):
        module, original = places[name]
        wanted.setdefault(module, []).append(name if name == original else f"{original} as {name}")
    sections: dict[int, list[str]] = {}
    for module in sorted(wanted):
        sections.setdefault(_section(module), []).extend(_statements(module, wanted[module]))
    return "\n\n".join("\n".join(sections[number]) for number in sorted(sections))


def _section(module: str) -> int:
    top = module.partition(".")[0]
    return 0 if top in sys.stdlib_module_names else 2 if top == "moorage" else 1


def _statements(module: str, names: Iterable[str]) -> list[str]:
    """As the formatter wants them: renamed ones apart, constants before classes before functions."""
    plain = sorted((name for name in names if " as " not in name), key=_rank)
    groups = [", ".join(plain), *(name for name in names if " as " in name)]
    return [f"from {module} import {group}" for group in sorted(filter(None, groups))]


def _rank(name: str) -> tuple[int, str]:
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name.lower()


if __name__ == "__main__":
    sys.exit(main())
