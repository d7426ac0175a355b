"""A program that the Claude Agent SDK takes for `claude`: it answers without a model, from what it has been told.

It reads the transcript that it resumes, as the real one does, and mirrors the lines of each turn. To "How is Genoa?" it
answers with a call of a tool and its result; to anything else with all that it has heard.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Genoa"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}


def install(folder: Path) -> Path:
    """Return the path of a program for `ClaudeAgentOptions(cli_path=...)`."""
    program = folder / "claude"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    program.chmod(0o700)
    return program


def main(arguments: list[str]) -> None:
    """Answer each prompt of standard input."""
    session_id = _option(arguments, "--resume") or str(uuid4())
    transcript = _transcript(session_id)
    prompt = _option(arguments, "--system-prompt") or ""
    heard = [prompt, *transcript.read_text().splitlines()] if transcript.exists() else [prompt]
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "control_request":
            _say({"type": "control_response", "response": _granted(frame)})
        elif frame["type"] == "user":
            _answer(frame["message"], heard, transcript, session_id)


def _answer(asked: dict[str, Any], heard: list[str], transcript: Path, session_id: str) -> None:
    texts: list[tuple[str, Any]] = [("assistant", [{"type": "text", "text": "\n".join(heard)}])]
    if asked["content"] == "How is Genoa?":
        spoken = [{"type": "text", "text": "Sunny."}]
        texts = [("assistant", [CALL]), ("user", [RESULT]), ("assistant", spoken)]
    messages = [asked, *({"role": role, "content": content} for role, content in texts)]
    lines = [_line(message, session_id) for message in messages]
    for message in messages[1:]:
        _say({"type": message["role"], "session_id": session_id, "message": {"model": "scripted", **message}})
    _say({"type": "transcript_mirror", "filePath": str(transcript), "entries": lines})
    counts = {"duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    _say({"type": "result", "subtype": "success", **counts, "session_id": session_id})


def _transcript(session_id: str) -> Path:
    from claude_agent_sdk import project_key_for_directory

    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    return folder / str(project_key_for_directory()) / f"{session_id}.jsonl"


def _line(message: dict[str, Any], session_id: str) -> dict[str, Any]:
    return {"type": message["role"], "uuid": str(uuid4()), "sessionId": session_id, "message": message}


def _granted(frame: dict[str, Any]) -> dict[str, Any]:
    return {"subtype": "success", "request_id": frame["request_id"], "response": {}}


def _option(arguments: list[str], name: str) -> str | None:
    words = [word for argument in arguments for word in argument.split("=", 1)]
    return next((value for option, value in pairwise(words) if option == name), None)


def _say(frame: dict[str, Any]) -> None:
    print(json.dumps(frame), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
