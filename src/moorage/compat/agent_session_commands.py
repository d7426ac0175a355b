"""The commands of `python -m moorage.agent_session`.

Exit codes: 0 done, 1 refused or a "no", 2 a wrong request, 3 no such session.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from moorage.compat import agent_session
from moorage.core.codec import decode
from moorage.core.errors import MoorageError, edge_of
from moorage.core.session import OUTCOMES, WORKING_PHASES, Session
from moorage.sync import Moorage

DONE, NO, NOT_FOUND = 0, 1, 3
Command = Callable[[Moorage, argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = _parser().parse_args(arguments)
    command: Command = args.command
    try:
        code = command(agent_session.connection(), args)
        sys.stdout.flush()
    except MoorageError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return edge_of(error).exit_code if error.family in ("invalid", "not_found") else NO
    except BrokenPipeError:  # whoever reads us has seen enough; do not fail again when Python flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


# Commands ---------------------------------------------------------------------------------------


def _create(moor: Moorage, args: argparse.Namespace) -> int:
    print(agent_session.create(moor, args.agent, args.purpose, args.metadata))
    return DONE


def _update(moor: Moorage, args: argparse.Namespace) -> int:
    agent_session.update(moor, args.agent_id, args.phase, args.metadata, args.error)
    changes = [
        f"phase {args.phase}" if args.phase else "",
        f"metadata {', '.join(args.metadata)}" if args.metadata else "",
        "error counted" if args.error is not None else "",
    ]
    print(f"Updated {args.agent_id}: {'; '.join(filter(None, changes)) or 'nothing to change'}")
    return DONE


def _get(moor: Moorage, args: argparse.Namespace) -> int:
    print(json.dumps(agent_session.read(moor, args.agent_id), indent=2, ensure_ascii=False))
    return DONE


def _list(moor: Moorage, args: argparse.Namespace) -> int:
    for session in agent_session.each_session(moor, args.active_only, args.agent):
        print(_line(session))
    return DONE


def _should_resume(moor: Moorage, args: argparse.Namespace) -> int:
    verdict = agent_session.verdict(moor, args.agent_id)
    print("true" if verdict.decision else "false")
    if verdict.decision:
        return DONE
    print(f"{verdict.reason}: {args.agent_id}", file=sys.stderr)
    return NO if verdict.criteria["exists"].ok else NOT_FOUND


def _finalize(moor: Moorage, args: argparse.Namespace) -> int:
    agent_session.finalize(moor, args.agent_id, args.outcome, args.summary)
    print(f"Finalized {args.agent_id}: {args.outcome}")
    return DONE


def _cleanup(moor: Moorage, args: argparse.Namespace) -> int:
    removed = agent_session.cleanup(moor, args.hours)
    print(f"Removed {removed} {'session' if removed == 1 else 'sessions'}")
    return DONE


def _line(session: Session) -> str:
    """A session on one line, its id first."""
    purpose = " ".join((session.purpose or "").split())
    return f"{session.session_id}  {session.phase.value:<13}  {session.agent_name or '-'}  {purpose}".rstrip()


# Arguments --------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moorage.agent_session",
        description="Sessions that survive approval pauses and several turns.",
        epilog="Exit codes: 0 done, 1 refused or a 'no', 2 a wrong request, 3 no such session.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_create(commands)
    _add_update(commands)
    _command(commands, "get", _get, "print a session as JSON")
    _command(commands, "should-resume", _should_resume, "print true or false; exit 1 if false")
    _add_list(commands)
    _add_finalize(commands)
    _add_cleanup(commands)
    return parser


def _add_create(commands: Any) -> None:
    create = _command(commands, "create", _create, "open a session and print its id", with_id=False)
    create.add_argument("--agent", metavar="NAME", help="the agent that works in it")
    create.add_argument("--purpose", metavar="TEXT", help="what it is for")
    create.add_argument("--metadata", metavar="JSON", type=_json_object, help="a JSON object to keep with it")


def _add_update(commands: Any) -> None:
    update = _command(commands, "update", _update, "change phase or metadata, count an error")
    update.add_argument("--phase", choices=[phase.value for phase in WORKING_PHASES])
    update.add_argument("--metadata", metavar="JSON", type=_json_object, help="a JSON object to add")
    update.add_argument("--error", metavar="TEXT", help="what went wrong")


def _add_list(commands: Any) -> None:
    listing = _command(commands, "list", _list, "print one line per session, newest first", with_id=False)
    listing.add_argument("--active-only", action="store_true", help="only those not finalized")
    listing.add_argument("--agent", metavar="NAME", help="only those of this agent")


def _add_finalize(commands: Any) -> None:
    finalize = _command(commands, "finalize", _finalize, "close a session")
    finalize.add_argument("outcome", choices=OUTCOMES)
    finalize.add_argument("--summary", metavar="TEXT", help="what came of it")


def _add_cleanup(commands: Any) -> None:
    cleanup = _command(commands, "cleanup", _cleanup, "delete what had no activity for long", with_id=False)
    cleanup.add_argument("--hours", metavar="N", type=float, default=24.0, help="how long (default: 24)")


def _command(commands: Any, name: str, command: Command, text: str, *, with_id: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(command=command)
    if with_id:
        parser.add_argument("agent_id", metavar="ID", help="a session's id")
    return parser


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = decode(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('not a JSON object; write it like \'{"task_id": "T001"}\'')
    return value
