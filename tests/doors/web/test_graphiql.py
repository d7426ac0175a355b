"""GraphiQL at /graphql works by eye, keyboard and screen reader."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.doors.web.stage import Stage
from tests.doors.web.test_axe import AXE

# The part of an editor that scrolls takes no focus; the text area beside it does, and scrolls it.
RUN = "axe.run(document, {resultTypes: ['violations'], rules: {'scrollable-region-focusable': {enabled: false}}})"
EDITORS = ("Query", "Variables", "Headers", "Result")


def findings(page: Page) -> list[str]:
    """Return all findings of axe."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for each in page.evaluate(RUN)["violations"]
        for node in each["nodes"]
    ]


def open_graphiql(page: Page, stage: Stage) -> None:
    page.goto(f"{stage.url}/graphql")
    expect(page.get_by_role("textbox", name="Query")).to_be_attached()
    expect(page.locator(".graphiql-query-editor .cm-property").first).to_be_visible()


def test_page_has_one_heading_and_its_editors_have_names(page: Page, stage: Stage) -> None:
    open_graphiql(page, stage)
    expect(page.get_by_role("heading", level=1)).to_have_text(["Moorage: GraphQL"])
    names = page.locator("textarea").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert names == list(EDITORS)
    page.get_by_role("button", name="Headers").click()
    page.get_by_role("textbox", name="Headers").press_sequentially("x")
    expect(page.locator(".graphiql-editor-tool .graphiql-editor").nth(1)).to_contain_text("x")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, stage: Stage, theme: str) -> None:
    stage.create()  # without an agent, so that the result has texts and null
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    open_graphiql(page, stage)
    found = {"at first": findings(page)}
    page.get_by_role("textbox", name="Query").press("Control+Enter")
    expect(page.locator(".result-window")).to_contain_text("agentSessions")
    found["with a result"] = findings(page)
    page.get_by_role("button", name="Show Documentation Explorer").click()
    expect(page.locator(".graphiql-doc-explorer")).to_contain_text("Query")
    found["with the documentation"] = findings(page)
    assert {name: each for name, each in found.items() if each} == {}


def test_page_without_scripts_names_its_needs(page: Page, stage: Stage) -> None:
    page.route("**/graphql/static/*.js", lambda route: route.abort())
    page.goto(f"{stage.url}/graphql")
    expect(page.get_by_role("main")).to_contain_text("it needs JavaScript")
    assert findings(page) == []
