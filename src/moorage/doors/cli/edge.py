"""The edge: every error becomes one line, one exit code and, if requested, one JSON document.

No command catches Moorage's errors; all of them are handled here. `python -X dev -m moorage …` shows a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from moorage.core.errors import InvalidField, InvalidRequest, MoorageError, StoreUnavailable, edge_of

NO = 1  # the answer is no, or a run failed
INTERRUPTED = 130  # as shells report a process that Ctrl-C ended
READER_LEFT = 141  # as shells report a process that wrote to a closed pipe


class UsageProblem(InvalidRequest):
    """A command line that cannot be parsed."""

    code = "usage"


def run(work: Callable[[], int], arguments: Sequence[str]) -> int:
    """Do the work and return its exit code, or that of its error."""
    _open_streams()
    try:
        return _run(work, arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return READER_LEFT


def _run(work: Callable[[], int], arguments: Sequence[str]) -> int:
    as_json = asks_for_json(arguments)
    try:
        for place, argument in enumerate(arguments, 1):
            if not argument.isascii() and argument.encode("utf-8", "replace").decode() != argument:
                raise InvalidField("argument", f"number {place} is not valid UTF-8; check the terminal's encoding")
        code = work()
        sys.stdout.flush()
        return code
    except MoorageError as error:
        return _tell(error, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()  # the buffer may hold the output that could not be written
        return _tell(StoreUnavailable(f"the system refused ({error}); free some space or check permissions, try again"))
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        way_out = "`moorage doctor` looks for damage, `python -X dev -m moorage …` shows where it comes from"
        unexpected = MoorageError(f"unexpected error ({type(error).__name__}: {error}); {way_out}")
        return _tell(unexpected, as_json=as_json)


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Return whether to answer in JSON, even if the command line cannot be parsed."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end]


def _tell(error: MoorageError, *, as_json: bool = False) -> int:
    from moorage.doors.cli.output import complain, hint, show_json

    complain(at_this_door(error))
    for line in getattr(error, "__notes__", ()):
        hint(line)
    if as_json:
        show_json(error.to_dict())
        sys.stdout.flush()
    return edge_of(error).exit_code


def at_this_door(error: MoorageError) -> str:
    """Return the message of an error in the terms of this command line."""
    from moorage.doors.cli.wording import command_line, with_url

    if error.code == "agent_exists":
        return error.message.replace("or replace it", "or use --replace")
    if error.code != "held_by_another" or "release it" not in error.message:
        return with_url(error.message)
    from moorage.doors.cli.connection import HOLDER, holder

    release = f"release it with `{command_line('release', str(error.facts.get('session_id')))}`"
    told = error.message.replace("release it", release).replace("ask with `queue`", "ask with --queue")
    return told if holder() else f"{told}; the commands of one script share a hold if {HOLDER} names it"


def _open_streams() -> None:
    """Open /dev/null for each standard stream that is closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it stays for as long as the process


def _drop_output() -> None:
    """Point standard output at /dev/null, so that closing it at exit does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
