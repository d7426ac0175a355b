"""A family on the page: as a tree, over time, and while it changes."""

from __future__ import annotations

from uuid import uuid4

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.doors.web.scene import _runs_below
from tests.doors.web.stage import Stage, until

PHONE = ViewportSize(width=360, height=740)


@pytest.fixture
def root(stage: Stage) -> str:
    return stage.create(agent_name="echo-agent", session_name=f"root-{uuid4().hex[:8]}")


def test_new_child_appears_under_its_parent(page: Page, stage: Stage, root: str) -> None:
    page.goto(f"{stage.url}/#/family/{root}")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    child = stage.run("slow", "for ever", mode="async_poll", parent=root)["session"]["session_id"]
    item = page.locator(f"[role=treeitem][data-id='{child}']")
    expect(item).to_contain_text("running")
    expect(item).to_have_attribute("aria-level", "2")
    stage.ask("POST", f"/sessions/{child}/stop", {"tree": True})
    expect(item).to_contain_text("idle")


def test_deletion_elsewhere_is_reported(page: Page, stage: Stage, root: str) -> None:
    child = stage.create(parent_session_id=root)
    stage.create(parent_session_id=child)
    page.goto(f"{stage.url}/#/family/{child}")
    expect(page.get_by_role("treeitem")).to_have_count(3)
    stage.ask("DELETE", f"/sessions/{child}")
    expect(page.get_by_role("treeitem")).to_have_count(1)
    stage.create(parent_session_id=root)
    expect(page.get_by_role("treeitem")).to_have_count(2)
    stage.ask("DELETE", f"/sessions/{root}")
    expect(page.get_by_role("heading", name="This family was deleted")).to_be_visible()
    expect(page.locator(".toasts")).to_contain_text("was deleted elsewhere")
    page.get_by_role("link", name="See the other sessions").click()
    expect(page.get_by_role("heading", name="Sessions")).to_be_visible()


def test_branches_fold_and_arrow_keys_move(page: Page, stage: Stage, root: str) -> None:
    child = stage.create(parent_session_id=root, session_name=f"c-{uuid4().hex[:8]}")
    for _ in range(2):
        stage.create(parent_session_id=child)
    page.goto(f"{stage.url}/#/family/{root}")
    expect(page.get_by_role("treeitem")).to_have_count(4)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(page.locator(f"[data-id='{child}']")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(2)
    expect(page.get_by_role("button", name="Unfold 2")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("treeitem")).to_have_count(4)
    page.keyboard.press("Enter")
    expect(page.locator("article.session h1")).to_contain_text("c-")


def test_time_line_shows_lanes_runs_and_callbacks(page: Page, stage: Stage, root: str) -> None:
    for agent in ("echo-agent", "broken"):
        stage.run(agent, "do it", parent=root, mode="async_callback")
    until(lambda: all(run["callback"] for run in _runs_below(stage, root)) or None)
    page.goto(f"{stage.url}/#/family/{root}?tab=time")
    expect(page.locator(".lane")).to_have_count(3)
    expect(page.locator(".run.b-completed").first).to_be_attached()
    expect(page.locator(".run.b-failed")).to_have_count(1)
    expect(page.locator(".arrow")).to_have_count(2)


def test_names_of_lanes_end_before_the_bars_on_a_phone(page: Page, stage: Stage) -> None:
    root = stage.run("echo-agent", "hello", session_name=f"release-of-the-{uuid4()}")["session"]["session_id"]
    stage.create(parent_session_id=stage.create(parent_session_id=root))
    page.set_viewport_size(PHONE)
    page.goto(f"{stage.url}/#/family/{root}?tab=time")
    bars = page.locator(".run rect")  # on a busy machine there is another one, for the wait in the queue
    expect(bars.first).to_be_attached()
    bar = min(bars.evaluate_all("bars => bars.map((bar) => bar.getBoundingClientRect().left)"))
    for name in page.locator(".lanes .name").all():
        assert name.evaluate("name => name.getBoundingClientRect().right") < bar, name.text_content()
