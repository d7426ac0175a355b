"""One session on the page: its parts and every action on it, with real runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from tests.doors.web.scene import a_talk
from tests.doors.web.stage import Stage


@pytest.fixture
def session(stage: Stage) -> str:
    return stage.create(agent_name="echo-agent", session_name=f"s-{uuid4().hex[:8]}")


@pytest.fixture(scope="module")
def talk(stage: Stage) -> str:
    """A conversation with every kind of content."""
    return a_talk(stage, f"upgrade-{uuid4()}")  # the stage is shared


def open_tab(page: Page, stage: Stage, session: str, name: str) -> None:
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_role("tab", name=name).click()


def test_conversation_shows_markdown_code_and_tools(page: Page, stage: Stage, talk: str) -> None:
    page.goto(f"{stage.url}/#/session/{talk}")
    expect(page.locator(".md strong").first).to_have_text("1.30")
    expect(page.locator(".md table")).to_contain_text("node-1")
    expect(page.locator("pre.code .t-kw").first).to_have_text("def")
    tool = page.locator("details.tool").first
    expect(tool.locator("pre").last).not_to_be_visible()
    tool.locator("summary").click()
    expect(tool).to_contain_text("node-3 Ready v1.30")
    expect(page.locator("a.picture")).to_have_attribute("href", "https://example.org/graph.png")
    expect(page.locator(".phases")).to_contain_text("investigating")


def test_tool_result_shows_its_output_alone(page: Page, stage: Stage, session: str) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "call_id": "c1", "output": {"celsius": 4}}
    for role, part in (("assistant", call), ("tool", result)):
        stage.ask("POST", f"/sessions/{session}/messages", {"role": role, "content": [part], "run": False})
    page.goto(f"{stage.url}/#/session/{session}")
    page.locator("details.tool summary").click()
    expect(page.locator("details.tool pre").last).to_have_text('{\n  "celsius": 4\n}')


def test_replies_appear_as_they_arrive(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="talker")
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_label("Message").fill("go")
    page.keyboard.press("Enter")
    for said in ("Step 1 of 3", "Step 2 of 3", "All three steps are done."):
        expect(page.locator(".m-assistant").filter(has_text=said)).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    expect(page.locator(".m-user")).to_have_count(1)


def test_message_can_be_stored_without_a_reply(page: Page, stage: Stage, session: str) -> None:
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_label("Ask the agent to reply").uncheck()
    page.get_by_label("Message").fill("just so you know")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".m-user")).to_contain_text("just so you know")
    assert stage.ask("GET", f"/runs?session={session}")["items"] == []


def test_runs_show_output_and_failure(page: Page, stage: Stage) -> None:
    session = stage.run("broken", "try it", mode="sync")["session"]["session_id"]
    open_tab(page, stage, session, "Runs")
    expect(page.locator(".runs")).to_contain_text("failed")
    expect(page.locator(".runs")).to_contain_text("the disk is full")


def test_context_is_edited_with_expiry_and_undo(page: Page, stage: Stage, session: str) -> None:
    open_tab(page, stage, session, "Context")
    page.get_by_role("button", name="Add a value").click()
    form = page.get_by_role("form", name="Edit the context")
    form.get_by_label("Key").fill("cluster")
    form.get_by_label("Value").fill('{"name": "prod"}')
    form.get_by_label("Expires after").fill("2h")
    form.get_by_role("button", name="Save").click()
    expect(page.locator("tbody tr")).to_contain_text(re.compile("cluster.*prod.*in 1h"))
    kept = stage.ask("GET", f"/sessions/{session}/context-items")["cluster"]
    assert kept["value"] == {"name": "prod"}
    page.get_by_role("button", name="Forget cluster").click()
    expect(page.get_by_role("heading", name="The context is empty")).to_be_visible()
    page.locator(".toasts").get_by_role("button", name="Undo").last.click()
    expect(page.locator("tbody tr")).to_contain_text("cluster")


def test_checkpoints_log_verdict_and_facts_are_shown(page: Page, stage: Stage, talk: str) -> None:
    open_tab(page, stage, talk, "Checkpoints")
    expect(page.locator("#panel")).to_contain_text("drained")
    page.get_by_role("tab", name="Log").click()
    page.get_by_label("Kind").select_option("phase")
    expect(page.locator(".log tbody tr")).to_have_count(2)
    page.get_by_label("Filter by text").fill("investigating")
    page.get_by_role("tab", name="Resume?").click()
    criteria = stage.ask("GET", f"/sessions/{talk}/resume-verdict")["criteria"]
    for name in criteria:
        expect(page.locator("#panel tbody")).to_contain_text(name)
    expect(page.locator("#panel tbody tr")).to_have_count(len(criteria))
    page.get_by_role("tab", name="Facts").click()
    expect(page.locator("#panel")).to_contain_text("root_session_id")


def test_suspend_can_be_undone(page: Page, stage: Stage, session: str) -> None:
    stage.ask("POST", f"/sessions/{session}/messages", {"content": "hi", "run": False})
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_role("button", name="Suspend").click()
    stage.until_status(session, "suspended")
    expect(page.locator(".top .status")).to_have_text("suspended")
    page.locator(".toasts").get_by_role("button", name="Undo").click()
    stage.until_status(session, "idle")
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    assert stage.ask("GET", f"/sessions/{session}")["hold"] is None


def test_run_is_stopped_after_a_preview(page: Page, stage: Stage) -> None:
    session = stage.run("slow", "for ever", mode="async_poll")["session"]["session_id"]
    stage.until_status(session, "running")
    page.goto(f"{stage.url}/#/session/{session}")
    page.locator(".top").get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stops 1 session")
    dialog.get_by_role("button", name="Stop").click()
    stage.until_status(session, "idle")
    expect(page.locator(".top .status")).to_have_text("idle")


def test_running_tree_is_deleted_after_a_preview(page: Page, stage: Stage) -> None:
    root = stage.create(session_name=f"r-{uuid4().hex[:8]}")
    child = stage.run("slow", "for ever", mode="async_poll", parent=root)["session"]["session_id"]
    stage.until_status(child, "running")
    page.goto(f"{stage.url}/#/session/{root}")
    page.locator(".top").get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Deletes 2 sessions, 1 running")
    dialog.get_by_role("button", name="Stop and delete").click()
    expect(page.get_by_role("heading", name="This session was deleted")).to_be_visible()
    expect(page.locator(".toasts")).not_to_contain_text("elsewhere")


def test_finalized_session_can_be_forked_from_any_message(page: Page, stage: Stage, session: str) -> None:
    for text in ("first", "second"):
        stage.ask("POST", f"/sessions/{session}/messages", {"content": text, "run": False})
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_role("button", name="Finalize").click()
    page.get_by_role("dialog").get_by_role("button", name="Finalize 1 session").click()
    expect(page.locator(".closed")).to_contain_text("Fork to continue")
    page.get_by_role("button", name="Fork from entry 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.locator(".facts-row")).to_contain_text("forked from")
    expect(page.locator(".m-user")).to_have_count(1)
    expect(page.get_by_label("Message")).to_be_visible()


def test_session_is_exported_as_a_file(page: Page, stage: Stage, talk: str, tmp_path: Path) -> None:
    page.goto(f"{stage.url}/#/session/{talk}")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    saved.value.save_as(tmp_path / "export.jsonl")
    lines = (tmp_path / "export.jsonl").read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert any("upgraded" in line for line in lines)


def test_approval_decided_on_the_page_reaches_the_agent(page: Page, stage: Stage) -> None:
    session = stage.run("careful", "upgrade", mode="async_poll")["session"]["session_id"]
    stage.until_status(session, "waiting")
    page.goto(f"{stage.url}/#/session/{session}")
    question = page.get_by_role("group", name="Pending approval")
    expect(question).to_contain_text("drain node-3")
    expect(page.locator(".composer textarea")).to_have_attribute("placeholder", re.compile("^Waiting for an approval"))
    question.get_by_label("Note").fill("go ahead")
    question.get_by_role("button", name="Approve").click()
    expect(page.locator(".m-assistant").last).to_contain_text("Done, as you said: approve")
    expect(page.locator(".happened").filter(has_text="go ahead")).to_be_visible()


def test_missing_and_deleted_sessions_differ(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/session/never-was")
    expect(page.get_by_role("heading", name="Session not found")).to_be_visible()
    session = stage.create()
    stage.ask("DELETE", f"/sessions/{session}")
    page.goto(f"{stage.url}/#/session/{session}")
    expect(page.get_by_role("heading", name="This session was deleted")).to_be_visible()


def test_one_click_copies_an_id(page: Page, stage: Stage, session: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_role("button", name=f"Copy id {session}").first.click()
    expect(page.locator(".toasts")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == session


def test_times_use_the_time_zone_of_the_viewer(page: Page, stage: Stage, session: str) -> None:
    context = page.context.browser.new_context(timezone_id="Pacific/Auckland", locale="en-GB")  # type: ignore[union-attr]
    other = context.new_page()
    other.goto(f"{stage.url}/#/session/{session}")
    made = stage.ask("GET", f"/sessions/{session}")["created_at"]
    told = other.locator(f"time[datetime='{made}']").first.get_attribute("title")
    assert told == other.evaluate(
        "at => new Date(at).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'medium'})", made
    )
    assert other.evaluate("new Date().getTimezoneOffset()") != 0
    context.close()


def test_partial_reply_is_replaced_by_the_message(page: Page, stage: Stage) -> None:
    go = f"go-{uuid4().hex[:8]}"
    session = stage.create(agent_name="waits")
    page.goto(f"{stage.url}/#/session/{session}")
    page.get_by_label("Message").fill(go)
    page.keyboard.press("Enter")
    saying = page.get_by_role("group", name="Partial reply")
    expect(saying).to_contain_text("Once upon a time")
    expect(saying.locator("strong")).to_have_text("time")
    assert [each["content"] for each in stage.ask("GET", f"/sessions/{session}/messages")["items"]] == [go]
    page.reload()  # a late reader gets the reply so far
    expect(saying).to_contain_text("Once upon a time")
    (stage.folder / "home" / go).touch()
    expect(page.locator("ol .m-assistant")).to_contain_text("Once upon a time, there was an end.")
    expect(saying).to_have_count(0)
