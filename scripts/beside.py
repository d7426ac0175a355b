"""Resolve Moorage together with each of the frameworks that it serves, and write the table in docs/install.md.

  python -m scripts.beside UV [--page FILE]      `./dev beside` calls this

Nothing is installed. A framework is pulled back if a resolver that is asked for both takes an older version of it than
if it is asked for the framework alone. Exit code 1: a plain Moorage pulls one back, or one of its extras does so
without a reason in WHY.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.lowest import ROOT, name_of

BEGIN, END = "<!-- made by ./dev beside: begin -->", "<!-- made by ./dev beside: end -->"
PYTHON = "3.11"  # the oldest that Moorage supports
AT_ONCE = 4

FRAMEWORKS = (
    *("langgraph", "openai-agents", "google-adk", "claude-agent-sdk", "pydantic-ai", "strands-agents", "agno"),
    *("crewai", "llama-index-core", "agent-framework", "semantic-kernel", "smolagents", "litellm", "fastmcp"),
    *("mcp<2", "prefect", "temporalio", "dbos", "chainlit", "fastapi", "streamlit", "jupyterlab"),
    "opentelemetry-distro",
)
# Why an extra needs a package to be as new as it does.
WHY = {
    "mcp": "version 1 of the SDK has another interface and lacks revision 2026-07-28 of the protocol",
}


@dataclass(frozen=True)
class Found:
    """One framework's versions; None where nothing fits together."""

    framework: str
    alone: str | None
    thin: str | None
    full: str | None
    clashes: tuple[tuple[str, str], ...] = ()  # extras and their requirements that do not go with the newest

    @property
    def is_pulled_back(self) -> bool:
        return self.alone is None or self.thin != self.alone

    @property
    def unexplained(self) -> list[str]:
        known = [needed for _, needed in self.clashes if name_of(needed) in WHY]
        if self.full == self.alone or (known and len(known) == len(self.clashes)):
            return []
        return [f"{self.framework}: {extra} needs {needed}" for extra, needed in self.clashes] or [self.framework]


def main() -> int:
    """Resolve everything, write the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uv")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "install.md")
    options = parser.parse_args()
    found = resolve_all(options.uv)
    text = table(found)
    print(text)
    write(options.page, text)
    pulled_back = [each.framework for each in found if each.is_pulled_back]
    unexplained = [line for each in found for line in each.unexplained]
    for line in pulled_back:
        print(f"beside: a plain Moorage pulls {line} back", file=sys.stderr)
    for line in unexplained:
        print(f"beside: [all] pulls back without a reason in scripts/beside.py: {line}", file=sys.stderr)
    return 1 if pulled_back or unexplained else 0


def resolve_all(uv: str) -> list[Found]:
    """Resolve every framework, several at once, and say on a terminal how far it is."""
    extras = read_extras()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        work = {pool.submit(resolve_one, uv, framework, extras): framework for framework in FRAMEWORKS}
        for number, done in enumerate(as_completed(work), 1):
            done.result()
            if sys.stderr.isatty():
                print(f"\r\x1b[K{number} of {len(work)}: {work[done]}", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return [each.result() for each in work]


def read_extras() -> dict[str, list[str]]:
    """Return the requirements of each extra that a user may ask for."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {name: wanted for name, wanted in extras.items() if name not in ("all", "dev")}


def resolve_one(uv: str, framework: str, extras: dict[str, list[str]]) -> Found:
    """Resolve one framework alone, beside Moorage, and beside all of its extras; find what pulls it back."""
    ours = ROOT.as_uri()
    alone = resolve(uv, framework)
    thin = resolve(uv, framework, f"moorage @ {ours}")
    full = resolve(uv, framework, f"moorage[all] @ {ours}")
    if full == alone:
        return Found(framework, alone, thin, full)
    newest = f"{name_of(framework)}=={alone}"
    clashes = [
        (f"[{extra}]", needed)
        for extra, wanted in extras.items()
        if resolve(uv, newest, f"moorage[{extra}] @ {ours}") is None
        for needed in wanted
        if resolve(uv, newest, f"moorage @ {ours}", needed) is None
    ]
    return Found(framework, alone, thin, full, tuple(clashes))


def resolve(uv: str, framework: str, *others: str) -> str | None:
    """Return the version of the framework that uv takes beside the others, or None if none fits."""
    command = [uv, "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--python-version", PYTHON]
    asked = "\n".join((framework, *others))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if re.search(r"no solution found|No solution found|unsatisfiable", done.stderr):
            return None
        raise SystemExit(f"beside: uv could not resolve {asked!r}:\n{done.stderr}")
    pins = dict(line.split("==", 1) for line in done.stdout.splitlines() if "==" in line)
    return pins[name_of(framework)].split()[0]


def table(found: Iterable[Found]) -> str:
    """Return the table as Markdown, with the day it was made."""
    head = ["framework", "newest alone", "beside `moorage`", "beside `moorage[all]`", "why"]
    rows = [
        [each.framework, *(it or "none" for it in (each.alone, each.thin, each.full)), reason(each)] for each in found
    ]
    lines = [head, ["---"] * len(head), *rows]
    made = f"Resolved for Python {PYTHON} on {datetime.now(UTC):%Y-%m-%d}."
    return "\n".join([made, "", *(f"| {' | '.join(line).rstrip()} |" for line in lines)])


def reason(found: Found) -> str:
    """Return why `[all]` does not go with the newest version."""
    if found.full == found.alone:
        return ""
    return "; ".join(
        f"`{extra}` needs `{needed.partition(';')[0].strip()}`: {WHY.get(name_of(needed), 'no reason known')}"
        for extra, needed in found.clashes
    )


def write(page: Path, text: str) -> None:
    """Replace what is between the markers of the page."""
    before, found, rest = page.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise SystemExit(f"beside: {page} has no lines {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
