"""Status on the page: failed runs, waiting, queues, problems of agents, and holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage, staged, until


def ask(stage: Stage, agent: str, prompt: str) -> tuple[str, str]:
    """Ask an agent in a session with its own task; return the ids of the session and of the run."""
    task = f"task-{uuid4().hex[:8]}"
    asked = stage.run(agent, prompt, mode="async_poll", task_id=task, session_name=f"{agent}-{task}")
    return str(asked["session"]["session_id"]), str(asked["run"]["run_id"])


def show(page: Page, stage: Stage, session: str) -> None:
    page.goto(f"{stage.url}/#/session/{session}")


def test_failed_run_is_shown_and_retried(page: Page, stage: Stage) -> None:
    flag = f"room-{uuid4().hex[:8]}"
    session, run = ask(stage, "flaky", flag)
    task = stage.until_status(session, "run_failed")["task_id"]
    page.goto(f"{stage.url}/#/sessions?task={task}")
    row = page.locator(f"[data-id='{session}']")
    expect(row.locator(".c-status")).to_contain_text(re.compile("run failed.*the disk is full"))
    row.get_by_role("button", name="Retry").click()
    until(lambda: len(stage.ask("GET", f"/runs?session={session}")["items"]) == 2 or None)
    stage.until_status(session, "run_failed")
    show(page, stage, session)
    facts = page.locator(".top .now")
    expect(facts).to_contain_text(re.compile("run failed.*the disk is full"))
    (stage.folder / "home" / flag).touch()
    page.locator(".top").get_by_role("button", name="Retry").click()
    expect(page.locator(".m-assistant").last).to_contain_text("There is room again.")
    expect(facts.locator(".status")).to_have_text("idle")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)
    [third, second, first] = stage.ask("GET", f"/runs?session={session}")["items"]
    assert (first["run_id"], second["retry_of"], third["retry_of"]) == (run, run, second["run_id"])
    assert third["state"] == "completed"


def test_run_is_retried_from_the_list_of_runs(page: Page, stage: Stage) -> None:
    flag = f"room-{uuid4().hex[:8]}"
    session, run = ask(stage, "flaky", flag)
    stage.until_status(session, "run_failed")
    (stage.folder / "home" / flag).touch()
    page.goto(f"{stage.url}/#/session/{session}?tab=runs")
    page.locator(".runs").get_by_role("button", name="Retry").click()
    newest = page.locator(".runs > li").first
    expect(newest).to_contain_text("completed")
    newest.locator("summary").click()
    expect(newest).to_contain_text(run)


def test_waiting_parent_links_to_its_child(page: Page, stage: Stage) -> None:
    go = f"go-{uuid4().hex[:8]}"
    session, _ = ask(stage, "parent", go)
    task = stage.until_status(session, "waiting")["task_id"]
    child = stage.ask("GET", f"/sessions/{session}")["waiting_for"]["child"]["session_id"]
    page.goto(f"{stage.url}/#/sessions?task={task}")
    cell = page.locator(f"[data-id='{session}'] .c-status")
    expect(cell).to_contain_text("waiting")
    expect(cell.get_by_role("link")).to_have_attribute("href", f"#/session/{child}")
    show(page, stage, session)
    facts = page.locator(".top .now")
    expect(facts.locator(".status")).to_have_text("waiting")
    facts.locator(".why").get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"#/session/{child}"))
    (stage.folder / "home" / go).touch()
    page.go_back()
    expect(page.locator(".m-assistant").last).to_contain_text("The child is done.")
    expect(facts.locator(".status")).to_have_text("idle")


def test_waiting_session_links_to_its_approval(page: Page, stage: Stage) -> None:
    session, _ = ask(stage, "careful", "upgrade")
    approval = stage.until_status(session, "waiting")["waiting_for"]["approval_id"]
    show(page, stage, session)
    expect(page.locator(".top .status")).to_have_text("waiting")
    page.locator(".top").get_by_role("link", name="an approval").click()
    expect(page).to_have_url(re.compile(f"#/approvals\\?id={approval}"))
    expect(page.get_by_role("article")).to_contain_text("Apply the plan to prod-cluster?")
    stage.ask("POST", f"/sessions/{session}/stop", {})


def test_waiting_run_is_stopped(page: Page, stage: Stage) -> None:
    session, run = ask(stage, "careful", "upgrade")
    stage.until_status(session, "waiting")
    show(page, stage, session)
    for refused in ("Suspend", "Finalize"):
        expect(page.locator(".top").get_by_role("button", name=refused)).to_have_count(0)
    page.locator(".top").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".top .status")).to_have_text("idle")
    assert stage.ask("GET", f"/runs/{run}/result?wait=30")["state"] == "stopped"


def test_stop_without_a_run_stops_nothing(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    stage.ask("POST", f"/sessions/{session}/approvals", {"question": "Go on?"})
    show(page, stage, session)
    page.locator(".top").get_by_role("button", name="Stop").click()
    expect(page.locator(".toasts")).to_contain_text("Nothing is running")


def test_queued_session_says_why_and_takes_more_messages(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        [launcher] = until(lambda: stage.ask("GET", "/launchers")["items"])
        drain = f"/launchers/{launcher['launcher_id']}/drain"
        stage.ask("POST", drain, {"drain": True})
        session = stage.create(agent_name="echo-agent", session_name="later")
        show(page, stage, session)
        for text in map(str, range(8)):  # a browser has six connections to a server
            page.get_by_label("Message").fill(text)
            page.keyboard.press("Enter")
            expect(page.locator(".m-user").last).to_contain_text(text)
            expect(page.locator(".top .status")).to_have_text("queued")
            expect(page.get_by_role("button", name="Send")).to_be_enabled()
        expect(page.locator(".top .why")).to_have_text("no launcher takes this agent")
        page.goto(f"{stage.url}/#/sessions?status=queued")
        expect(page.locator(f"[data-id='{session}'] .c-status")).to_contain_text("no launcher takes this agent")
        show(page, stage, session)
        stage.ask("POST", drain, {"drain": False})
        expect(page.locator(".m-assistant").last).to_contain_text("7")
        expect(page.locator(".top .status")).to_have_text("idle")


def test_list_is_filtered_by_status(page: Page, stage: Stage) -> None:
    task = f"task-{uuid4().hex[:8]}"  # the stage is shared: sessions of other tests may change meanwhile
    asked = {"run_failed": "broken", "waiting": "careful"}
    found = {
        status: stage.run(agent, "try", mode="async_poll", task_id=task)["session"]["session_id"]
        for status, agent in asked.items()
    }
    for status, session in found.items():
        stage.until_status(session, status)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    for status, session in found.items():
        page.get_by_label("Status").select_option(status)
        expect(page.locator(".rows [role=row]")).to_have_count(1)
        expect(page.locator(f"[data-id='{session}'] .status")).to_have_text(status.replace("_", " "))
    stage.ask("POST", f"/sessions/{found['waiting']}/stop", {})


def test_problems_of_an_agent_are_shown_and_counted(page: Page, stage: Stage) -> None:
    session, run = ask(stage, "hasty", "hurry")
    show(page, stage, session)
    expect(page.locator(".happened").filter(has_text="plannign")).to_contain_text("phase")
    expect(page.locator(".m-assistant")).to_contain_text("Done in a hurry.")
    stage.ask("GET", f"/runs/{run}/result?wait=30")
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator(".runs")).to_contain_text("1 problem")


def hold(stage: Stage, session: str, holder: str) -> Any:
    return stage.ask("POST", f"/sessions/{session}/resume", {"hold": True, "holder": holder})["hold"]


def test_resume_lets_the_agent_go_on_without_a_hold(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    stage.ask("POST", f"/sessions/{session}/suspend", {})
    stage.ask("POST", f"/sessions/{session}/messages", {"content": "while paused", "run": True, "wake": False})
    show(page, stage, session)
    expect(page.locator(".top .status")).to_have_text("suspended")
    expect(page.locator(".top .why")).to_have_text("starts when the session is resumed")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".m-assistant").last).to_contain_text("while paused")
    page.get_by_label("Message").fill("and now")
    page.keyboard.press("Enter")
    expect(page.locator(".m-assistant").last).to_contain_text("and now")
    assert stage.ask("GET", f"/sessions/{session}")["hold"] is None


def test_message_resumes_a_suspended_session(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    stage.ask("POST", f"/sessions/{session}/suspend", {})
    show(page, stage, session)
    page.get_by_label("Message").fill("wake up")
    page.keyboard.press("Enter")
    expect(page.locator(".m-assistant").last).to_contain_text("wake up")
    expect(page.locator(".top .status")).to_have_text("idle")


def test_release_ends_the_hold_of_another(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    hold(stage, session, "alice")
    show(page, stage, session)
    chip = page.locator(".chip").filter(has_text="held by")
    expect(chip).to_contain_text("alice")
    page.get_by_label("Message").fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator(".toast.bad")).to_contain_text("alice")
    expect(page.get_by_label("Message")).to_have_value("hello")
    chip.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_role("button", name="End the hold").click()
    expect(chip).to_have_count(0)
    assert stage.ask("GET", f"/sessions/{session}")["hold"] is None
    page.get_by_label("Message").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".m-assistant").last).to_contain_text("hello")
