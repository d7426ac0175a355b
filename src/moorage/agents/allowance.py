"""The time limits of an agent, inside the launcher or under a supervisor. Reads no clock: callers pass instants."""

from __future__ import annotations

TIMED_OUT, IDLE_TIMEOUT = "timed_out", "idle_timeout"


class Allowance:
    """Wall time and idle time; both are paused while the agent waits."""

    def __init__(self, timeout: float | None, idle_timeout: float | None, now: float) -> None:
        self._timeout, self._idle_timeout = timeout, idle_timeout
        self._began = self._heard = now
        self._paused_at: float | None = None
        self._waits: set[str] = set()

    def heard(self, now: float) -> None:
        """Record output of the agent."""
        self._heard = now

    def wait_for(self, what: str, now: float) -> None:
        """Pause the limits: the agent begins to wait."""
        if not self._waits:
            self._paused_at = now
        self._waits.add(what)

    def go_on(self, what: str, now: float) -> None:
        """Resume the limits unless the agent waits for something else."""
        self._waits.discard(what)
        if self._waits or self._paused_at is None:
            return
        self._began += now - self._paused_at
        self._heard = now
        self._paused_at = None

    def slept(self, seconds: float, now: float) -> None:
        """Subtract a sleep of the machine; an agent that waits loses no time anyway."""
        if not self._waits:
            self._began += seconds
            self._heard = min(now, self._heard + seconds)

    def is_used_up(self, now: float) -> tuple[str, str] | None:
        """Return the reason to end the agent, as a code and as a sentence, if there is one."""
        if self._waits:
            return None
        if self._timeout is not None and now - self._began >= self._timeout:
            return TIMED_OUT, f"it took longer than {self._timeout:g} seconds"
        if self._idle_timeout is not None and now - self._heard >= self._idle_timeout:
            return IDLE_TIMEOUT, f"it was silent for {self._idle_timeout:g} seconds"
        return None
