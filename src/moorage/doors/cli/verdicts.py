"""Whether work may be resumed: ask, and print the verdict."""

from __future__ import annotations

from moorage.core.errors import NotFound
from moorage.core.policy import Criterion, Verdict
from moorage.doors.cli.edge import NO
from moorage.doors.cli.output import facts, is_terminal, say, show_json
from moorage.sync import Moorage


def judge(moor: Moorage, ref: str, *, holder: str | None = None) -> Verdict:
    """Return the verdict on a session by id, name or prefix; a missing session is a "no", not an error."""
    try:
        found = moor.resolve(ref)
    except NotFound:
        found = ref
    return moor.should_resume(found, holder=holder)


def tell(verdict: Verdict, *, as_json: bool) -> int:
    if as_json:
        show_json(verdict)
    elif is_terminal():
        say("Yes, it may be resumed." if verdict else f"No: {_words(verdict.reason)}.")
        say(facts((f"  {_words(name)}", _criterion(each)) for name, each in verdict.criteria.items()))
    else:
        say("\t".join(("yes" if verdict else "no", verdict.reason, verdict.session_id or "-")))
    return 0 if verdict else NO


def _words(code: str) -> str:
    return code.replace("_", " ")


def _criterion(found: Criterion) -> str:
    shown = found.value
    if isinstance(shown, bool) or shown is None:
        shown = {True: "yes", False: "no", None: "-"}[shown]
    elif isinstance(shown, float):
        shown = f"{shown:.0f}"
    return f"{'ok' if found.ok else 'NO'}  {shown}"
