"""The frame around all views: navigation, keys, theme, connection, key entry."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage, staged, until

VIEWS = ("Sessions", "Approvals", "Agents", "Launchers", "Analytics", "Set aside")


def test_every_view_is_reached_from_the_keyboard(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    for key, title in zip("saglnx", VIEWS, strict=True):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("nav [aria-current=page]")).to_contain_text(title)
        expect(page).to_have_title(re.compile(title))


def test_a_question_mark_shows_the_keys(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    expect(page.locator(".pulse.live")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Show these keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_theme_follows_the_system_until_the_viewer_chooses(page: Page, stage: Stage) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(stage.url)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("t")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_page_says_that_the_server_went_away_and_goes_on_when_it_is_back(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        page.goto(stage.url)
        expect(page.locator(".pulse.live")).to_be_visible()
        stage.stop()
        expect(page.get_by_role("alert")).to_contain_text("has not been heard of")
        stage.start()
        stage.create(session_name="made-meanwhile")
        expect(page.locator(".pulse.live")).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator(".toasts")).to_contain_text("Back again")


def test_where_keys_are_on_the_page_asks_for_one_and_keeps_it_for_the_tab(page: Page, folder: Path) -> None:
    with staged(folder) as stage:
        key = stage.ask("POST", "/keys", {"scopes": ["admin"]})["text"]
        until(lambda: httpx2.get(f"{stage.url}/sessions").status_code == 401)  # within a second, wherever it was made
        page.goto(stage.url)
        dialog = page.get_by_role("dialog", name="This server asks for a key")
        dialog.get_by_label("Key").fill("moor_wrong_wrong")
        dialog.get_by_role("button", name="Use this key").click()
        expect(dialog).to_contain_text("does not take this key")
        dialog.get_by_label("Key").fill(key)
        dialog.get_by_role("button", name="Use this key").click()
        expect(page.locator(".pulse.live")).to_be_visible()
        page.reload()
        expect(page.locator(".pulse.live")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)
        assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_at_phone_width_nothing_sticks_out(page: Page, stage: Stage) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(stage.url)
    for name in ("sessions", "approvals", "agents", "launchers", "analytics", "set-aside"):
        page.goto(f"{stage.url}/#/{name}")
        expect(page.locator("nav [aria-current=page]")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
