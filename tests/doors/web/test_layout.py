"""Layout: what stays in sight, what fits, and what a phone shows."""

from __future__ import annotations

from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.doors.web.scene import a_talk
from tests.doors.web.stage import Stage

PHONE = ViewportSize(width=360, height=740)
CUT = "all => all.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent)"
WRAPPED = "all => all.filter((each) => each.getClientRects().length > 1).map((each) => each.textContent)"


@pytest.fixture(scope="module")
def talk(stage: Stage) -> str:
    """A conversation with every kind of content."""
    return a_talk(stage, f"upgrade-{uuid4()}")  # the stage is shared


def is_in_sight(part: Locator) -> bool:
    return bool(
        part.evaluate(
            "each => { const {top, bottom} = each.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
        )
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_status_phase_and_actions_stay_in_sight(page: Page, stage: Stage, talk: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(f"{stage.url}/#/session/{talk}")
    expect(page.locator(".talk li").last).to_be_visible()
    for top in (0, 100_000):
        page.locator("main").evaluate("(main, top) => main.scrollTo(0, top)", top)
        for part in (".status", ".phase", ".actions button"):
            assert is_in_sight(page.locator(f".top .head {part}").first), (top, part)


def test_names_are_whole_while_there_is_room(page: Page, stage: Stage) -> None:
    page.set_viewport_size({"width": 1440, "height": 800})
    task = f"task-{uuid4().hex[:8]}"
    for name in (f"review-the-release-notes-of-{uuid4().hex[:8]}", f"short-{uuid4().hex[:8]}"):
        stage.create(session_name=name, task_id=task, agent_name="terraform-architect", purpose="approval_workflow")
    page.goto(f"{stage.url}/#/sessions?task={task}")
    expect(page.locator(".rows [role=row]")).to_have_count(2)
    for part in (".c-name > a", ".c-name .purpose", ".c-agent", ".c-task", ".status"):
        assert page.locator(f".rows {part}").evaluate_all(CUT) == [], part


def test_no_column_and_no_header_field_repeats_another(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent", purpose="nightly check")
    stage.ask("POST", f"/sessions/{session}/finalize", {"outcome": "completed"})
    page.goto(f"{stage.url}/#/sessions?name_prefix=&agent=echo-agent")
    row = page.locator(f"[data-id='{session}']")
    expect(row).to_contain_text("nightly check")
    texts = [each for each in row.locator("[role=cell]").all_inner_texts() if each]
    assert sum("completed" in each for each in texts) == 1  # the status, and no state or phase beside it
    assert not any(session[-8:] in each for each in texts[2:])  # the task is the session's own id
    page.goto(f"{stage.url}/#/session/{session}")
    expect(page.locator(".session > .purpose, .top .purpose")).to_have_text("nightly check")
    assert page.locator(".top").inner_text().count("completed") == 1


def test_narrow_phases_have_short_names(page: Page, stage: Stage) -> None:
    session = stage.create(agent_name="echo-agent")
    for phase in ("investigating", "planning", "executing", "validating", "investigating", "planning", "executing"):
        stage.ask("PATCH", f"/sessions/{session}", {"phase": phase})
    page.goto(f"{stage.url}/#/session/{session}")
    try:
        expect(page.locator(".phases li")).to_have_count(8)
    except AssertionError as error:
        titles = page.locator(".phases li").evaluate_all("all => all.map((each) => each.title)")
        log = [
            (entry["number"], entry["at"], entry["data"])
            for entry in stage.ask("GET", f"/sessions/{session}/log")["items"]
        ]
        raise AssertionError(f"{error}\n\nthe page has {titles}\n\nthe log has {log}") from None
    shown = page.locator(".phases li > *:visible")
    clipped = (
        "all => all.filter((each) => each.getBoundingClientRect().right > "
        "each.parentElement.getBoundingClientRect().right + 1).map((each) => each.textContent)"
    )
    assert shown.evaluate_all(clipped) == []
    expect(page.locator(".phases .short:visible").first).to_have_text("init")


def test_phone_folds_filters_names_icons_and_wraps_no_time(page: Page, stage: Stage, talk: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(f"{stage.url}/#/sessions")
    expect(page.locator(".rows [role=row]").first).to_be_visible()
    expect(page.get_by_label("Status", exact=True)).not_to_be_visible()
    page.get_by_role("button", name="Filters").click()
    page.get_by_label("Status", exact=True).select_option("waiting")
    expect(page.get_by_role("button", name="Filters (1)")).to_be_visible()
    names = page.locator("nav li a > span:first-of-type")
    expect(names).to_have_text(["Sessions", "Approvals", "Agents", "Launchers", "Analytics", "Dead letters"])
    for index in range(6):
        expect(names.nth(index)).to_be_visible()
    for place in (
        "sessions",
        "approvals",
        "launchers",
        f"session/{talk}",
        f"session/{talk}?tab=verdict",
        f"session/{talk}?tab=log",
        f"session/{talk}?tab=runs",
        "dead-letters",
    ):
        page.goto(f"{stage.url}/#/{place}")
        expect(page.locator(".loading")).to_have_count(0)
        for chosen in page.locator("[aria-selected=true]:not(#tab-conversation)").all():
            expect(chosen).to_be_in_viewport()
        assert page.locator("main :is(time, .when, .log td:nth-child(2))").evaluate_all(WRAPPED) == [], place


def test_context_is_readable_on_a_phone(page: Page, stage: Stage) -> None:
    session = stage.create()
    stage.ask("PUT", f"/sessions/{session}/context/maintenance_window", {"from": "02:00", "to": "04:00"})
    page.set_viewport_size(PHONE)
    page.goto(f"{stage.url}/#/session/{session}?tab=context")
    value = page.locator(".memory .cell")
    expect(value).to_contain_text("04:00")
    assert value.evaluate("each => each.scrollHeight <= each.clientHeight + 1")
    assert page.locator(".memory").evaluate("each => each.scrollWidth <= each.parentElement.clientWidth + 1")


def test_names_of_sessions_are_whole_on_a_phone(page: Page, stage: Stage) -> None:
    name = f"upgrade-node-{uuid4().hex[:4]}"
    session = stage.run("broken", "do it", session_name=name, mode="async_poll")["session"]["session_id"]
    stage.until_status(session, "run_failed")
    page.set_viewport_size(PHONE)
    page.goto(f"{stage.url}/#/sessions?name_prefix={name}")
    row = page.locator(".rows [role=row]")
    expect(row.get_by_role("button", name="Retry")).to_be_visible()
    whole = "each => each.scrollWidth <= each.clientWidth && each.scrollHeight <= each.clientHeight"
    assert row.locator(".c-name > a").evaluate(whole)
