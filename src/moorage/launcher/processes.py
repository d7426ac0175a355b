"""Processes: their identity, whether they run, and their descendants.

A process id alone is ambiguous, because the system reuses it. It is unique together with the start time of its process
and the boot that this time counts from. Where the system does not report these (no /proc), the id alone is used.
"""

from __future__ import annotations

import os
import signal
import time
from functools import cache

from moorage.clocks import boot_id as boot_id  # part of this module's interface

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PDEATHSIG, CHILD_SUBREAPER = 1, 36  # numbers of prctl(2)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # continues while the machine sleeps, as leases do


def clock() -> float:
    """Return seconds since a fixed instant, the same for every process of this boot."""
    return time.clock_gettime(_CLOCK)


def slept() -> float:
    """Return the seconds that the machine has slept since its boot, if the system reports them."""
    return clock() - time.monotonic()


def start_time(pid: int) -> int | None:
    """Return a process's start time in ticks of this boot; None if there is none or the system does not report it."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Return whether exactly this process still runs; a zombie does not."""
    fields = _stat(pid)
    if fields is not None:
        return fields[0] not in ("Z", "X") and started in (None, int(fields[19]))
    return not os.path.isdir("/proc/self") and _answers(pid)


def end_exactly(pid: int, started: int | None) -> bool:
    """Kill exactly this process; return False if it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        handle = None
    try:
        if not is_alive(pid, started):
            return False
        if handle is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def children() -> list[int]:
    """Return this process's children, including zombies."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [pid for pid in process_ids() if (fields := _stat(pid)) is not None and int(fields[1]) == me]


def marked(mark: str) -> list[int]:
    """Return processes of this user that started with MOORAGE_MARK set to this value."""
    wanted = f"MOORAGE_MARK={mark}".encode()
    return [pid for pid in process_ids() if wanted in _environment(pid) and is_alive(pid, None)]


def process_ids() -> list[int]:
    """Return all process ids that the system reports."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, where the system supports it."""
    _prctl(CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends, where it supports that."""
    _prctl(PDEATHSIG, signal.SIGKILL)


@cache
def libc() -> Any:
    """Return the C library. A process that must be fast later loads it first."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    try:
        libc().prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        return  # not Linux


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process from its state on; the name before them may contain any character."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except OSError:
        return None


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
