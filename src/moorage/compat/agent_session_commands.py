"""The commands of `python -m moorage.agent_session`.

Exit codes: 0 done, 1 refused or a negative answer, 2 an invalid request, 3 no such session.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from moorage.compat.agent_session import AgentSession, connection, each_session, verdict
from moorage.core.codec import decode
from moorage.core.errors import MoorageError, edge_of
from moorage.core.session import OUTCOMES, WORKING_PHASES

DONE, NO, NOT_FOUND = 0, 1, 3


class _Commands(AgentSession):
    """The sessions of the default store; refusals raise."""

    def _refused(self, error: Exception) -> None:
        raise error

    def create(self, args: argparse.Namespace) -> None:
        print(self.create_session(args.agent, args.purpose, args.metadata))

    def update(self, args: argparse.Namespace) -> None:
        self.update_state(args.agent_id, args.phase, args.metadata, args.error)
        changes = [
            f"phase {args.phase}" if args.phase else "",
            f"metadata {', '.join(args.metadata)}" if args.metadata else "",
            "error counted" if args.error is not None else "",
        ]
        print(f"Updated {args.agent_id}: {'; '.join(filter(None, changes)) or 'nothing to change'}")

    def get(self, args: argparse.Namespace) -> None:
        print(json.dumps(self.get_session(args.agent_id), indent=2, ensure_ascii=False))

    def list(self, args: argparse.Namespace) -> None:
        for session in each_session(connection(), args.active_only, args.agent):
            purpose = " ".join((session.purpose or "").split())
            line = f"{session.session_id}  {session.phase.value:<13}  {session.agent_name or '-'}  {purpose}"
            print(line.rstrip())

    def judge(self, args: argparse.Namespace) -> int:
        judged = verdict(connection(), args.agent_id)
        print("true" if judged.decision else "false")
        if judged.decision:
            return DONE
        print(f"{judged.reason}: {args.agent_id}", file=sys.stderr)
        return NO if judged.criteria["exists"].ok else NOT_FOUND

    def finalize(self, args: argparse.Namespace) -> None:
        self.finalize_session(args.agent_id, args.outcome, args.summary)
        print(f"Finalized {args.agent_id}: {args.outcome}")

    def cleanup(self, args: argparse.Namespace) -> None:
        removed = self.cleanup_old_sessions(args.hours)
        print(f"Removed {removed} {'session' if removed == 1 else 'sessions'}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = _parser().parse_args(arguments)
    try:
        code: int | None = args.command(args)
        sys.stdout.flush()
    except MoorageError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return edge_of(error).exit_code if error.family in ("invalid", "not_found") else NO
    except BrokenPipeError:  # the reader has closed the pipe; do not fail again when Python flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code or DONE


# Arguments --------------------------------------------------------------------------------------


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = decode(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('not a JSON object; write it like \'{"task_id": "T001"}\'')
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moorage.agent_session",
        description="Sessions that survive approval pauses and several turns.",
        epilog="Exit codes: 0 done, 1 refused or a 'no', 2 a wrong request, 3 no such session.",
        allow_abbrev=False,
    )
    commands, run = parser.add_subparsers(metavar="COMMAND", required=True), _Commands()

    def add(name: str, command: Callable[[argparse.Namespace], int | None], text: str, *arguments: Any) -> None:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(command=command)
        for word, options in arguments:
            added.add_argument(word, **options)

    session = ("agent_id", {"metavar": "ID", "help": "a session's id"})
    of_agent = {"metavar": "NAME", "help": "the agent that works in it"}
    add(
        *("create", run.create, "open a session and print its id"),
        ("--agent", of_agent),
        ("--purpose", {"metavar": "TEXT", "help": "what it is for"}),
        ("--metadata", {"metavar": "JSON", "type": _json_object, "help": "a JSON object to keep with it"}),
    )
    add(
        *("update", run.update, "change phase or metadata, count an error"),
        session,
        ("--phase", {"choices": [phase.value for phase in WORKING_PHASES]}),
        ("--metadata", {"metavar": "JSON", "type": _json_object, "help": "a JSON object to add"}),
        ("--error", {"metavar": "TEXT", "help": "what went wrong"}),
    )
    add("get", run.get, "print a session as JSON", session)
    add("should-resume", run.judge, "print true or false; exit 1 if false", session)
    add(
        *("list", run.list, "print one line per session, newest first"),
        ("--active-only", {"action": "store_true", "help": "only those not finalized"}),
        ("--agent", {"metavar": "NAME", "help": "only those of this agent"}),
    )
    summary = ("--summary", {"metavar": "TEXT", "help": "what came of it"})
    add("finalize", run.finalize, "close a session", session, ("outcome", {"choices": OUTCOMES}), summary)
    hours = {"metavar": "N", "type": float, "default": 24.0, "help": "how long (default: 24)"}
    add("cleanup", run.cleanup, "delete what had no activity for long", ("--hours", hours))
    return parser
