"""Analytics on the page: the server's numbers beside their targets, over time and per agent."""

from __future__ import annotations

from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage

PLOTS = (
    "Sessions per hour",
    "Resume rate",
    "Resume success",
    "Duration, median",
    "Duration, p95",
    "Error rate",
    "Callbacks",
)


@pytest.fixture
def agent(stage: Stage) -> str:
    """An agent with three sessions: two resumed, of which one completed and one failed; one with an error."""
    agent = f"agent-{uuid4().hex[:8]}"
    for index, outcome in enumerate(("completed", "failed", None)):
        made = stage.ask("POST", "/delegations", {"agent": agent, "task_id": f"{agent}-{index}", "create": True})
        session = made["session"]["session_id"]
        stage.ask("PATCH", f"/sessions/{session}", {"phase": "investigating"})
        if outcome:
            stage.ask("POST", "/delegations", {"agent": agent, "task_id": f"{agent}-{index}"})
            stage.ask("POST", f"/sessions/{session}/finalize", {"outcome": outcome})
        else:
            stage.ask("PATCH", f"/sessions/{session}", {"error": "the disk is full"})
    return agent


def test_numbers_have_their_targets(page: Page, stage: Stage, agent: str) -> None:
    total = stage.ask("GET", f"/analytics?agent={agent}")["total"]
    assert (total["resumed"], total["delegations"]) == (2, 5)
    page.goto(f"{stage.url}/#/analytics?range=24h&agent={agent}")
    tile = page.locator(".tile")
    expect(tile.first).to_contain_text("2 ended, 1 open")
    expect(tile.filter(has_text="Resume rate")).to_contain_text("40 %")
    expect(tile.filter(has_text="Resume rate")).to_contain_text("> 60 %, missed")
    expect(tile.filter(has_text="Resume success")).to_contain_text("50 %")
    expect(tile.filter(has_text="Duration, median")).to_contain_text("< 5 min, met")
    expect(tile.filter(has_text="Error rate")).to_contain_text("33 %")
    expect(tile.filter(has_text="Storage")).to_contain_text("in all")
    for title in PLOTS:
        figure = page.get_by_role("figure").filter(has=page.get_by_role("heading", name=title, exact=True))
        expect(figure.locator("canvas")).to_be_visible()
    expect(page.get_by_role("img", name="Resume rate: resumed last 40 %")).to_be_visible()
    page.get_by_text("The plots as a table").click()
    expect(page.locator("details tbody tr")).to_contain_text(["40 %"])


def test_agents_are_compared_and_filtered(page: Page, stage: Stage, agent: str) -> None:
    page.goto(f"{stage.url}/#/analytics")
    row = page.get_by_role("row").filter(has_text=agent)
    expect(row).to_contain_text("40 %")
    row.get_by_role("link", name=agent).click()
    expect(page.locator(".tile").first).to_contain_text("2 ended, 1 open")
    page.keyboard.press("1")
    expect(page.get_by_role("button", name="24 hours")).to_have_attribute("aria-pressed", "true")
    assert f"agent={agent}" in page.url
    assert "range=24h" in page.url
    page.keyboard.press("t")
    expect(page.locator(".canvas canvas").first).to_be_visible()
    page.get_by_role("button", name="All agents").click()
    expect(page.get_by_role("row").filter(has_text=agent)).to_be_visible()


def test_empty_time_range_is_reported(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/analytics?agent=nobody-of-that-name")
    expect(page.locator("main")).to_contain_text("No sessions in this time")
