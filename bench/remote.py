"""Talking to workers: start one, order, wait no longer than a deadline, and end it.

Only processes started here are ended here, each by its own handle.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROUND_SECONDS = 60.0
END_SECONDS = 5.0


class Failed(Exception):
    """A contender could not do a work; the message is the reason shown below the table."""


class Took(NamedTuple):
    """Seconds for a number of operations."""

    seconds: float
    operations: int

    @property
    def each(self) -> float:
        return self.seconds / self.operations


@dataclass(frozen=True)
class Order:
    """The store that a worker opens."""

    contender: str
    stage: str
    folder: Path
    size: int = 0
    seed: int = 0

    def fields(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder)}


class Worker:
    """A process of `bench.worker`, or of another module that obeys, and the patience to wait for its answers."""

    def __init__(self, python: Path, log: Path, environment: Mapping[str, str], module: str = "bench.worker") -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=log.parent,
                env=environment_of(environment),
                text=True,
                encoding="utf-8",
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, do: str, seconds: float = ROUND_SECONDS, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive(seconds)

    def send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError as exc:
            raise Failed(self._last_words()) from exc

    def receive(self, seconds: float = ROUND_SECONDS) -> dict[str, Any]:
        """The next answer; a worker that lets us wait too long is ended."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise Failed(f"no answer within {seconds:.0f} s") from None
        if not line:
            raise Failed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if reason := answer.get("error") or answer.get("not_offered"):
            raise Failed(reason)
        return answer

    def end(self) -> None:
        """Let it leave by itself, then insist."""
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"the worker ended: {lines[-1] if lines else 'no message'}"


class Crew:
    """One stage on one or several workers; a round ends when the last of them is done."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers

    def open(self, order: Order, seconds: float) -> None:
        """Open one after another: the first makes the tables."""
        for worker in self._workers:
            worker.call("open", seconds, **order.fields())

    def round(self, operations: int) -> Took:
        for worker in self._workers:
            worker.send("round", operations=operations)
        answers = [worker.receive() for worker in self._workers]
        seconds = max(each["ended"] for each in answers) - min(each["began"] for each in answers)
        return Took(seconds, sum(each["operations"] for each in answers))

    def check(self) -> str | None:
        problems = [worker.call("check")["problem"] for worker in self._workers]
        return "; ".join(filter(None, problems)) or None

    def close(self) -> int:
        """Close the stores; the answer is the size of the files as the last one leaves them."""
        sizes = [worker.call("close").get("bytes", 0) for worker in self._workers if worker.alive]
        return sizes[-1] if sizes else 0


class Programs:
    """Whole processes as operations: from start to exit."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment_of(environment)

    def round(self, operations: int) -> Took:
        began = perf_counter()
        for _ in range(operations):
            self._run()
        return Took(perf_counter() - began, operations)

    def _run(self) -> None:
        done = subprocess.run(
            self._command, env=self._environment, capture_output=True, text=True, timeout=ROUND_SECONDS, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise Failed(f"exit code {done.returncode}: {lines[-1] if lines else 'no message'}")

    def check(self) -> str | None:
        return None


def environment_of(extra: Mapping[str, str]) -> dict[str, str]:
    """Return our environment, without what would point moorage at a user's real store or family."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "AGENT_"))}
    given = [str(Path(each).resolve()) for each in kept.get("PYTHONPATH", "").split(os.pathsep) if each]
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *given]), **extra}
