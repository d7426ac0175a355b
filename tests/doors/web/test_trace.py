"""The trace of a run on the page, with a real agent: turns, tools, an approval, a child, tokens and cost."""

from __future__ import annotations

import re
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.doors.web.scene import a_release
from tests.doors.web.stage import Stage


def test_trace_follows_a_run_and_shows_every_step(page: Page, stage: Stage) -> None:
    session = a_release(stage, f"notes-{uuid4().hex[:8]}")
    page.goto(f"{stage.url}/#/session/{session}?tab=runs")
    page.locator(".runs").get_by_role("link", name="Trace").click()
    trace = page.get_by_role("table", name="Trace of the run")
    expect(trace.locator(".k-tool")).to_have_count(2)
    question = trace.locator(".k-approval")
    expect(question.locator(".bar.b-waiting")).to_be_visible()
    question.get_by_role("button").click()
    trace.get_by_role("link", name="Decide").click()
    page.get_by_role("button", name="Approve").click()
    page.go_back()
    expect(trace.locator(".k-turn")).to_have_count(2)
    expect(trace.locator(".k-tool")).to_contain_text(["git_log", "read_issues", "publish"])
    expect(question).to_contain_text("approve")
    for part in (".k-turn .took", ".k-tool .took", ".k-approval .took", ".k-child .took"):
        expect(trace.locator(part).first).to_have_text(re.compile(r"\d+(ms|\.\d+s|s)"))
    expect(trace.locator(".k-turn").first).to_contain_text("6,010 tokens")
    expect(page.locator(".counts")).to_contain_text(re.compile("Turns2.*Tokens7,050.*Cost[$]0.0421"))
    trace.locator(".k-turn").first.get_by_role("button").click()
    trace.get_by_role("button", name="Zoom to this turn").click()
    expect(trace.locator(".k-turn")).to_have_count(1)
    trace.get_by_role("button", name="Show the whole run").click()
    trace.locator(".k-child").get_by_role("button").click()
    trace.get_by_role("link", name="Open its trace").click()
    expect(page.locator(".trace-head")).to_contain_text("Check the translation")
    expect(trace.locator(".k-message")).to_contain_text(["Check the translation", "Step 1 of 3"])


def test_trace_loads_the_entries_of_its_run_alone(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    for text in ("first", "second", "third"):
        stage.ask("POST", f"/sessions/{session}/messages", {"content": text, "wait": 30})
    run = stage.ask("GET", f"/runs?session={session}")["items"][1]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{stage.url}/#/session/{session}?tab=trace&run={run['run_id']}")
    trace = page.get_by_role("table", name="Trace of the run")
    expect(trace.locator(".k-message")).to_have_count(2)
    expect(trace.locator(".k-message").first).to_contain_text("second")
    assert any(f"/log?after={run['asked_entry'] - 1}&" in url for url in asked)
    page.get_by_label("Run", exact=True).select_option(index=0)
    expect(trace.locator(".k-message").first).to_contain_text("third")
