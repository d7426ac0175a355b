"""Dead letters on the page: callbacks that an agent failed to process, sent again once it can."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage, until


def define(stage: Stage, name: str, function: str) -> None:
    text = f'[agent]\nname = "{name}"\nkind = "python"\nfunction = "tempers:{function}"\n'
    stage.ask("POST", "/agents", {"definition": text, "replace": True})


def dead_letters(stage: Stage, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.ask("GET", f"/inbox?session={session}&dead_letters=true")["items"]
    return found


def test_undelivered_callback_is_sent_again(page: Page, stage: Stage) -> None:
    name = f"lead-{uuid4().hex[:8]}"
    define(stage, name, "talker")
    parent = stage.run(name, "Begin", session_name=name, mode="sync")["session"]["session_id"]
    define(stage, name, "broken")
    page.goto(f"{stage.url}/#/dead-letters?kind=callback")
    expect(page.locator(".pulse.live")).to_be_visible()
    stage.run("echo-agent", "Look at <b>eu</b>", parent=parent, mode="async_callback")
    card = page.get_by_label(f"callback for {name}")
    expect(card).to_contain_text("Echo Agent Response: Look at <b>eu</b>")  # it appears without a reload, as text
    expect(card).to_contain_text("3 turns failed")
    expect(card).to_contain_text("the disk is full")
    expect(page.locator("nav [aria-current=page] .count")).to_be_visible()
    define(stage, name, "talker")
    card.get_by_role("button", name="Send again").click()
    expect(page.locator(".toasts")).to_contain_text("waits for the next turn")
    expect(card).to_have_count(0)
    until(lambda: "All three steps" in str(stage.ask("GET", f"/sessions/{parent}/messages?last=1")["items"]) or None)
    assert dead_letters(stage, parent) == []
    stage.ask("DELETE", f"/agents/{name}")


def test_dead_letters_are_sent_again_by_key_or_all_at_once(page: Page, stage: Stage) -> None:
    name = f"worker-{uuid4().hex[:8]}"
    define(stage, name, "broken")
    sessions = [stage.run(name, f"Job {index}", mode="async_poll")["session"]["session_id"] for index in range(3)]
    until(lambda: all(dead_letters(stage, each) for each in sessions) or None)
    define(stage, name, "talker")
    page.goto(f"{stage.url}/#/dead-letters?kind=message")
    cards = page.get_by_label(f"message for {name}")
    expect(cards).to_have_count(3)
    cards.filter(has_text="Job 1").get_by_text("3 turns failed").click()
    expect(cards.filter(has_text="Job 1")).to_have_class(re.compile("cursor"))
    page.keyboard.press("s")
    expect(cards).to_have_count(2)
    until(lambda: not dead_letters(stage, sessions[1]) or None)
    expect(cards).to_contain_text(["Job 0", "Job 2"])
    page.get_by_role("button", name="Send all again").click()
    expect(page.get_by_role("dialog")).to_contain_text("again")
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    expect(page.locator(".toasts")).to_contain_text("sent again")
    expect(cards).to_have_count(0)
    until(lambda: not any(dead_letters(stage, each) for each in sessions) or None)
    stage.ask("DELETE", f"/agents/{name}")
