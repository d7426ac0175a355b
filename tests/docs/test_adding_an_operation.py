"""docs/architecture.md lists the files in which an operation stands: no others speak of renaming a session."""

from __future__ import annotations

import re
from pathlib import Path

import moorage
from tests.docs.page import ROOT

MOST = 12
SOURCE = Path(moorage.__file__).parent
PLACES = re.compile(
    r"\bRENAMED\b|\brename_session\b|\brenameSession\b|(?:Moorage|moor|session)\.rename\b|def rename\("
    r"|\"sessions: .*\brename\b|Operation\(\"rename\""
)
OF_EVERY_CHANGE = ("stores", "testing", "static")  # stores write any change of a session; the others are no doors


def listed() -> set[str]:
    """Return the files of the table."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Adding an operation")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([\w./]+)` \|", section, re.M))


def speaking() -> set[str]:
    """Return the files that speak of renaming a session."""
    files = [path for kind in ("*.py", "*.graphql") for path in SOURCE.rglob(kind)]
    names = {str(path.relative_to(SOURCE)): path for path in files}
    return {
        name
        for name, path in names.items()
        if not set(Path(name).parts) & set(OF_EVERY_CHANGE) and PLACES.search(path.read_text())
    }


def test_an_operation_stands_in_twelve_files_at_most() -> None:
    assert speaking() == listed()
    assert len(listed()) <= MOST
