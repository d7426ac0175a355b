#!/usr/bin/env python3
"""Look for known vulnerabilities of dependencies, and write the wheel's bill of materials: `./dev audit`.

pip-audit asks PyPI about every distribution in `.venv`: Moorage's dependencies, those of its extras, and the tools for
developers. The exit code is 0 if all of them were audited and none has a known vulnerability, 1 if one has, and 2 if
one could not be audited. pip-audit itself succeeds then, even if it could audit nothing at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts import sbom

ROOT = Path(__file__).resolve().parents[1]
BILL = ROOT / "build" / "moorage.cdx.json"
CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
PATIENCE = 900.0


def main(python: str) -> int:
    """Audit the packages of that Python, write the bill of materials, and return the exit code."""
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(json.dumps(sbom.document(ROOT), indent=2) + "\n", encoding="utf-8")
    print(f"bill of materials: {BILL.relative_to(ROOT)}", flush=True)
    code, lines = verdict(asked(python))
    print(*lines, sep="\n", flush=True)
    return code


def asked(python: str) -> str:
    """Return pip-audit's report about the packages of that Python; its last line of error instead if it failed."""
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    command = [sys.executable, "-m", "pip_audit", "--path", packages, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return done.stdout or (done.stderr.strip().splitlines() or [""])[-1]


def verdict(report: str) -> tuple[int, list[str]]:
    """Return the exit code for a report of pip-audit, and the lines to show."""
    try:
        every: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except ValueError:
        return UNKNOWN, [f"NOT AUDITED: pip-audit gave no report; is the vulnerability database reachable? {report}"]
    others = [each for each in every if each["name"] != "moorage"]
    skipped = [each["name"] for each in others if "skip_reason" in each]
    found = [f"{each['name']} {each['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'no version'}"
             for each in others for bug in each.get("vulns", ())]  # fmt: skip
    lines = [*found, f"{len(others) - len(skipped)} of {len(others)} packages audited, {len(found)} vulnerabilities"]
    if skipped or not others:
        shown = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
        lines.append(f"NOT AUDITED: the vulnerability database says nothing about {len(skipped)} packages ({shown}).")
        lines.append("If that is all of them, it cannot be reached from here: run this where PyPI answers.")
    return VULNERABLE if found else UNKNOWN if skipped or not others else CLEAN, lines


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
