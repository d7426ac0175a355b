"""May this work be picked up? The question and how its answer is told."""

from __future__ import annotations

from moorage.core.errors import NotFound
from moorage.core.policy import Verdict
from moorage.doors.cli.output import facts, is_terminal, say, show_json
from moorage.sync import Moorage

NO = 1


def judge(moor: Moorage, ref: str, *, holder: str | None = None) -> Verdict:
    """The verdict on a session named by id, name or prefix; one that is not there is a no, not an error."""
    try:
        found: str = moor.resolve(ref)
    except NotFound:
        found = ref
    verdict: Verdict = moor.should_resume(found, holder=holder)
    return verdict


def tell(verdict: Verdict, *, as_json: bool) -> int:
    """Print the verdict; its exit code."""
    if as_json:
        show_json(verdict)
    else:
        say("\t".join(("yes" if verdict else "no", verdict.reason, verdict.session_id or "-")))
        if is_terminal():
            say(facts((name, _seen(criterion.value, criterion.ok)) for name, criterion in verdict.criteria.items()))
    return 0 if verdict else NO


def _seen(value: object, ok: bool) -> str:
    return f"{'ok ' if ok else 'NO '} {value}"
