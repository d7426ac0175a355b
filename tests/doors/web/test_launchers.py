"""Launchers on the page: their health, and their sessions at work."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage, staged


def test_launcher_is_shown_with_its_sessions(page: Page, stage: Stage) -> None:
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


def test_launcher_is_drained_and_claims_again(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        running = stage.run("waits", "go", mode="async_poll")
        stage.until_status(running["session"]["session_id"], "running")
        page.goto(f"{stage.url}/#/launchers")
        card = page.get_by_role("region", name="serve")
        expect(card).to_contain_text("1 of 16 slots in use")
        card.get_by_role("button", name="Drain…").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 session at work will finish")
        expect(dialog).to_contain_text("No other launcher is alive")
        dialog.get_by_role("button", name="Drain", exact=True).click()
        expect(card).to_contain_text("finishes 1 session")
        expect(card.get_by_text("draining", exact=True)).to_be_visible()
        queued = stage.run("echo-agent", "later", mode="async_poll")["run"]["run_id"]
        (folder / "home" / "go").touch()
        assert stage.ask("GET", f"/runs/{running['run']['run_id']}/result?wait=30")["state"] == "completed"
        expect(card.get_by_text("drained", exact=True)).to_be_visible()
        expect(page.locator("main")).to_contain_text("1 run not taken")
        expect(page.locator("main")).to_contain_text("No launcher runs echo-agent")
        assert stage.ask("GET", f"/runs/{queued}")["state"] == "queued"
        card.get_by_role("button", name="Resume claiming").click()
        expect(card.get_by_text("alive", exact=True)).to_be_visible()
        assert stage.ask("GET", f"/runs/{queued}/result?wait=30")["state"] == "completed"


def test_silent_launcher_is_lost_and_goes_away(page: Page, stage: Stage) -> None:
    name = f"far-{uuid4().hex[:8]}"
    stage.ask("POST", "/launchers", {"name": name, "slots": 2, "agents": ["far-agent"], "host": "elsewhere"})
    page.goto(f"{stage.url}/#/launchers")
    card = page.get_by_role("region", name=name)
    expect(card).to_contain_text("alive")
    expect(card).to_contain_text("elsewhere")
    seen = stage.ask("GET", "/launchers")["items"]
    said = page.evaluate(
        """([launchers, name]) => import('/web/views/launchers.js').then(({health, isGone}) => {
            const one = launchers.find((each) => each.name === name), at = Date.parse(one.seen_at);
            const now = [{}, {draining: true}, {drain: true}].map((more) => health({...one, ...more}, at));
            return [...now, health(one, at + 30000), isGone(one, at + 30000), isGone(one, at + 301000)];
        })""",
        [seen, name],
    )
    assert said == ["alive", "draining", "drained", "lost", False, True]


def test_adopted_turn_is_marked(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        session = stage.run("waits", "go", session_name="waiter", mode="async_poll")["session"]["session_id"]
        stage.until_status(session, "running")
        stage.stop()
        stage.start()
        page.goto(f"{stage.url}/#/launchers")
        row = page.get_by_role("row").filter(has_text="waiter")
        expect(row).to_contain_text("adopted")
        expect(page.get_by_role("region", name="serve")).to_have_count(1)
        (folder / "home" / "go").touch()
        expect(row).to_have_count(0)
