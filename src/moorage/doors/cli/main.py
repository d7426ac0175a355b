"""The `moorage` command: parsing and an exit code.

`should-resume SESSION` and `mcp`, with `--json` and `--url` at most, run without click: `should-resume` runs before
every delegation and takes 32 ms instead of 56. Any other command line goes to `app`, which has the same commands with
all of their options.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

PlainArguments = tuple[list[str], str | None, bool]  # the words, the URL, whether JSON is wanted


def main() -> int:
    """Run the command line of this process and return its exit code."""
    arguments = sys.argv[1:]
    try:
        if "should-resume" in arguments or "mcp" in arguments:
            run_if_plain(arguments)
        from moorage.doors.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:  # while modules are loading; later, `edge` handles it
        return 130


def run_if_plain(arguments: Sequence[str]) -> None:
    """Run a plain command line and end the process; return if the command line is not plain."""
    plain = plain_call(arguments)
    if plain is None:
        return
    words, url, as_json = plain
    if words == ["mcp"] and not as_json:
        _serve_mcp(url, arguments)
    elif len(words) == 2 and words[0] == "should-resume":
        _judge(words[1], url, as_json, arguments)


def plain_call(arguments: Sequence[str]) -> PlainArguments | None:
    """Return the words and the shared options of a command line; None if it has any other option."""
    words: list[str] = []
    url, as_json, rest = None, False, iter(arguments)
    for argument in rest:
        if argument == "--json":
            as_json = True
        elif argument == "--url" or argument.startswith("--url="):
            url = argument.removeprefix("--url=") if "=" in argument else next(rest, None)
            if url is None:
                return None
        elif argument.startswith("-"):
            return None
        else:
            words.append(argument)
    return words, url, as_json


def _judge(ref: str, url: str | None, as_json: bool, arguments: Sequence[str]) -> None:
    import os

    from moorage.doors.start import start_short_lived

    start_short_lived()
    from moorage.doors.cli import edge

    def answer() -> int:
        from moorage.doors.cli.connection import connect
        from moorage.doors.cli.verdicts import judge, tell

        with connect(url) as moor:
            verdict = judge(moor, ref)
        return tell(verdict, as_json=as_json)

    code = edge.run(answer, arguments)
    sys.stderr.flush()
    os._exit(code)  # everything is closed and flushed: shutting the interpreter down would cost another 8 ms


def _serve_mcp(url: str | None, arguments: Sequence[str]) -> None:
    from moorage.doors.start import load_msgspec

    load_msgspec()
    from moorage.doors.cli import edge
    from moorage.doors.mcp import stdio

    code = edge.run(lambda: stdio.run(url), arguments)
    sys.stderr.flush()
    sys.exit(code)
