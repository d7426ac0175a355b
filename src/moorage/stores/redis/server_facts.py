"""The settings that a server reports, and their effect on stored sessions."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

OLDEST = (7, 0)  # of Redis; Valkey reports its compatible version in `redis_version`
OLDEST_WITH_WAITAOF = (7, 2)
SAFE_POLICY = "noeviction"


class ServerFacts(Struct, frozen=True, kw_only=True):
    """One server: its version, its settings, and its replicas."""

    name: str = "Redis"
    version: tuple[int, ...] = (0, 0)  # of Redis, or the compatible one
    shown_version: str = "?"
    keeps_log: bool = False  # appendonly
    fsync: str | None = None  # appendfsync; None if unknown
    takes_snapshots: bool | None = None
    policy: str = SAFE_POLICY
    replicas: int = 0
    is_replica: bool = False

    def refusal(self, durability: str) -> str | None:
        """Return why this server cannot provide the requested durability; None if it can."""
        oldest = OLDEST_WITH_WAITAOF if durability == "fsync" else OLDEST
        if self.version < oldest:
            why = " for durability=fsync" if oldest is OLDEST_WITH_WAITAOF else ""
            return f"is {self.name} {self.shown_version}; Moorage needs {oldest[0]}.{oldest[1]} or newer{why}"
        if durability == "fsync" and not self.keeps_log:
            return "has no append-only file, and durability=fsync waits for it; set `appendonly yes`"
        if durability == "replica" and not self.replicas and not self.is_replica:
            return "has no replica, and durability=replica waits for one; start one, or leave it out of the URL"
        return None

    def risk(self) -> str | None:
        """Return how the server may delete sessions by itself, and the remedy.

        The `volatile-` policies delete only keys that expire, and no key of a session does.
        """
        if not self.policy.startswith("allkeys"):
            return None
        return (
            f"maxmemory-policy is {self.policy}: when its memory is full, the server deletes sessions; "
            f"set maxmemory-policy {SAFE_POLICY}, then it refuses changes instead"
        )

    def shown(self) -> dict[str, Any]:
        """Return the facts to display."""
        return {
            "server": f"{self.name} {self.shown_version}",
            "appendonly": "yes" if self.keeps_log else "no",
            "appendfsync": self.fsync or "the server does not say",
            "maxmemory_policy": self.policy,
            "replicas": self.replicas,
        }

    def costs(self, durability: str) -> list[str]:
        """Return what a crash of the server and a failover can lose, as text."""
        return [f"A crash of the server can cost {self._crash(durability)}.", self._failover(durability)]

    def _crash(self, durability: str) -> str:
        if durability == "fsync" or (self.keeps_log and self.fsync == "always"):
            return "nothing that was acknowledged, as long as its disk survives"
        if not self.keeps_log and self.takes_snapshots is False:
            return "everything: it has neither an append-only file nor snapshots. Set `appendonly yes`"
        if not self.keeps_log:
            return "everything since its last snapshot. Set `appendonly yes`"
        lost = "what the system had not written, often 30 seconds" if self.fsync == "no" else "about the last second"
        return f"{lost}. Set `appendfsync always`, or add durability=fsync to the URL"

    def _failover(self, durability: str) -> str:
        if not self.replicas:
            return "There is no replica: without the server's disk, everything is gone."
        if durability == "replica":
            return "A failover costs nothing that was acknowledged, if the replica that has it takes over."
        return (
            "A failover can cost what had not reached the replica, usually milliseconds; "
            "durability=replica in the URL waits for it."
        )


def read_facts(info: bytes, settings: dict[str, str]) -> ServerFacts:
    """Return the facts in INFO and CONFIG GET; a server may refuse to show its settings."""
    lines = info.decode(errors="replace").splitlines()
    told = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    is_valkey = "valkey_version" in told
    version = told.get("redis_version", "0.0")
    return ServerFacts(
        name="Valkey" if is_valkey else "Redis",
        version=tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) or (0, 0),
        shown_version=told.get("valkey_version", version),
        keeps_log=told.get("aof_enabled") == "1",
        fsync=settings.get("appendfsync"),
        takes_snapshots=None if "save" not in settings else bool(settings["save"]),
        policy=told.get("maxmemory_policy", SAFE_POLICY),
        replicas=int(told.get("connected_slaves", "0")),
        is_replica=told.get("role") == "slave",
    )


def summary(servers: list[ServerFacts], durability: str) -> tuple[dict[str, Any], list[str]]:
    """Return the facts about the servers of a store to display, and their risks as text."""
    shown = [each.shown() for each in servers]
    same = {name: value for name, value in shown[0].items() if all(one[name] == value for one in shown)}
    differ = {name: ", ".join(str(one[name]) for one in shown) for name in shown[0] if name not in same}
    facts = {**same, **differ, "durability": durability} | ({"servers": len(servers)} if len(servers) > 1 else {})
    return facts, list(dict.fromkeys(cost for each in servers for cost in each.costs(durability)))
