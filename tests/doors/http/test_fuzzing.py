"""Schemathesis on the door as it is served: every operation of its own OpenAPI document, all checks.

MOORAGE_FUZZ is the number of examples of each operation. The corpus has requests as Schemathesis prints them: one call
of curl each, without the address of the server.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from moorage import sync
from tests.counting import count, is_counting
from tests.doors.http.server import free_port, serving_process
from tests.fuzz.inputs import CORPUS, SEED, SHORT, kept, many, tried

HERE = Path(__file__).parent
ROOT, HOOKS = HERE.parents[2], "tests.doors.http.fuzzing"
# A busy machine is no reason to fail: pytest-timeout bounds the run.
HOW = ["--max-examples", str(many(3)), "--seed", str(SEED), "--suppress-health-check", "too_slow"]
PLACE = "http://server"  # of the corpus


@pytest.fixture
def fuzzed(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Serve a store, and return a function that runs phases of Schemathesis against it and returns its report."""
    store, port = f"sqlite:///{tmp_path / 'moorage.db'}", free_port()
    with sync.connect(store) as moor:
        key = moor.create_key(scopes=["admin"]).text
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[server]\nrate = 1000000\nburst = 1000000\n")
    with serving_process(store, port):

        def run(phases: str) -> str:
            url = f"http://127.0.0.1:{port}"
            replay(url, key)
            done = ask_everything(url, key, tmp_path, phases)
            keep_failed(done.stdout.replace(url, PLACE))
            assert done.returncode == 0, done.stdout + done.stderr
            check_stalls(httpx2.get(f"{url}/metrics", headers={"authorization": f"Bearer {key}"}).text)
            return done.stdout

        yield run


@pytest.mark.timeout(300 if SHORT else 7200)
def test_generated_requests_get_documented_answers(fuzzed: Callable[[str], str]) -> None:
    told = fuzzed("coverage,fuzzing")
    selected = number(r"Selected: (\d+)/", told)
    assert number(r"Tested: (\d+)", told) == selected, "an operation was left out"
    assert number(r"(\d+) generated", told) > 1000
    count("inputs: rest", number(r"(\d+) generated", told))


@pytest.mark.skipif(not is_counting(), reason="`./dev fuzz` runs it: it asks the same operations in other orders")
@pytest.mark.timeout(300 if SHORT else 7200)
def test_answers_lead_to_other_operations(fuzzed: Callable[[str], str]) -> None:
    told = fuzzed("stateful")
    assert number(r"API Links: +(\d+) covered", told) >= 20
    count("inputs: rest", number(r"(\d+) generated", told))


def replay(url: str, key: str) -> None:
    """Send what the corpus has: no answer is an error of the server."""
    for line in filter(None, b"\n".join(kept("rest")).decode().split("\n")):  # values have other line ends
        with tried("rest", line.encode()):
            answer = httpx2.request(**request_of(line, url, key), timeout=60)
            assert answer.status_code < 500, (line, answer.text)


def request_of(line: str, url: str, key: str) -> dict[str, Any]:
    """Return the request that a call of curl makes."""
    method, headers, content, address = "GET", dict[str, str](), b"", ""
    words = iter(shlex.split(line)[1:])
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(":")
            headers[name.strip().lower()] = value.strip()
        elif word in ("-d", "--data", "--data-raw", "--data-binary"):
            content = next(words).encode("utf-8", "surrogatepass")
        elif word.startswith("http"):
            address = word
    headers["authorization"] = f"Bearer {key}"
    return {"method": method, "url": address.replace(PLACE, url), "headers": headers, "content": content}


def keep_failed(told: str) -> None:
    """Put the requests that failed into the corpus."""
    if failed := re.findall(r"^ *(curl .*)$", told, re.MULTILINE):
        (CORPUS / "rest" / "failed").write_text("\n".join(dict.fromkeys(failed)) + "\n")


def check_stalls(metrics: str) -> None:
    """Check that no stall of the event loop took more than 100 ms of processor time."""
    name = "moorage_loop_stall_computing_seconds"
    short, every = number(rf'{name}_bucket{{le="0.1"}} (\d+)', metrics), number(rf"{name}_count (\d+)", metrics)
    assert short == every > 0


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1])


def ask_everything(url: str, key: str, folder: Path, phases: str) -> subprocess.CompletedProcess[str]:
    """Run Schemathesis as a process."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", HERE / "fuzzing.toml"),
            *("run", f"{url}/openapi.json", "--phases", phases),
            *("--header", f"Authorization: Bearer {key}"),
            *("--request-timeout", "60", "--continue-on-failure", *HOW),
        ],
        env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT), "FUZZED_URL": url, "FUZZED_KEY": key},
        cwd=folder,
        capture_output=True,
        text=True,
    )
