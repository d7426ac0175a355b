"""Drivers: the protocol of each kind of agent. They take bytes, and return bytes and events; they own no pipes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.launcher.drivers.base import Driver, DriverChannel, JobTable


def driver_for(job: JobTable, line: DriverChannel) -> Driver:
    """Return the driver for a job's kind of agent; only that one is loaded."""
    agent = job["agent"]
    driver: type[Driver]
    if agent["kind"] == "acp":
        from moorage.launcher.drivers.acp import AcpDriver as driver
    elif agent["kind"] == "python":
        from moorage.launcher.drivers.jsonl import PythonDriver as driver
    elif agent.get("protocol") == "jsonl":
        from moorage.launcher.drivers.jsonl import JsonlDriver as driver
    else:
        from moorage.launcher.drivers.base import TextDriver as driver
    return driver(job, line)
