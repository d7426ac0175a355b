"""How a supervisor speaks with each kind of agent: bytes come in, bytes and events go out. Pipes are not its affair."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from moorage.launcher.drivers.base import Driver, DriverChannel, JobTable


def driver_for(job: JobTable, line: DriverChannel) -> Driver:
    """The driver for a job's kind of agent; only that one is loaded."""
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
