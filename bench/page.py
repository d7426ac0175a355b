"""`python -m bench.page`: the web page on a store of 100,000 sessions, in a real Chromium.

For each thing a person does there: how long until it is to be seen, and the longest task of the page's main thread
meanwhile, from the browser's trace, in milliseconds of its own time. Above 200 ms a page does not answer to its keys.
The server is a real one, on an SQLite file that stays in `--dir` to be used again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, expect, sync_playwright

import moorage
from bench import material
from tests.doors.web.stage import FLAGS, Stage, find_chromium, staged, until
from tests.doors.web.tracing import CATEGORIES, longest_task

LONGEST = 200.0  # milliseconds
AT_ONCE = 64
PAGES = 100
RARE = "needle"  # a word that one session in a thousand says
PATIENCE = 60_000  # milliseconds


# Whether there is a row where the reader looks, with its session in it.
IN_SIGHT = """() => {
    const {top} = document.querySelector(".scroll").getBoundingClientRect();
    return [...document.querySelectorAll(".rows [role=row]")].some((row) => {
        const at = row.getBoundingClientRect().top;
        return at >= top - 1 && at < top + 60 && row.textContent.trim();
    });
}"""


class Step(NamedTuple):
    """One thing done on the page."""

    name: str
    seconds: float
    longest: float  # milliseconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 if some task was too long."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000, metavar="N", help="in the store (100000)")
    parser.add_argument("--pages", type=int, default=PAGES, metavar="N", help="of 50 to scroll through (100)")
    parser.add_argument("--dir", type=Path, help="where the store is made, and found again")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{folder / f'{options.sessions}.db'}"
        asyncio.run(_fill(url, options.sessions))
        with staged(folder, "--no-launcher", store=url) as stage:
            steps = _measured(stage, options.pages)
    print(f"{options.sessions:,} sessions")
    for step in steps:
        print(f"{step.name:44} {step.seconds * 1000:8.0f} ms   longest task {step.longest:5.0f} ms")
    return int(max(step.longest for step in steps) > LONGEST)


async def _fill(url: str, count: int) -> None:
    """Sessions with two messages each, some hundreds of tasks, twenty agents; those that are there stay."""
    async with moorage.connect(url) as moor:
        newest = await moor.list(limit=1)
        there = int(str(newest.items[0].session_name)[2:]) + 1 if newest.items else 0
        began = time.monotonic()
        for first in range(there, count, AT_ONCE):
            await asyncio.gather(*(_one(moor, number) for number in range(first, min(first + AT_ONCE, count))))
        print(f"{count - there:,} sessions made in {time.monotonic() - began:.0f} s", file=sys.stderr)


async def _one(moor: moorage.Moorage, number: int) -> None:
    name = f"s-{number:07}"
    await moor.create(
        agent=f"agent-{number % material.AGENTS:02}", name=name, session_id=name, task_id=f"task-{number // 40}"
    )
    words, answer = material.small_turn(number)
    if number % 1000 == 0:
        words = {**words, "content": f"{RARE} {words['content']}"}
    await moor.append(name, [words, answer])
    if number % 100 == 0:
        await moor.finalize(name, "failed")


def _measured(stage: Stage, pages: int) -> list[Step]:
    until(lambda: len(stage.ask("GET", f"/search?q={RARE}")["items"]) > 0 or None)
    chromium = find_chromium()
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{stage.url}/#/analytics")  # so that the files are in the browser's cache
        page.wait_for_selector("h1")
        return list(Reader(browser, page, f"{stage.url}/#/sessions").steps(pages))


class Reader:
    """A reader of the session list."""

    def __init__(self, browser: Browser, page: Page, url: str) -> None:
        self._browser, self._page, self._url = browser, page, url
        self._rows = page.locator(".rows [role=row]")

    def steps(self, pages: int) -> Iterator[Step]:
        """All that is measured, one after the other."""
        self._page.goto("about:blank")
        yield self._measure("open: to the first rows", self._open)
        yield self._measure(f"scroll down {pages} pages, each when it is there", partial(self._scroll, pages))
        yield self._measure("fling to seven places of what is loaded", self._fling)
        works: dict[str, Callable[[], object]] = {
            "filter: an agent": partial(self._fill, "Agent", "agent-07"),
            "filter: a task": partial(self._fill, "Task", "task-9"),
            "filter: a status": partial(self._choose, "Status", "failed", "failed"),
            "sort: oldest first": partial(self._choose, "Sort", "Oldest first", "s-0000000"),
            "sort: longest untouched first": partial(self._choose, "Sort", "Longest untouched first", "s-00000"),
            "filter and sort: an agent, last updated": self._sort_an_agent,
            "search: a rare word": partial(self._search, RARE),
            "search: a word that all say": partial(self._search, "cluster"),
        }
        for name, work in works.items():
            self._page.goto("about:blank")
            self._open()
            yield self._measure(name, work)

    def _measure(self, name: str, work: Callable[[], object]) -> Step:
        self._browser.start_tracing(page=self._page, categories=CATEGORIES)
        began = time.monotonic()
        work()
        took = time.monotonic() - began
        return Step(name, took, longest_task(self._browser.stop_tracing()))

    def _open(self) -> None:
        self._page.goto(self._url)
        self._rows.first.wait_for()

    def _scroll(self, pages: int) -> None:
        for number in range(pages):
            self._page.locator(".scroll").evaluate("box => box.scrollTo(0, box.scrollHeight)")
            expect(self._page.locator(".tally")).to_contain_text(f"{(number + 2) * 50:,} session")

    def _fling(self) -> None:
        for share in (0, 0.9, 0.1, 0.5, 0.25, 1, 0):
            self._page.locator(".scroll").evaluate(f"box => box.scrollTo(0, box.scrollHeight * {share})")
            self._page.wait_for_function(IN_SIGHT)

    def _fill(self, label: str, text: str) -> None:
        self._page.get_by_label(label, exact=True).fill(text)
        expect(self._rows.first).to_contain_text(text)

    def _choose(self, label: str, option: str, shown: str) -> None:
        self._page.get_by_role("combobox", name=label).select_option(option)
        expect(self._rows.first).to_contain_text(shown)

    def _sort_an_agent(self) -> None:
        self._page.goto(f"{self._url}?agent=agent-07&sort=-updated")
        expect(self._rows.first).to_contain_text("agent-07")

    def _search(self, text: str) -> None:
        self._page.get_by_role("searchbox").fill(text)
        self._page.get_by_label("Search results").get_by_role("listitem").first.wait_for()


if __name__ == "__main__":
    sys.exit(main())
