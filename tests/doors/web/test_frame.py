"""The frame of all views: navigation, dialogs, keys, theme, connection, key entry."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from playwright.sync_api import Page, Route, expect

from tests.doors.web.stage import Stage, staged, until

VIEWS = ("Sessions", "Approvals", "Agents", "Launchers", "Analytics", "Dead letters")


def test_keyboard_opens_every_view(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    for key, title in zip("saglnx", VIEWS, strict=True):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("nav [aria-current=page]")).to_contain_text(title)
        expect(page).to_have_title(re.compile(title))


def test_question_mark_shows_the_keys(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    expect(page.locator(".pulse.live")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Show these keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_navigation_closes_dialogs(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/launchers")
    page.goto(f"{stage.url}/#/sessions")
    page.get_by_role("button", name="New session").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Launchers")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_theme_follows_the_system_until_the_viewer_chooses(page: Page, stage: Stage) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(stage.url)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("t")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_page_reports_a_lost_server_and_reconnects(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        page.goto(stage.url)
        expect(page.locator(".pulse.live")).to_be_visible()
        stage.stop()
        expect(page.get_by_role("alert")).to_contain_text("Connection lost")
        stage.start()
        stage.create(session_name="made-meanwhile")
        expect(page.locator(".pulse.live")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator(".toasts")).to_contain_text("Reconnected")


def test_change_before_the_stream_opens_is_shown(page: Page, stage: Stage) -> None:
    held: list[Route] = []
    page.route("**/events?*", lambda route: held.append(route))
    session = stage.create(agent_name="echo-agent")
    with page.expect_response(lambda response: "/log?" in response.url):  # without the stream, views load later
        page.goto(f"{stage.url}/#/session/{session}")
    expect(page.locator(".now .phase")).to_have_text("initializing")
    stage.ask("PATCH", f"/sessions/{session}", {"phase": "planning"})
    held[0].continue_()
    expect(page.locator(".now .phase")).to_have_text("planning")
    expect(page.locator(".phases li")).to_have_count(2)


def test_page_asks_for_a_key_and_stores_it_for_the_tab(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        key = stage.ask("POST", "/keys", {"scopes": ["admin"]})["text"]
        until(lambda: httpx2.get(f"{stage.url}/sessions").status_code == 401)  # keys apply within a second
        page.goto(stage.url)
        dialog = page.get_by_role("dialog", name="This server requires a key")
        dialog.get_by_label("Key").fill("moor_wrong_wrong")
        dialog.get_by_role("button", name="Use this key").click()
        expect(dialog).to_contain_text("does not accept this key")
        dialog.get_by_label("Key").fill(key)
        dialog.get_by_role("button", name="Use this key").click()
        expect(page.locator(".pulse.live")).to_be_visible()
        page.reload()
        expect(page.locator(".pulse.live")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_nothing_sticks_out_at_phone_width(page: Page, stage: Stage) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(stage.url)
    for name in ("sessions", "approvals", "agents", "launchers", "analytics", "dead-letters"):
        page.goto(f"{stage.url}/#/{name}")
        expect(page.locator("nav [aria-current=page]")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
