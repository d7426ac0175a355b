"""Drivers: the protocol of each kind of agent. They take bytes, and return bytes and events; they own no pipes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.launcher.drivers.base import Driver, DriverChannel, JobTable


def driver_for(job: JobTable, line: DriverChannel) -> Driver:
    """Return the driver for a job's kind of agent; only that one is loaded."""
    agent = job["agent"]
    if agent["kind"] == "acp":
        from moorage.launcher.drivers.acp import AcpDriver

        return AcpDriver(job, line)
    if agent["kind"] == "python":
        from moorage.launcher.drivers.jsonl import PythonDriver

        return PythonDriver(job, line)
    if agent.get("protocol") == "jsonl":
        from moorage.launcher.drivers.jsonl import JsonlDriver

        return JsonlDriver(job, line)
    from moorage.launcher.drivers.text import TextDriver

    return TextDriver(job, line)
