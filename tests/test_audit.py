"""`./dev audit` never calls packages clean that were not audited."""

from __future__ import annotations

import json
from typing import Any

from scripts.audit import CLEAN, UNKNOWN, VULNERABLE, verdict

FINE = {"name": "attrs", "version": "25.1.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
SKIPPED = {"name": "msgspec", "skip_reason": "Dependency not found on PyPI and could not be audited: msgspec (0.18.0)"}
OURS = {"name": "moorage", "skip_reason": "Dependency not found on PyPI and could not be audited: moorage (0.1.0)"}


def judged(*packages: dict[str, Any]) -> tuple[int, str]:
    code, lines = verdict(json.dumps({"dependencies": packages, "fixes": []}))
    return code, "\n".join(lines)


def test_audited_packages_without_vulnerabilities_are_clean() -> None:
    assert judged(FINE, OURS) == (CLEAN, "1 of 1 packages audited, 0 vulnerabilities")


def test_vulnerability_is_shown_with_the_version_that_fixes_it() -> None:
    code, said = judged(FINE, BAD, SKIPPED)
    assert code == VULNERABLE
    assert "jinja2 2.10: PYSEC-2019-217, fixed in 2.10.1" in said


def test_package_that_was_skipped_is_not_clean() -> None:
    code, said = judged(FINE, SKIPPED)
    assert code == UNKNOWN
    assert "1 of 2 packages audited" in said
    assert "NOT AUDITED" in said
    assert "msgspec" in said


def test_report_without_packages_is_not_clean() -> None:
    assert judged()[0] == UNKNOWN
    assert judged(OURS)[0] == UNKNOWN


def test_unreachable_database_is_not_clean() -> None:
    code, lines = verdict("ConnectionError: no answer")
    assert code == UNKNOWN
    assert "NOT AUDITED" in lines[0]
    assert "no answer" in lines[0]
