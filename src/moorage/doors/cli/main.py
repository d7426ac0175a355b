"""The `moorage` command: parsing and an exit code.

`should-resume` is asked before every delegation and `mcp` is started for every conversation, so their
plain forms do without the machinery of the other commands; see `quick`.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    arguments = sys.argv[1:]
    try:
        if "should-resume" in arguments:
            from moorage.doors.cli.quick import answer_and_leave

            answer_and_leave(arguments)  # comes back only if the question is not a plain one
        if "mcp" in arguments:
            from moorage.doors.cli.quick import speak_and_leave

            speak_and_leave(arguments)  # likewise
        from moorage.doors.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:  # while modules are loading; later, `edge` sees to it
        return 130
