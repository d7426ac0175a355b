"""axe-core finds no serious problem in any view, light or dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.doors.web.scene import Scene, furnish
from tests.doors.web.stage import Stage

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")
VIEWS = ("sessions", "approvals", "agents", "launchers", "analytics", "dead-letters")


@pytest.fixture(scope="session")
def scene(stage: Stage) -> Scene:
    return furnish(stage, more=8)


def violations(page: Page, *, only: str | None = None) -> list[str]:
    """Return the findings of axe with their places; `only` names a single rule."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate(
        "rule => axe.run(document, {resultTypes: ['violations'], ...(rule && {runOnly: [rule]})})", only
    )["violations"]
    return [
        f"{each['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


def places(scene: Scene) -> list[str]:
    session = f"session/{scene.talk}"
    tabs = [f"{session}?tab={tab}" for tab in ("runs", "context", "checkpoints", "log", "verdict", "facts")]
    return [
        *VIEWS,
        session,
        *tabs,
        f"session/{scene.trace}?tab=trace",
        f"session/{scene.asks}",
        f"family/{scene.root}",
        f"family/{scene.root}?tab=time",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_view_has_a_serious_violation(page: Page, stage: Stage, scene: Scene, theme: str) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page.goto(stage.url)
    found = {}
    for place in places(scene):
        page.goto(f"{stage.url}/#/{place}")
        expect(page.locator(".loading")).to_have_count(0)
        if wrong := violations(page, only="color-contrast" if theme == "dark" else None):
            found[place] = wrong
    assert found == {}


def test_phone_layout_has_no_serious_violation(page: Page, stage: Stage, scene: Scene) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    page.goto(stage.url)
    for place in ("sessions", f"session/{scene.asks}", f"session/{scene.trace}?tab=trace"):
        page.goto(f"{stage.url}/#/{place}")
        expect(page.locator(".loading")).to_have_count(0)
        for button in page.locator(".fold-filters:visible, .trace .k-turn .expand").all()[:1]:
            button.click()
        assert violations(page) == [], place


def test_dialogs_have_no_serious_violation(page: Page, stage: Stage, scene: Scene) -> None:
    page.goto(f"{stage.url}/#/session/{scene.talk}")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("Deletes 1 session")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.goto(f"{stage.url}/#/sessions")
    page.get_by_role("button", name="New session").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page) == []
