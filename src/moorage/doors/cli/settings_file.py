"""The host's settings file on disk: read completely, and written completely or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import unified_diff

from moorage.config import replacing
from moorage.core.errors import InvalidRequest
from moorage.doors.cli.settings_text import NOTHING, Unreadable


class InvalidSettings(InvalidRequest):
    """A settings file that cannot be read or written, or that its owner has to fix."""

    def __init__(self, file: str, why: str, *, text: str = "", at: int | None = None) -> None:
        line = None if at is None else text.count("\n", 0, at) + 1
        column = None if at is None else at - text.rfind("\n", 0, at)
        place = "" if at is None else f", line {line}, column {column}"
        super().__init__(f"{file}{place}: {why}; nothing was changed", file=file, line=line, column=column)


class SettingsFile:
    """One settings file; with `brings_folder`, its folder is created and removed with it."""

    def __init__(self, path: str, *, brings_folder: bool) -> None:
        self.path, self.brings_folder = os.path.abspath(path), brings_folder

    def read(self) -> str:
        """Return the text, or NOTHING if there is no file. Raise InvalidSettings."""
        try:
            with open(self.path, "rb") as file:
                return file.read().decode()
        except FileNotFoundError:
            return NOTHING
        except UnicodeDecodeError as error:
            raise InvalidSettings(self.path, f"byte {error.start} is not valid UTF-8") from None
        except OSError as error:
            raise InvalidSettings(self.path, f"it cannot be read ({error.strerror})") from None

    def write(self, text: str) -> None:
        """Replace the file with the text; NOTHING removes the file. Raise InvalidSettings."""
        target = os.path.realpath(self.path)  # a link stays; its target is written
        try:
            if text == NOTHING:
                self._remove(target)
            else:
                self._replace(target, text.encode())
        except UnicodeEncodeError:
            raise InvalidSettings(self.path, "the path of a command is not valid UTF-8, and JSON has to be") from None
        except OSError as error:
            raise InvalidSettings(self.path, f"it cannot be written ({error.strerror})") from None

    def _remove(self, target: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(target)
        if self.brings_folder:
            with suppress(OSError):  # the folder is not empty
                os.rmdir(os.path.dirname(target))

    def _replace(self, target: str, data: bytes) -> None:
        if self.brings_folder:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        status = os.stat(target) if os.path.exists(target) else None
        mode = status.st_mode & 0o7777 if status else 0o666
        with replacing(target, mode=mode) as file:
            if status:
                with suppress(PermissionError):  # only root can give a file away
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
                os.fchmod(file.fileno(), mode)
            file.write(data)
        _sync_folder(os.path.dirname(target))


def _sync_folder(path: str) -> None:
    """Sync the folder, so that the renamed file survives a power failure."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Changing it ------------------------------------------------------------------------------------


class SettingsEdit:
    """A prepared edit of a settings file. Raises InvalidSettings if the file cannot be edited."""

    def __init__(self, file: SettingsFile, edit: Callable[[str], str]) -> None:
        self.file, self.before = file, file.read()
        with in_place(file, self.before):
            self.after = edit(self.before)

    @property
    def changes(self) -> bool:
        """Return whether the edit changes anything."""
        return self.before != self.after

    @property
    def diff(self) -> str:
        """Return the change as a unified diff; empty if there is none."""
        sides = [("", "/dev/null") if text == NOTHING else (text, self.file.path) for text in (self.before, self.after)]
        (before, old), (after, new) = sides
        return "".join(_marked(unified_diff(_lines(before), _lines(after), old, new)))

    def make(self) -> None:
        """Write the file if it changes."""
        if self.changes:
            self.file.write(self.after)


@contextmanager
def in_place(file: SettingsFile, text: str) -> Iterator[None]:
    """Name the file, the line and the column of the error."""
    try:
        yield
    except Unreadable as problem:
        raise InvalidSettings(file.path, problem.why, text=text, at=problem.at) from None


def _lines(text: str) -> list[str]:
    """Return the lines with their ends; only a line feed ends one."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _marked(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a diff, with the usual remark after a line without a line feed."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
