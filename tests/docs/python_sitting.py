"""The Python of one page: runs sources one after another in one namespace and one event loop.

A program of its own, started by `runner.py`. It reads pairs of strings that end with NUL, where the output goes and
the source, and answers each pair with an exit status.
"""

import ast
import asyncio
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType


def main(page: str) -> None:
    requests, answers = os.dup(0), os.dup(1)
    _point_at(os.devnull, os.O_RDONLY, 0)
    sys.path[0] = ""  # an example imports from its own folder, as at a prompt
    module = sys.modules["__main__"] = ModuleType("__main__")
    strings = _strings(requests)
    with asyncio.Runner() as loop:
        for output, source in zip(strings, strings, strict=True):
            _point_at(output, os.O_WRONLY | os.O_APPEND, 1, 2)
            status = _run(source, page, module, loop)
            sys.stdout.flush()
            os.write(answers, b"%d\0" % status)


def _run(source: str, page: str, module: ModuleType, loop: asyncio.Runner) -> int:
    try:
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, module.__dict__)
        if inspect.iscoroutine(result):
            loop.run(result)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _strings(descriptor: int) -> Iterator[str]:
    pending = b""
    while part := os.read(descriptor, 65536):
        *whole, pending = (pending + part).split(b"\0")
        yield from (string.decode() for string in whole)


def _point_at(path: str, flags: int, *descriptors: int) -> None:
    opened = os.open(path, flags)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)


if __name__ == "__main__":
    main(sys.argv[1])
