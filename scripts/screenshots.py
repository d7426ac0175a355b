#!/usr/bin/env python3
"""Take the screenshots of the web page that the documentation shows: `scripts/screenshots.py [--all] [FOLDER]`.

A real server with real runs feeds the page, in Chromium. Ids and ages differ every time, so take the screenshots
again only after a view changed. `--all` takes every view, light and dark, on a desktop and on a phone.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.doors.web.scene import Scene, furnish  # noqa: E402  found by the line above
from tests.doors.web.stage import FLAGS, NoChromium, Stage, find_chromium, staged  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
SIZE = ViewportSize(width=1440, height=860)
PHONE = ViewportSize(width=390, height=780)


def places(scene: Scene) -> dict[str, str]:
    """Return the address of each view by the name of its picture."""
    return {
        "sessions": "sessions",
        "session": f"session/{scene.talk}",
        "question": f"session/{scene.asks}",
        "trace": f"session/{scene.trace}?tab=trace",
        "runs": f"session/{scene.root}?tab=runs",
        "context": f"session/{scene.talk}?tab=context",
        "log": f"session/{scene.talk}?tab=log",
        "verdict": f"session/{scene.talk}?tab=verdict",
        "facts": f"session/{scene.talk}?tab=facts",
        "family": f"family/{scene.root}",
        "family-time": f"family/{scene.root}?tab=time",
        "approvals": "approvals",
        "agents": "agents",
        "launchers": "launchers",
        "analytics": "analytics",
        "dead-letters": "dead-letters",
    }


def shown() -> set[str]:
    """Return the names of the pictures that the documentation shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.png", page.read_text())}


def main(*arguments: str) -> None:
    """Take the screenshots."""
    takes_all = "--all" in arguments
    [folder] = [each for each in arguments if each != "--all"] or [str(PICTURES)]
    try:
        chromium = find_chromium()
    except NoChromium as problem:
        sys.exit(f"screenshots: {problem}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, staged(Path(place)) as stage, sync_playwright() as playwright:
        scene = furnish(stage)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for theme in ("light", "dark"):
            take(browser, stage, scene, Path(folder), theme, only=None if takes_all else shown())
        browser.close()


def take(browser: Browser, stage: Stage, scene: Scene, folder: Path, theme: str, *, only: set[str] | None) -> None:
    """Take the screenshots of one theme, on a desktop and on a phone; `only` names those to take."""
    context = browser.new_context(
        viewport=SIZE, color_scheme="dark" if theme == "dark" else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    for size, prefix in ((SIZE, ""), (PHONE, "phone-")):
        page.set_viewport_size(size)
        for view, place in places(scene).items():
            name = f"{prefix}{view}-{theme}"
            if only is None or name in only:
                shot(page, f"{stage.url}/#/{place}", folder / f"{name}.png")
    context.close()


def shot(page: Page, url: str, path: Path) -> None:
    """Take one screenshot, once everything is loaded."""
    page.goto(url)
    page.locator(".pulse.live").wait_for(state="attached")
    page.locator(".loading").wait_for(state="detached")
    page.wait_for_load_state("domcontentloaded")
    page.wait_for_timeout(600)  # plots draw in steps
    page.screenshot(path=path)
    print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
