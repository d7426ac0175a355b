"""The page shows stored data as text: markup, marks of writing direction, lines of a megabyte."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage

MARKUP = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'><svg onload='window.harmed=1'> "
    "[click](javascript:window.harmed=1) ![p](data:text/html,<script>1</script>) <a href='javascript:1'>b</a>"
)
BIDI = "safe\u202egnp.exe\u202c \u2066isolated\u2069 and \u200fright"
TABS = ("Conversation", "Runs", "Context", "Checkpoints", "Log", "Resume?", "Facts")


@pytest.fixture(scope="module")
def hostile(stage: Stage) -> str:
    """A session with hostile text in every field."""
    session = stage.create(
        agent_name="<b>agent</b>", task_id="<i>task</i>", purpose=MARKUP, metadata={"<u>k</u>": MARKUP}
    )
    parts = [
        {"type": "text", "text": MARKUP},
        {"type": "tool_call", "id": "<1>", "name": "<b>tool</b>", "input": {"a": MARKUP}},
        {"type": "tool_result", "call_id": "<1>", "content": MARKUP},
        {"type": "<script>", "x": MARKUP},
        {"type": "image", "url": "javascript:window.harmed=1", "alt": MARKUP},
    ]
    for content in (
        MARKUP,
        BIDI,
        "x" * 1_000_000,
        f"```{MARKUP}\n{MARKUP}\n```\n# {MARKUP}\n> {MARKUP}\n| {MARKUP} |\n|---|",
    ):
        stage.ask("POST", f"/sessions/{session}/messages", {"content": content, "run": False})
    stage.ask("POST", f"/sessions/{session}/messages", {"role": "assistant", "content": parts, "run": False})
    stage.ask("PATCH", f"/sessions/{session}", {"error": MARKUP, "phase": "planning"})
    stage.ask("PUT", f"/sessions/{session}/context/markup", MARKUP)
    stage.ask("POST", f"/sessions/{session}/checkpoints", {"checkpoint": {"a": MARKUP}})
    stage.ask("POST", f"/sessions/{session}/approvals", {"question": MARKUP, "plan": {"p": MARKUP}})
    return session


def test_stored_markup_is_shown_and_never_run(page: Page, stage: Stage, hostile: str) -> None:
    page.goto(f"{stage.url}/#/sessions?agent=%3Cb%3Eagent%3C/b%3E")
    expect(page.locator(f"[data-id='{hostile}']")).to_contain_text("<b>agent</b>")
    page.goto(f"{stage.url}/#/session/{hostile}")
    expect(page.locator(".message").first).to_contain_text("<script>window.harmed = 1</script>")
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        expect(page.locator("#panel > *").first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("window.harmed") is None, tab
        inside = "#panel :is(script, iframe, object, [onerror], [onload], img[src='x'], a[href^='javascript'])"
        assert page.locator(inside).count() == 0, tab


def test_marks_of_writing_direction_are_visible(page: Page, stage: Stage, hostile: str) -> None:
    page.goto(f"{stage.url}/#/session/{hostile}")
    expect(page.locator(".message").nth(1)).to_contain_text("safe⟨U+202E⟩gnp.exe⟨U+202C⟩")
    assert "\u202e" not in page.locator("main").inner_text()


def test_line_of_a_megabyte_is_shown_in_pieces(page: Page, stage: Stage, hostile: str) -> None:
    page.goto(f"{stage.url}/#/session/{hostile}")
    long = page.locator(".message .long")
    expect(long).to_contain_text("of 976.6 KB")
    assert len(long.inner_text()) < 30_000
    long.get_by_role("button", name="Show more").click()
    expect(long.locator(".piece")).to_have_count(6)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
