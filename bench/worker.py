"""One contender in a process of its own, obeying JSON lines on stdin and answering on stdout.

Every contender runs like this, the floor too: contenders share no interpreter, heap or garbage
collector, and a peer's packages stay in the peer's environment. Imports nothing but the standard
library until it is told which contender to load.

    {"do": "open", "contender": "bench.floor:Floor", "stage": "append", "folder": "…", "size": 0}
    {"do": "round", "operations": 50}   {"do": "check"}   {"do": "close"}
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from bench.contender import Contender, NotOffered
from bench.stages import STAGES, Stage

SEEDED = "seeded"  # marks a folder whose store is complete


class Worker:
    """At most one open stage; the next `open` needs a `close` before it."""

    def __init__(self) -> None:
        self.contender: Contender | None = None
        self.stage: Stage | None = None

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do one order; its other fields are the arguments."""
        orders: dict[str, Callable[..., dict[str, Any]]] = {
            "open": self.open,
            "round": self.round,
            "check": self.check,
            "close": self.close,
        }
        return orders[order.pop("do")](**order)

    def open(self, contender: str, stage: str, folder: str, size: int, seed: int = 0) -> dict[str, Any]:
        """Set the stage. A store with `seed` sessions is made once in its folder and found there by the next."""
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        maker = _load(contender)
        if seed and not (where / SEEDED).exists():
            maker.seed(where, seed)
            (where / SEEDED).touch()
        self.contender = maker(where)
        self.stage = STAGES[stage](self.contender, size)
        return {}

    def round(self, operations: int) -> dict[str, Any]:
        assert self.stage
        gc.collect()  # garbage of the preparation is not the operation's
        return self.stage.round(operations)._asdict()

    def check(self) -> dict[str, Any]:
        assert self.stage
        return {"problem": self.stage.check()}

    def close(self) -> dict[str, Any]:
        """Close the store and say how many bytes its files have then."""
        contender, self.contender, self.stage = self.contender, None, None
        if contender is None:
            return {}
        contender.close()
        return {"bytes": contender.weigh()}


def _load(path: str) -> type[Contender]:
    module, _, name = path.partition(":")
    loaded: type[Contender] = getattr(importlib.import_module(module), name)
    return loaded


def _answer(worker: Worker, line: str) -> dict[str, Any]:
    try:
        return worker.obey(json.loads(line))
    except NotOffered as exc:
        return {"not_offered": str(exc)}
    except Exception as exc:
        detail = str(exc).strip().splitlines()
        return {"error": f"{type(exc).__name__}: {detail[0] if detail else ''}"}


def _private_stdout() -> TextIO:
    """Keep stdout for the protocol alone: what libraries print goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def main() -> None:
    channel = _private_stdout()
    worker = Worker()
    for line in sys.stdin:
        channel.write(json.dumps(_answer(worker, line)) + "\n")
        channel.flush()
    channel.flush()
    os._exit(0)  # a library's thread that never ends does not keep us here


if __name__ == "__main__":
    main()
