"""Processes: their identity, whether they live, and what they started.

A process id alone is ambiguous: the system uses it again. It is unique together with the start time of its process and
the boot that this time counts from. Where the system does not tell (no /proc), the id has to do.
"""

from __future__ import annotations

import os
import signal
import time

from moorage.clocks import boot_id as boot_id  # part of this module's face

PDEATHSIG, CHILD_SUBREAPER = 1, 36  # numbers of prctl(2)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine sleeps, as leases do


def clock() -> float:
    """Seconds since some instant, the same for every process of this boot."""
    return time.clock_gettime(_CLOCK)


def slept() -> float:
    """Seconds that the machine has slept since its boot, where the system tells."""
    return clock() - time.monotonic()


def start_time(pid: int) -> int | None:
    """Return when a process was started, in ticks of this boot; None if there is none or the system does not tell."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Whether that very process still runs; one that only waits to be reaped does not."""
    fields = _stat(pid)
    if fields is not None:
        return fields[0] not in ("Z", "X") and started in (None, int(fields[19]))
    return not os.path.isdir("/proc/self") and _answers(pid)


def end_exactly(pid: int, started: int | None, number: int = signal.SIGKILL) -> bool:
    """Send a signal to that very process and no other; False if it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        handle = None
    try:
        if not is_alive(pid, started):
            return False
        if handle is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def children() -> list[int]:
    """This process's children, those that wait to be reaped among them."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return [pid for pid in process_ids() if (fields := _stat(pid)) is not None and int(fields[1]) == me]


def marked(mark: str) -> list[int]:
    """Processes of this user that have MOORAGE_MARK with this value in the environment they began with."""
    wanted = f"MOORAGE_MARK={mark}".encode()
    return [pid for pid in process_ids() if wanted in _environment(pid) and is_alive(pid, None)]


def process_ids() -> list[int]:
    """Return all process ids, as far as the system tells."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def adopt_orphans() -> None:
    """Become the parent of whatever our descendants leave behind, where the system can do that."""
    _prctl(CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the system kill this process when the one that started it is gone, where it can do that."""
    _prctl(PDEATHSIG, signal.SIGKILL)


def load() -> None:
    """Get ready for the two functions above, for callers that have no time to lose later."""
    _libc()


def _libc() -> object:
    global _loaded
    if _loaded is None:
        import ctypes

        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded


_loaded: object = None


def _prctl(option: int, value: int) -> None:
    try:
        _libc().prctl(option, value, 0, 0, 0)  # type: ignore[attr-defined]  # what the C library has
    except (OSError, AttributeError):
        return  # not Linux


def _stat(pid: int) -> list[str] | None:
    """The fields of a process from its state on; its name before them may contain anything."""
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
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
