"""The output of commands: JSON for programs, lines for pipes, sentences for people.

Control characters of stored text are made visible: a message must not control the reader's terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import msgspec

from moorage.core.codec import as_text, encode
from moorage.core.render import to_json
from moorage.doors.cli.terminal import columns, paint, width_of, wrapped

NOTHING = "-"


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(line: str) -> None:
    print(printable(line))


def hint(line: str) -> None:
    """Print one line about the next step on standard error."""
    _add(paint(folded(printable(line), sys.stderr), "dim", stream=sys.stderr))


def note(line: str) -> None:
    """Print a hint if standard error is a terminal."""
    if sys.stderr.isatty():
        hint(line)


def complain(line: str) -> None:
    """Print one line about an error on standard error."""
    text = folded(f"moorage: {printable(line)}", sys.stderr)
    _add(text.replace("moorage:", paint("moorage:", "red", stream=sys.stderr), 1))


def _add(text: str) -> None:
    """Print on standard error, after what standard output has: a file or a pipe may get both."""
    with suppress(BrokenPipeError):  # the last flush tells of it
        sys.stdout.flush()
    print(text, file=sys.stderr)


def folded(line: str, stream: IO[str]) -> str:
    """Return a line wrapped for a terminal at words, with the command at its end in one piece."""
    if not stream.isatty() or width_of(line) <= columns():
        return line
    told, _, command = line.rpartition(": moorage ")
    before, _, label = told.rpartition(". ")
    if label and "`" not in command:
        return (f"{wrapped(before, 0)}.\n" if before else "") + f"{label}: moorage {command}"
    return wrapped(line, 0)


def warn_of_secrets(paths: Sequence[str]) -> None:
    """List the values that were not stored because their key names a secret."""
    if paths:
        complain(f"warning: kept as [redacted], because its key names a secret: {', '.join(paths)}")


def show_json(value: Any) -> None:
    """Print one JSON document: compact for programs, indented for people."""
    document = encode(_encodable(to_json(value)))
    if is_terminal():
        document = msgspec.json.format(document, indent=2)
    sys.stdout.flush()
    sys.stdout.buffer.write(document + b"\n")  # JSON is UTF-8, whatever the terminal's encoding is


def _encodable(value: Any) -> Any:
    """Replace text that is not valid Unicode; only an argument that an error quotes can have any."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def page_of(items: Sequence[Any], cursor: str | None = None) -> dict[str, Any]:
    """Return a list as every door shows it."""
    return {"items": items, "next": cursor}


# Text -------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Make control characters visible; keep line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def fields(*values: object) -> str:
    """Return values as one line of a pipe: separated by tabs, a dash for a missing value."""
    return "\t".join(NOTHING if value in (None, "") else " ".join(str(value).split()) for value in values)


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Return names and values in two columns, without empty values."""
    known = _known(pairs)
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name:<{width}}  {_fact(value)}" for name, value in known)


def worded(pairs: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """Yield names and values for people on a terminal: names as words, yes and no, grouped digits."""
    for name, value in pairs:
        if not is_terminal():
            yield name, value
            continue
        words = name.replace("_", " ").replace(".", ": ")
        told = ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else value
        yield words[:1].upper() + words[1:], told


def flat(answer: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield names and values; those of an inner object under `outer.inner`."""
    for name, value in answer.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", each) for part, each in value.items())
        else:
            yield name, value


def _known(pairs: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    return [(name, value) for name, value in pairs if value not in (None, "", [], {}, ())]


def _fact(value: object) -> str:
    return as_text(value).replace("\n", "\n    ")


def groups(parts: Mapping[str, Iterable[tuple[str, object]]]) -> str:
    """Return groups of facts, each under its title; a group without facts is left out."""
    known = {title: _known(pairs) for title, pairs in parts.items()}
    width = max((len(name) for pairs in known.values() for name, _ in pairs), default=0)
    lines = []
    for title, pairs in known.items():
        if pairs:
            lines += ["", paint(title, "bold")]
            lines += [f"  {name:<{width}}  {printable(_fact(value))}" for name, value in pairs]
    return "\n".join(lines)


# Progress -----------------------------------------------------------------------------------------


@contextmanager
def counting(doing: str) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that shows how many are done; None without a terminal."""
    with stating(doing) as state:
        yield None if state is None else lambda done: state(f"{doing} … {done}")


@contextmanager
def stating(doing: str) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows a status line; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{doing} …") as status:
        yield status.update


@contextmanager
def reading(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that shows how much of the total is read; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
