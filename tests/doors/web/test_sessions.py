"""The table of sessions: rows, filters, order, and actions on several sessions."""

from __future__ import annotations

import re
from uuid import uuid4

from playwright.sync_api import Page, Route, expect

from tests.doors.web.stage import Stage, until


def row(page: Page, name: str) -> object:
    return page.get_by_role("row").filter(has_text=name)


def a_task(stage: Stage, count: int, **fields: object) -> tuple[str, list[str]]:
    """Create sessions that share a new task."""
    task = f"task-{uuid4().hex[:8]}"
    return task, [stage.create(session_name=f"{task}-{index}", task_id=task, **fields) for index in range(count)]


def test_row_shows_a_session(page: Page, stage: Stage) -> None:
    task = f"task-{uuid4().hex[:8]}"
    parent = stage.create(session_name=f"{task}-parent", task_id=task)
    child = stage.create(
        session_name=f"{task}-child", agent_name="planner", parent_session_id=parent, task_id=task, purpose="check it"
    )
    stage.ask("PATCH", f"/sessions/{child}", {"phase": "planning"})
    stage.ask("POST", f"/sessions/{child}/messages", {"content": "the newest words", "run": False})
    page.goto(f"{stage.url}/#/sessions?task={task}")
    shown = page.locator(f"[data-id='{child}']")
    for text in ("idle", "check it", "planning", "planner", task, f"{task}-parent", "user", "the newest words", "ago"):
        expect(shown).to_contain_text(re.compile(f"{text}|now" if text == "ago" else text))


def test_rows_follow_events(page: Page, stage: Stage) -> None:
    task, [session] = a_task(stage, 1, agent_name="echo-agent")
    page.goto(f"{stage.url}/#/sessions?task={task}")
    shown = page.locator(f"[data-id='{session}']")
    expect(shown).to_contain_text("created")
    stage.ask("POST", f"/sessions/{session}/messages", {"content": "ping", "wait": 30})
    expect(shown).to_contain_text("Echo Agent Response: ping")
    expect(shown).to_contain_text("idle")
    stage.create(session_name=f"{task}-late", task_id=task)
    expect(page.get_by_role("row").filter(has_text=f"{task}-late")).to_be_visible()
    stage.ask("POST", f"/sessions/{session}/finalize", {"outcome": "completed"})
    expect(shown).to_contain_text("completed")
    stage.ask("DELETE", f"/sessions/{session}")
    expect(shown).to_have_count(0)
    expect(page.locator(".toasts")).to_contain_text("deleted elsewhere")


def test_filters_survive_a_reload(page: Page, stage: Stage) -> None:
    task, [one, other] = a_task(stage, 2)
    stage.ask("POST", f"/sessions/{one}/finalize", {"outcome": "failed"})
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    page.get_by_label("Status").select_option("failed")
    expect(page.locator(".rows [role=row]")).to_have_count(1)
    assert "status=failed" in page.url
    page.reload()
    expect(page.locator(f"[data-id='{one}']")).to_be_visible()
    expect(page.locator(f"[data-id='{other}']")).to_have_count(0)
    page.get_by_label("Status").select_option("waiting")
    expect(page.get_by_role("heading", name="No session matches")).to_be_visible()


def test_order_is_reversed_by_a_column_header(page: Page, stage: Stage) -> None:
    task, _ = a_task(stage, 3)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".rows [role=row]").first).to_contain_text(f"{task}-2")
    page.get_by_role("button", name="Created").click()
    expect(page.locator(".rows [role=row]").first).to_contain_text(f"{task}-0")
    assert "sort=created" in page.url


def test_updated_session_moves_to_the_top(page: Page, stage: Stage) -> None:
    task, ids = a_task(stage, 3)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    first = page.locator(".rows [role=row]").first
    page.get_by_role("button", name="Updated").click()
    expect(first).to_contain_text(f"{task}-2")
    stage.ask("POST", f"/sessions/{ids[0]}/messages", {"content": "news", "run": False})
    expect(page.locator(".rows [role=row]")).to_have_text([re.compile(f"{task}-{n}") for n in (0, 2, 1)])
    page.reload()
    expect(first).to_contain_text(f"{task}-0")
    page.get_by_role("combobox", name="Sort").select_option("Longest untouched first")
    expect(page.locator(".rows [role=row]")).to_have_text([re.compile(f"{task}-{n}") for n in (1, 2, 0)])
    assert "sort=updated" in page.url


def test_search_opens_the_entry(page: Page, stage: Stage) -> None:
    word = f"needle{uuid4().hex[:8]}"
    session = stage.create(session_name=f"hay-{word}")
    stage.ask("POST", f"/sessions/{session}/messages", {"content": f"a {word} in it", "run": False})
    until(lambda: stage.ask("GET", f"/search?q={word}")["items"] or None)  # the index may lag a second
    page.goto(stage.url)
    page.keyboard.press("/")
    page.keyboard.type(word)
    hit = page.get_by_label("Search results").get_by_role("link")
    expect(hit.locator("mark")).to_have_text(word)
    hit.click()
    expect(page.locator(".message.wanted")).to_contain_text(word)


def test_text_typed_while_loading_stays(page: Page, stage: Stage) -> None:
    held: list[Route] = []
    page.route("**/agents", lambda route: held.append(route))
    with page.expect_request("**/agents"):
        page.goto(stage.url)
    box = page.get_by_role("searchbox")
    page.keyboard.press("/")
    page.keyboard.type("wor")
    held[0].continue_()
    expect(page.locator("#filter-agents option").first).to_be_attached()
    page.keyboard.type("ds")
    page.wait_for_url(re.compile("q=words$"))
    expect(box).to_have_value("words")


def test_sessions_load_in_pages_and_only_visible_rows_are_drawn(page: Page, stage: Stage) -> None:
    task, ids = a_task(stage, 70)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".tally")).to_contain_text("50 sessions loaded")
    for _ in range(4):
        page.locator(".scroll").evaluate("box => box.scrollTo(0, box.scrollHeight)")
        page.wait_for_timeout(150)
    expect(page.locator(".tally")).to_have_text("70 sessions")
    expect(page.locator(f"[data-id='{ids[0]}']")).to_be_visible()
    assert page.locator(".rows [role=row]").count() < 60


def test_several_sessions_are_finalized_after_a_preview(page: Page, stage: Stage) -> None:
    task, [one, other, third] = a_task(stage, 3)
    stage.ask("POST", f"/sessions/{third}/finalize", {"outcome": "completed"})
    page.goto(f"{stage.url}/#/sessions?task={task}")
    for session in (one, other, third):
        page.locator(f"[data-id='{session}'] input").check()
    page.get_by_role("button", name="Finalize…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Finalizes 2 sessions; 1 already final")
    dialog.get_by_label("Outcome").select_option("abandoned")
    dialog.get_by_label("Summary").fill("not needed")
    dialog.get_by_role("button", name="Finalize 2 sessions").click()
    expect(page.locator(f"[data-id='{one}']")).to_contain_text("abandoned")
    assert stage.ask("GET", f"/sessions/{other}")["summary"] == "not needed"


def test_several_sessions_are_deleted_after_a_preview(page: Page, stage: Stage) -> None:
    task, [one, other] = a_task(stage, 2)
    stage.create(parent_session_id=one, task_id=task)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    for session in (one, other):
        page.locator(f"[data-id='{session}'] input").check()
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Deletes 3 sessions")
    dialog.get_by_role("button", name="Cancel").click()
    assert len(stage.ask("GET", f"/sessions?task={task}")["items"]) == 3
    page.get_by_role("button", name="Delete…").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator(".rows [role=row]")).to_have_count(0)
    assert stage.ask("GET", f"/sessions?task={task}")["items"] == []


def test_new_session_starts_with_agent_and_prompt(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    expect(page.locator(".pulse.live")).to_be_visible()
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog", name="New session")
    dialog.get_by_label("Agent").fill("echo-agent")
    dialog.get_by_label("Prompt").fill("hello from the page")
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator(".m-assistant")).to_contain_text("Echo Agent Response: hello from the page")


def test_unknown_agent_is_reported_in_the_dialog(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    page.get_by_role("button", name="New session").click()
    dialog = page.get_by_role("dialog", name="New session")
    dialog.get_by_label("Agent").fill("nobody-knows-me")
    dialog.get_by_label("Prompt").fill("hello")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_role("alert")).to_contain_text("nobody-knows-me")


def test_keyboard_selects_and_opens_rows(page: Page, stage: Stage) -> None:
    task, ids = a_task(stage, 3)
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".rows [role=row]")).to_have_count(3)
    for key in "jjx":
        page.keyboard.press(key)
    expect(page.get_by_role("region", name="Selected sessions")).to_contain_text("1 session selected")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#/session/{ids[1]}"))
