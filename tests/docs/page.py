"""Markdown pages, read as lists of examples.

An example is a fenced code block. A comment on the line before it may say how it is to be run:

    <!-- example: skip, because it needs a second machine -->     not at all, for that reason
    <!-- example: exit 4 -->                                      its last command ends with status 4

In a `console` example a line beginning with `$ ` is a command, a line beginning with `> ` after it (or any line after
a backslash) continues it, and what follows is the output it must have. A command without output may print anything.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL_LANGUAGES = ("bash", "console", "sh")

_FENCE = re.compile(r"(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})[ ]*(?P<info>[^`]*)")
_HIDDEN_FENCE = re.compile(r"[ ]*(>|[-*+]|\d+[.)])[ ]+.*(```|~~~)")
_COMMENT = re.compile(r"[ ]*<!--\s*example:\s*(?P<says>.*?)\s*-->\s*")
_SKIP = re.compile(r"skip, because (?P<reason>\S.*)")
_EXIT = re.compile(r"exit (?P<status>\d+)")

Lines = Iterator[tuple[int, str]]


class PageError(Exception):
    """A page whose examples cannot be read; the message begins with its name and line."""


@dataclass(frozen=True)
class Example:
    """One fenced code block and how it is to be run."""

    page: Path
    line: int  # of its first line of code
    language: str
    source: str
    skip_reason: str | None = None
    exit_status: int = 0

    @property
    def where(self) -> str:
        return place(self.page, self.line)


@dataclass(frozen=True)
class Command:
    """One command of a console example, and the output it must have, if the page shows one."""

    line: int
    source: str
    output: str | None


def place(page: Path, line: int) -> str:
    """Name a line of a page as an editor would open it."""
    return f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page.name}:{line}"


def examples_of(page: Path) -> list[Example]:
    """Return the examples of `page` from top to bottom.

    Raises:
        PageError: a block never ends, hides in a quotation or list marker, or has a comment that says nothing known.
    """
    examples, comment = [], None
    lines: Lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if fence := _FENCE.fullmatch(line):
            source = _block(lines, fence, place(page, number))
            language = fence["info"].partition(" ")[0].strip()
            examples.append(_example(page, number + 1, language, source, comment or ""))
            comment = None
        elif says := _COMMENT.fullmatch(line):
            comment = says["says"]
        elif _HIDDEN_FENCE.match(line):
            raise PageError(f"{place(page, number)}: begin a code block on a line of its own, outside of a quotation")
        elif line.strip() and comment is not None:
            raise PageError(f"{place(page, number)}: the comment before this line belongs to no example")
    if comment is not None:
        raise PageError(f"{page.name}: the last comment belongs to no example")
    return examples


def commands_of(example: Example) -> list[Command]:
    """Return the commands of a console example with the line, the source and the output of each."""
    commands: list[Command] = []
    lines = example.source.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    if any(line.strip() for line in lines[: starts[0] if starts else None]):
        raise PageError(f"{example.where}: a console example begins with a command, that is with `$ `")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        commands.append(_command(example.line + start, lines[start:end]))
    return commands


def _block(lines: Lines, fence: re.Match[str], where: str) -> str:
    """Take lines up to the fence that closes the block, without the indentation of the one that opened it."""
    closing = re.compile(rf"[ ]*{fence['fence'][0]}{{{len(fence['fence'])},}}\s*")
    indent = len(fence["indent"])
    block: list[str] = []
    for _, line in lines:
        if closing.fullmatch(line):
            return "".join(f"{line}\n" for line in block)
        block.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
    raise PageError(f"{where}: this block never ends")


def _example(page: Path, line: int, language: str, source: str, comment: str) -> Example:
    example = Example(page, line, language, source)
    if not comment:
        return example
    if skip := _SKIP.fullmatch(comment):
        return Example(page, line, language, source, skip_reason=skip["reason"])
    if comment.startswith("skip"):
        raise PageError(f"{example.where}: to skip an example say why: `skip, because …`")
    status = _EXIT.fullmatch(comment)
    if not status or language not in SHELL_LANGUAGES:
        raise PageError(f"{example.where}: `example: {comment}` says nothing about a `{language}` example")
    return Example(page, line, language, source, exit_status=int(status["status"]))


def _command(line: int, lines: list[str]) -> Command:
    length = 1
    while length < len(lines) and (lines[length].startswith("> ") or lines[length - 1].endswith("\\")):
        length += 1
    source = "\n".join([lines[0].removeprefix("$ "), *(line.removeprefix("> ") for line in lines[1:length])])
    output = "\n".join(lines[length:]).rstrip()
    return Command(line, source, output or None)
