#!/usr/bin/env python3
"""Pictures of every view of the web page, light and dark, for docs/web.md: `scripts/screenshots.py [FOLDER]`.

They are taken of a real server with real runs, in Chromium. What is new on them every time (ids, ages) makes no two
of them alike, so take them when a view has changed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.doors.web.scene import Scene, furnish  # noqa: E402  found by the line above
from tests.doors.web.stage import FLAGS, NoChromium, Stage, find_chromium, staged  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZE = ViewportSize(width=1280, height=760)
PHONE = ViewportSize(width=390, height=760)


def places(scene: Scene) -> dict[str, str]:
    """What is taken, by the name of its picture."""
    return {
        "sessions": "sessions",
        "session": f"session/{scene.talk}",
        "verdict": f"session/{scene.talk}?tab=verdict",
        "family": f"family/{scene.root}",
        "family-time": f"family/{scene.root}?tab=time",
        "approvals": "approvals",
        "agents": "agents",
        "launchers": "launchers",
        "analytics": "analytics",
        "set-aside": "set-aside",
    }


def main(folder: str = str(PICTURES)) -> None:
    """Take all of them."""
    try:
        chromium = find_chromium()
    except NoChromium as problem:
        sys.exit(f"screenshots: {problem}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, staged(Path(place)) as stage, sync_playwright() as playwright:
        scene = furnish(stage)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for theme in ("light", "dark"):
            take(browser, stage, scene, Path(folder), theme)
        browser.close()


def take(browser: Browser, stage: Stage, scene: Scene, folder: Path, theme: str) -> None:
    """All pictures of one theme, and one as a phone shows it."""
    context = browser.new_context(
        viewport=SIZE, color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    for name, place in places(scene).items():
        shot(page, f"{stage.url}/#/{place}", folder / f"{name}-{theme}.png")
    page.set_viewport_size(PHONE)
    shot(page, f"{stage.url}/#/session/{scene.asks}", folder / f"phone-{theme}.png")
    context.close()


def shot(page: Page, url: str, path: Path) -> None:
    """One picture, once everything has come."""
    page.goto(url)
    page.locator(".pulse.live").wait_for(state="attached")
    page.locator(".loading").wait_for(state="detached")
    page.wait_for_load_state("domcontentloaded")
    page.wait_for_timeout(600)  # plots draw themselves in steps
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
