"""Agents on the page: the list, the editor with errors of the server, and templates for MCP."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.doors.web.stage import Stage, staged, until
from tests.doors.web.test_axe import violations

WRONG = '[agent]\nname = "{name}"\nkind = "command"\ncommand = "cat"\n'
NASTY = {
    "name": "n",
    "description": 'quotes " and \\ and \x7f and \u202e and """',
    "system_prompt": 'two\nlines \\ with """ and a quote at the end"',
    "env": {"A.B": "x", "EMPTY": "", "LINES": "a\n\nb\n"},
    "command": ["sh", "-c", 'echo "$1"\n'],
}


@pytest.fixture
def name(stage: Stage) -> Iterator[str]:
    name = f"mine-{uuid4().hex[:8]}"
    yield name
    if name in definitions(stage):
        stage.ask("DELETE", f"/agents/{name}")


def definitions(stage: Stage) -> dict[str, Any]:
    items = stage.ask("GET", "/definitions")["items"]
    return {each["definition"]["name"]: each["definition"] for each in items}


def editor(page: Page) -> Locator:
    return page.get_by_label("Definition, as TOML")


def test_error_has_its_line_and_nothing_is_saved(page: Page, stage: Stage, name: str) -> None:
    page.goto(f"{stage.url}/#/agents")
    page.get_by_role("button", name="New agent").click()
    editor(page).fill(WRONG.format(name=name))
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 4:")
    expect(page.get_by_role("alert")).to_contain_text("command must be a list of words")
    expect(page.locator(".editor .wrong")).to_have_text("4")
    expect(editor(page)).to_be_focused()
    assert page.evaluate("getSelection().toString()") == 'command = "cat"'
    assert violations(page) == []
    assert name not in definitions(stage)
    page.keyboard.type('command = ["cat"]')
    page.keyboard.press("Control+s")
    expect(page.locator(".toasts")).to_contain_text(f"{name} is saved")
    expect(page.get_by_role("region", name=name)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    answer = stage.run(name, "as it was said", mode="sync")
    assert answer["result"] == "as it was said"


def test_errors_appear_while_typing(page: Page, stage: Stage, name: str) -> None:
    right = f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["cat"]\n'
    stage.ask("POST", "/agents", {"definition": right})
    page.goto(f"{stage.url}/#/agents?name={name}")
    expect(editor(page)).to_have_value(right)
    editor(page).press("Control+End")
    page.keyboard.type("kind = 1")
    expect(page.get_by_role("alert")).to_contain_text("Line 5:")
    assert page.evaluate("getSelection().toString()") == "", "the selection does not disturb typing"
    for _ in "kind = 1":
        page.keyboard.press("Backspace")
    page.keyboard.type("# fine")
    expect(page.get_by_role("status").filter(has_text="Valid.")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert (stage.folder / "home" / "agents" / f"{name}.toml").read_text() == right, "nothing is saved yet"


def test_change_keeps_other_fields(page: Page, stage: Stage, name: str) -> None:
    text = f'[agent]\nname = "{name}"  # why\nkind = "command"\ncommand = ["cat"]\n[agent.env]\nTOKEN = "secret"\n'
    stage.ask("POST", "/agents", {"definition": text})
    page.goto(f"{stage.url}/#/agents?name={name}")
    expect(editor(page)).to_have_value(text)
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    page.get_by_text("templates for MCP").click()
    page.get_by_role("button", name="Add to this definition").click()
    page.get_by_label("Agents", exact=True).get_by_role("link").filter(has_text="echo-agent").click()
    expect(page.get_by_role("region", name="echo-agent")).to_contain_text("It comes with Moorage")
    page.get_by_label("Agents", exact=True).get_by_role("link").filter(has_text=name).click()
    expect(editor(page)).to_have_value(re.compile("mcp_servers"))  # what was typed is still there
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toasts")).to_contain_text("is saved")
    assert (stage.folder / "home" / "agents" / f"{name}.toml").read_text().startswith(text)
    kept = definitions(stage)[name]
    assert kept["env"] == {"TOKEN": "secret"}
    server = kept["mcp_servers"]["moorage"]
    assert (server["url"], server["headers"]) == (
        f"{stage.url}/mcp",
        {"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"},
    )


def test_redacted_variables_cannot_be_lost(page: Page, folder: Path) -> None:
    text = '[agent]\nname = "mine"\nkind = "command"\ncommand = ["cat"]\n[agent.env]\nTOKEN = "secret"\n'
    with staged(folder) as stage:
        stage.ask("POST", "/agents", {"definition": text})
        key = stage.ask("POST", "/keys", {"scopes": ["read"]})["text"]
        until(lambda: httpx2.get(f"{stage.url}/agents").status_code == 401)
        page.goto(f"{stage.url}/#/agents?name=mine")
        page.get_by_role("dialog").get_by_label("Key").fill(key)
        page.get_by_role("button", name="Use this key").click()
        expect(editor(page)).to_have_value(re.compile("redacted"))
        expect(page.locator("main")).to_contain_text("saving would lose them")
        editor(page).press("End")
        page.keyboard.type("# changed")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        page.keyboard.press("Control+s")
        expect(page.locator(".toasts")).to_contain_text("may not see")
    assert "secret" in (folder / "home" / "agents" / "mine.toml").read_text()


def test_removal_is_confirmed_and_undone(page: Page, stage: Stage, name: str) -> None:
    stage.ask("POST", "/agents", {"definition": f'[agent]\nname = "{name}"\nkind = "command"\ncommand = ["cat"]\n'})
    page.goto(f"{stage.url}/#/agents?name={name}")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_label("Agents", exact=True)).not_to_contain_text(name)
    assert name not in definitions(stage)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_label("Agents", exact=True)).to_contain_text(name)
    assert definitions(stage)[name]["command"] == ["cat"]


def test_one_click_copies_an_mcp_template(page: Page, stage: Stage) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{stage.url}/#/agents?name=echo-agent")
    page.get_by_text("templates for MCP").click()
    page.get_by_role("button", name="Copy").nth(1).click()
    expect(page.locator(".toasts")).to_contain_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText().then(JSON.parse)")
    server = copied["mcpServers"]["moorage"]
    assert server["headers"] == {"X-Agent-Session-Name": "${AGENT_SESSION_NAME}"}
    assert server["url"] == f"{stage.url}/mcp"


def test_agent_is_asked_from_its_page(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/#/agents?name=echo-agent")
    page.get_by_role("button", name="Ask it").click()
    dialog = page.get_by_role("dialog", name="New session")
    expect(dialog.get_by_label("Agent")).to_have_value("echo-agent")
    expect(dialog.get_by_label("Prompt")).to_be_focused()
    page.keyboard.type("hear me")
    dialog.get_by_role("button", name="Start").click()
    expect(page.locator("main")).to_contain_text("Echo Agent Response: hear me")


def test_editor_writes_equivalent_toml(page: Page, stage: Stage) -> None:
    page.goto(stage.url)
    written = page.evaluate("nasty => import('/web/toml.js').then(it => it.toToml('agent', nasty))", NASTY)
    assert tomllib.loads(written) == {"agent": NASTY}
