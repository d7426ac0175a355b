"""The quick way: `should-resume SESSION`, with `--json` and `--url`, and `mcp`, in a fraction of the time.

Anything else is left to the full command line, which knows the same commands with all of
their options.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "should-resume"


class Question:
    """A plain question: which session, in which store, answered in which form."""

    __slots__ = ("as_json", "ref", "url")

    def __init__(self, ref: str, url: str | None, as_json: bool) -> None:
        self.ref, self.url, self.as_json = ref, url, as_json


def answer_and_leave(arguments: Sequence[str]) -> None:
    """Answer a plain question and end the process; return if it is not a plain one."""
    question = plain_question(arguments)
    if question is None:
        return
    import os

    from moorage.doors.start import start_lean

    start_lean()
    from moorage.doors.cli import edge

    code = edge.run(lambda: _answer(question), arguments)
    sys.stderr.flush()
    os._exit(code)  # everything is closed and flushed: taking the interpreter apart would cost another 8 ms


def speak_and_leave(arguments: Sequence[str]) -> None:
    """Speak MCP until the input ends, and end the process; return if something else is asked."""
    from moorage.doors.start import start_lean

    start_lean(stays=True)
    from moorage.doors.mcp import stdio

    plain = stdio.plain_call(arguments)
    if plain is None:
        return
    from moorage.doors.cli import edge

    code = edge.run(lambda: stdio.run(*plain), arguments)
    sys.stderr.flush()
    sys.exit(code)


def plain_question(arguments: Sequence[str]) -> Question | None:
    """The question, or None if something else is asked."""
    words: list[str] = []
    url, as_json = None, False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--json":
            as_json = True
        elif argument == "--url":
            url = next(rest, None)
            if url is None:
                return None
        elif argument.startswith("--url="):
            url = argument.removeprefix("--url=")
        elif argument.startswith("-"):
            return None
        else:
            words.append(argument)
    return Question(words[1], url, as_json) if len(words) == 2 and words[0] == COMMAND else None


def _answer(question: Question) -> int:
    from moorage.doors.cli.connection import connect
    from moorage.doors.cli.verdicts import judge, tell

    with connect(question.url) as moor:
        verdict = judge(moor, question.ref)
    return tell(verdict, as_json=question.as_json)
