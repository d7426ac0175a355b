"""Approvals on the page: questions, differences of plans, and decisions that reach real agents."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from playwright.sync_api import Locator, Page, expect

from tests.doors.web.stage import Stage
from tests.doors.web.test_axe import violations

FIRST = {"node": "node-3", "steps": ["drain", "upgrade to 1.30"], "risk": "high"}
SECOND = {"node": "node-3", "steps": ["drain", "upgrade to 1.31", "smoke tests"], "risk": "low"}


def an_agent_that_asks(stage: Stage) -> tuple[str, str]:
    """Run a careful agent until it asks; return the name and id of its session."""
    name = f"asks-{uuid4().hex[:8]}"
    session = str(stage.run("careful", "Upgrade", session_name=name, mode="async_poll")["session"]["session_id"])
    stage.until_status(session, "waiting")
    return name, session


def asked(stage: Stage, **fields: Any) -> dict[str, Any]:
    """Ask a question in a new session, or in `session`."""
    session = fields.pop("session", None) or stage.create(session_name=f"asked-{uuid4().hex[:8]}")
    approval: dict[str, Any] = stage.ask("POST", f"/sessions/{session}/approvals", {"question": "Go on?", **fields})
    return approval


def approval(stage: Stage, session: str) -> Any:
    return stage.ask("GET", f"/approvals?session={session}&pending_only=false")["items"][-1]


def waiting(stage: Stage) -> int:
    return len(stage.ask("GET", "/approvals?limit=1000")["items"])


def item(page: Page, text: str) -> Locator:
    return page.get_by_label("Waiting").get_by_role("link").filter(has_text=text)


def test_keyboard_decision_reaches_the_agent(page: Page, stage: Stage) -> None:
    name, session = an_agent_that_asks(stage)
    before = waiting(stage)
    page.goto(f"{stage.url}/#/approvals")
    expect(page).to_have_title(re.compile(rf"^\({before}\) "))
    expect(page.locator("nav [aria-current=page] .count")).to_have_text(str(before))
    item(page, name).click()
    expect(page.get_by_role("article")).to_contain_text("agent is waiting")
    expect(page.get_by_role("article")).to_contain_text("Expires in 59m")
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.keyboard.type("only at night")
    assert approval(stage, session)["state"] == "pending"  # one key alone decides nothing
    page.keyboard.press("Enter")
    expect(item(page, name)).to_have_count(0)
    expect(page.locator(".toasts")).to_contain_text(f"{name} continues: approve")
    stage.until_status(session, "idle")
    told = approval(stage, session)
    assert (told["state"], told["note"]) == ("approved", "only at night")
    said = stage.ask("GET", f"/sessions/{session}/messages?last=1")["items"][-1]["content"]
    assert said == "Done, as you said: approve"
    expect(page).to_have_title(re.compile(rf"^\({before - 1}\) " if before > 1 else "^Approvals"))


def test_click_decides(page: Page, stage: Stage) -> None:
    mark = uuid4().hex[:8]
    for button, state, decision in (("Reject", "rejected", "reject"), ("canary", "answered", "canary")):
        one = asked(stage, question=f"{mark} {button}?", options=["canary"])
        page.goto(f"{stage.url}/#/approvals")
        item(page, f"{mark} {button}").click()
        page.get_by_label("Note for the agent").fill("as agreed")
        page.get_by_role("button", name=button).click()
        expect(item(page, f"{mark} {button}")).to_have_count(0)
        told = approval(stage, one["session_id"])
        assert (told["state"], told["decision"], told["note"]) == (state, decision, "as agreed")


def test_option_has_a_key_and_escape_cancels(page: Page, stage: Stage) -> None:
    one = asked(stage, options=["tonight", "canary"])
    page.goto(f"{stage.url}/#/approvals?id={one['approval_id']}")
    expect(page.get_by_role("article")).to_contain_text("No plan")
    page.keyboard.press("2")
    note = page.get_by_label("Note for the agent")
    expect(note).to_be_focused()
    expect(page.get_by_role("button", name="canary")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    expect(note).not_to_be_focused()
    note.press("Enter")
    assert stage.ask("GET", f"/approvals/{one['approval_id']}")["state"] == "pending"
    page.keyboard.press("Escape")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    expect(page.locator(".toasts")).to_contain_text("continues: tonight")
    assert stage.ask("GET", f"/approvals/{one['approval_id']}")["decision"] == "tonight"


def test_plan_is_shown_with_its_difference(page: Page, stage: Stage) -> None:
    first = asked(stage, plan=FIRST)
    stage.ask("POST", f"/approvals/{first['approval_id']}/decision", {"decision": "reject", "note": "1.30 is broken"})
    second = asked(stage, session=first["session_id"], plan=SECOND, question="And so?")
    page.goto(f"{stage.url}/#/approvals?id={second['approval_id']}")
    plan = page.get_by_label("Plan", exact=True)
    expect(plan).to_contain_text("3 lines added, 2 removed since the last plan, which was rejected")
    expect(plan.locator(".gone")).to_contain_text(["upgrade to 1.30", '"risk": "high"'])
    expect(plan.locator(".new")).to_contain_text(["upgrade to 1.31", "smoke tests", '"risk": "low"'])
    plan.get_by_role("button", name="Hide changes").click()
    expect(plan.locator(".gone")).to_have_count(0)
    expect(plan).to_contain_text("smoke tests")
    page.get_by_role("button", name="Show changes").click()
    page.get_by_text("Decided approvals").click()
    expect(page.get_by_role("row").filter(has_text="1.30 is broken")).to_contain_text("rejected")
    assert violations(page) == []


def test_questions_appear_and_disappear_as_text(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/approvals")
    expect(page.locator(".pulse.live")).to_be_visible()
    mark = uuid4().hex[:8]
    one = asked(
        stage, question=f"<b>{mark}</b> \u202etxt?", plan="<img src=x onerror=alert(1)>\nrm -rf /", expires_in=300
    )
    item(page, mark).click()
    expect(page.get_by_role("article").get_by_role("heading").first).to_have_text(f"<b>{mark}</b> ⟨U+202E⟩txt?")
    expect(page.get_by_label("Plan", exact=True)).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator(".clock.soon")).to_be_visible()
    stage.ask("POST", f"/approvals/{one['approval_id']}/decision", {"decision": "approve"})
    expect(item(page, mark)).to_have_count(0)
