"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cached_property


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since the machine was started, without those it slept."""
        return time.monotonic()

    @cached_property
    def boot(self) -> str:
        """Which boot of which machine this is; the machine alone where the system tells no more."""
        import os

        return boot_id() or os.uname().nodename


def boot_id() -> str | None:
    """Which boot of this machine this is."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
