"""The programs of added agents: copied along with their definition file, or checked where they will be looked up."""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
from collections.abc import Iterator, Sequence

from moorage.core.agent import AgentDefinition, AgentKind
from moorage.core.codec import encode_text
from moorage.core.errors import Conflict

WITH_COMMAND = (AgentKind.COMMAND, AgentKind.ACP)
SCRIPTS = (".py", ".sh", ".js", ".mjs", ".ts", ".rb", ".pl")  # an argument with such an ending names a program


def program_of(agent: AgentDefinition) -> str | None:
    """Return the file that an agent's definition names: its program, or the module of its function."""
    if agent.kind in WITH_COMMAND:
        return agent.command[0]
    if agent.kind is AgentKind.PYTHON and agent.function:
        return agent.function.partition(":")[0].replace(".", os.sep) + ".py"
    return None


def beside(agent: AgentDefinition, folder: str) -> str | None:
    """Return the agent's program if it stands beside its file, as a path below that folder."""
    program = program_of(agent)
    if program is None or os.path.isabs(program) or os.pardir in program.split(os.sep):
        return None
    return program if os.path.isfile(os.path.join(folder, program)) else None


def check_free(program: str, source: str, target: str, *, replace: bool) -> None:
    """Raise Conflict if another file would be overwritten."""
    ours, theirs = os.path.join(source, program), os.path.join(target, program)
    if not replace and os.path.exists(theirs) and not filecmp.cmp(ours, theirs, shallow=False):
        raise Conflict(f"there is another {program} in {target}; rename yours, or add it with --replace", file=theirs)


def copy(program: str, source: str, target: str) -> None:
    """Copy a program with its permissions, whole or not at all."""
    ours, theirs = os.path.join(source, program), os.path.join(target, program)
    if os.path.exists(theirs) and os.path.samefile(ours, theirs):
        return
    os.makedirs(os.path.dirname(theirs), exist_ok=True)
    part = f"{theirs}.{os.getpid()}.part"
    shutil.copy2(ours, part)
    os.replace(part, theirs)


def warnings(agent: AgentDefinition, folder: str, target: str) -> Iterator[str]:
    """Yield the files that will be missing when the agent starts, where they are looked up, and a remedy."""
    if agent.kind not in WITH_COMMAND:
        return
    program, *arguments = agent.command
    places = [*os.environ.get("PATH", "").split(os.pathsep), target, os.path.dirname(sys.executable)]
    if shutil.which(os.path.expanduser(program), path=os.pathsep.join(places)) is None:
        told = f"looked in PATH, {folder}, {target} and {os.path.dirname(sys.executable)}"
        yield f"there is no program {program!r} that can be executed ({told}); write its absolute path in `command`"
    if agent.cwd is None:
        for argument in arguments:
            yield from _warnings_about(argument, agent.command, folder)


def _warnings_about(argument: str, command: Sequence[str], folder: str) -> Iterator[str]:
    """Yield a warning if an argument is a file that the agent will not find in the folder it works in."""
    path = os.path.abspath(os.path.join(folder, argument))
    if os.path.isabs(argument):
        return
    if os.path.isfile(path):
        absolute = encode_text([path if word == argument else word for word in command])
        yield (
            f"{argument!r} is looked for in the folder that the agent works in, not beside its file; "
            f"write: command = {absolute}"
        )
    elif argument.endswith(SCRIPTS) and not os.path.exists(argument):
        yield (
            f"there is no {argument!r} (looked in {os.path.dirname(path)} and {os.getcwd()}); the agent looks for it "
            "in the folder that it works in, so write its absolute path in `command`"
        )
