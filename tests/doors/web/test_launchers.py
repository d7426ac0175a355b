"""Launchers on the page: whether they are well, and what they have at work."""

from __future__ import annotations

from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage


def test_a_launcher_is_shown_with_what_it_has_at_work(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/launchers")
    card = page.get_by_role("region", name="serve")
    expect(card).to_contain_text("alive")
    expect(card).to_contain_text("16 slots")
    expect(card.get_by_role("link", name="echo-agent", exact=True)).to_be_visible()
    name = f"scan-{uuid4().hex[:8]}"
    session = stage.run("slow", "Scan", session_name=name, mode="async_poll")["session"]["session_id"]
    row = card.get_by_role("row").filter(has_text=name)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("slow")
    stage.ask("POST", f"/sessions/{session}/stop", {})
    expect(row).to_have_count(0)


def test_a_launcher_tells_how_it_is_drained(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/launchers")
    card = page.get_by_role("region", name="serve")
    card.get_by_text("Drain").click()
    expect(card).to_contain_text(f"kill -TERM {stage.process.pid}")
    expect(card).to_contain_text("inside the server, which ends with it")


def test_a_launcher_that_is_not_heard_of_is_told_as_lost(page: Page, stage: Stage) -> None:
    name = f"far-{uuid4().hex[:8]}"
    stage.ask("POST", "/launchers", {"name": name, "slots": 2, "agents": ["far-agent"], "host": "elsewhere"})
    page.goto(f"{stage.url}/#/launchers")
    card = page.get_by_role("region", name=name)
    expect(card).to_contain_text("alive")
    expect(card).to_contain_text("elsewhere")
    seen = stage.ask("GET", "/launchers")["items"]
    said = page.evaluate(
        """([launchers, name]) => import('/web/views/launchers.js').then(({health}) => {
            const one = launchers.find((each) => each.name === name), at = Date.parse(one.seen_at);
            return [health(one, at), health(one, at + 30000), health({...one, draining: true}, at)];
        })""",
        [seen, name],
    )
    assert said == ["alive", "lost", "draining"]
