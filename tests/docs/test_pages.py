"""Pages are short, link to existing places, and have a place in the site."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.docs.page import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
MOST_LINES = 300
MOST_LINES_OF_README = 80

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)


def test_no_page_is_longer_than_300_lines() -> None:
    lengths = {page: len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}
    assert {page.name: length for page, length in lengths.items() if length > MOST_LINES} == {}


def test_readme_fits_on_a_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_README


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert [broken for page in PAGES for broken in broken_links(page)] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "adr"]
    assert sorted(navigated(site()["nav"])) == sorted(str(page.relative_to(DOCS)) for page in pages)


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted((DOCS / "adr").glob("*.md")) if f"(adr/{page.name})" not in index] == []


def site() -> dict[str, object]:
    """Return mkdocs.yml."""
    settings: dict[str, object] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return settings


def navigated(part: object) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    match part:
        case str():
            yield part
        case list():
            for each in part:
                yield from navigated(each)
        case dict():
            for each in part.values():
                yield from navigated(each)


def broken_links(page: Path) -> Iterator[str]:
    """Yield the relative links of a page whose file or heading does not exist."""
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield f"{page.relative_to(ROOT)}: {link}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)).strip().lower().replace(" ", "-")
        for text in headings
    }
