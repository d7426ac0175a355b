"""Fixtures: a browser for each test module, a server for each test process, a page for each test."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.doors.web.stage import FLAGS, NoChromium, Stage, find_chromium, staged

PATIENCE = 20_000  # milliseconds, for a busy machine
# The browser logs refused requests itself. Tests that provoke one look at the page instead.
EXPECTED = ("Failed to load resource",)
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> str:
    lock = tmp_path_factory.getbasetemp().parent / "chromium.lock"
    with lock.open("w") as file:  # one of several test processes installs it
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            return find_chromium()
        except NoChromium as problem:
            pytest.skip(str(problem))


@pytest.fixture(scope="module")  # its event loop would disturb asynchronous tests of other modules
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
def complaints() -> list[str]:
    """Errors and warnings in the browser console; the test fails if there are any at its end."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    yield page
    context.close()
    assert [each for each in complaints if not each.startswith(EXPECTED)] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
