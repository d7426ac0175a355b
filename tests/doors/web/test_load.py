"""The page stays fast with a large store and twenty updates a second.

`MOORAGE_WEB_LOAD=long` asks for 10,000 sessions, half a minute, and forty pages. `python -m bench.page` goes through
100,000.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from moorage import sync
from tests.doors.web.stage import Stage, staged
from tests.doors.web.tracing import CATEGORIES, longest_task

IS_LONG = os.environ.get("MOORAGE_WEB_LOAD") == "long"
SESSIONS, SECONDS = (10_000, 30) if IS_LONG else (600, 3)
A_SECOND = 20
LONGEST = 200  # milliseconds of work in one task


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("large")
    url = f"sqlite:///{folder / 'moorage.db'}"
    with sync.connect(url) as moor:
        for index in range(SESSIONS):
            moor.create(agent=f"agent-{index % 7}", name=f"s-{index:05}", task_id=f"task-{index % 50}")
    with staged(folder, "--no-launcher", store=url) as stage:
        yield stage


def update_steadily(url: str, sessions: list[str], count: int) -> float:
    """Append to these sessions in turn, twenty times a second; return the seconds it took."""
    with httpx2.Client(base_url=url, timeout=60) as http, ThreadPoolExecutor(4) as writers:

        def update(number: int) -> None:
            body = {"content": f"update {number}", "run": False}
            http.post(f"/sessions/{sessions[number % len(sessions)]}/messages", json=body).raise_for_status()

        began, said = time.monotonic(), []
        for number in range(count):
            time.sleep(max(0.0, began + number / A_SECOND - time.monotonic()))
            said.append(writers.submit(update, number))
        for each in said:
            each.result()
    return time.monotonic() - began


def test_twenty_updates_a_second_cause_no_long_task(page: Page, browser: Browser, large: Stage, tmp_path: Path) -> None:
    page.goto(f"{large.url}/#/sessions")
    expect(page.locator(".tally")).to_contain_text("50 sessions")
    newest = large.ask("GET", "/sessions?limit=25")["items"]
    browser.start_tracing(page=page, categories=CATEGORIES)
    count = SECONDS * A_SECOND
    with ThreadPoolExecutor(1) as others:
        updating = others.submit(update_steadily, large.url, [each["session_id"] for each in newest], count)
        while not updating.done():  # scrolling must not slow down writers
            page.mouse.wheel(0, 300)
            page.wait_for_timeout(250)
            page.mouse.wheel(0, -300)
            page.wait_for_timeout(250)
    took = updating.result()
    page.locator(".scroll").evaluate("box => box.scrollTo(0, 0)")
    last = newest[(count - 1) % len(newest)]["session_id"]
    expect(page.locator(f"[data-id='{last}']")).to_contain_text(f"update {count - 1}")
    longest = longest_task(browser.stop_tracing())
    print(f"{SESSIONS} sessions, {count} updates at {count / took:.1f} a second: longest task {longest:.0f} ms")
    assert longest < LONGEST
    assert not IS_LONG or count / took > A_SECOND * 0.95


def test_long_task_is_detected(page: Page, browser: Browser, large: Stage) -> None:
    page.goto(f"{large.url}/#/sessions")
    expect(page.locator(".tally")).to_contain_text("50 sessions")
    browser.start_tracing(page=page, categories=CATEGORIES)
    busy = "let sum = 0; for (let i = 0; i < 1e9; i += 1) sum += i % 7;"  # counts as work, not as time
    page.evaluate(f"setTimeout(() => {{ {busy} document.title = `done ${{sum > 0}}` }})")
    expect(page).to_have_title("done true")
    assert longest_task(browser.stop_tracing()) > LONGEST


def test_scrolling_draws_only_visible_rows(page: Page, large: Stage) -> None:
    page.goto(f"{large.url}/#/sessions")
    expect(page.locator(".tally")).to_contain_text("50 sessions")
    pages = 40 if IS_LONG else 6
    for _ in range(pages):
        page.locator(".scroll").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        page.wait_for_timeout(60)
    expect(page.locator(".rows [role=row]").first).to_be_visible()
    assert page.locator(".rows [role=row]").count() < 60
    assert int((page.locator(".tally").inner_text()).split()[0].replace(",", "")) >= 150
