"""Ways in: connections by URL as users make them, and connections with a clock of the test's own."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from moorage import sync
from moorage.client import LocalMoorage, OpenStore
from moorage.connection import caller_for
from moorage.ports import Store
from moorage.remote.client import RemoteMoorage
from moorage.service.deps import Caller, Deps, Settings
from moorage.service.inline import drive
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import FakeClock
from moorage.testing.model_store import ModelStore
from tests.remote.server import OWNER, Doors


class Place:
    """A store by its URL."""

    def __init__(self, url: str, connections: ExitStack) -> None:
        self.url, self._connections = url, connections

    @property
    def is_file(self) -> bool:
        """Whether it is a file that can be looked into."""
        return self.url.startswith("sqlite")

    def holder(self, name: str) -> str:
        """Return the holder of a caller with that name: a server puts its own identity before it."""
        return f"local:{name}" if self.is_remote else name

    @property
    def is_remote(self) -> bool:
        """Whether a server is between."""
        return self.url.startswith("http")

    @property
    def is_shared(self) -> bool:
        """Whether other processes can reach it."""
        return not self.url.startswith("memory")

    def connect(self, **who: Any) -> sync.Moorage:
        """A connection of its own, closed after the test."""
        return self._connections.enter_context(sync.connect(self.url, **who))


class Served(Place):
    """A store behind a server."""

    def connect(self, *, owner: str = "local", **who: Any) -> sync.Moorage:
        """A connection of its own, closed after the test; the server believes whose it is."""
        caller = caller_for(owner=owner, by=who.get("by"), interface="python", holder=who.get("holder"))
        return self._connections.enter_context(
            sync.on_server(RemoteMoorage.to(self.url, caller, headers={OWNER: owner}))
        )


class Timed:
    """A store with a clock that only the test moves."""

    interface = "test"

    def holder(self, name: str) -> str:
        """Return the holder of a caller with that name."""
        return name

    def __init__(self, store: Store, settings: Settings, connections: ExitStack) -> None:
        self.store, self.settings, self._connections = store, settings, connections
        self.clock = FakeClock()
        self.moor = self.connect()

    def connect(self, *, owner: str = "local", by: str = "ann", holder: str = "ann") -> sync.Moorage:
        """Connect as a given caller."""
        deps = self.deps = Deps(self.store, self.clock, os.urandom, self.settings)
        caller = Caller(owner=owner, by=by, interface=self.interface, holder=holder)
        return sync.Moorage(LocalMoorage(OpenStore(lambda: deps, threaded=False), caller))

    def forward(self, **by: float) -> datetime:
        """Move the clock on."""
        return self.clock.forward(timedelta(**by))

    def with_settings(self, settings: Settings) -> Timed:
        """The same store, otherwise configured."""
        return Timed(self.store, settings, self._connections)


class ServedTimed(Timed):
    """The same behind a server, whose clock is the test's; `store` is the file itself, `deps` are the server's."""

    interface = "python"

    def holder(self, name: str) -> str:
        """The same behind a server, which puts its own identity before it."""
        return f"local:{name}"

    def __init__(self, path: Path, doors: Doors, settings: Settings, clock: FakeClock, connections: ExitStack) -> None:
        self._path, self._doors, self.settings, self._connections = path, doors, settings, connections
        self.clock = clock
        self.store: Store = SqliteStore.open(path)
        connections.callback(lambda: drive(self.store.close()))
        self._address = doors.open_on(lambda: Deps(SqliteStore.serve(path), clock, os.urandom, settings))
        connections.callback(doors.shut, self._address)
        self.deps = doors.deps(self._address)
        self.moor = self.connect()

    def connect(self, *, owner: str = "local", by: str = "ann", holder: str = "ann") -> sync.Moorage:
        caller = Caller(owner=owner, by=by, interface=self.interface, holder=holder)
        remote = RemoteMoorage.to(self._address, caller, headers={OWNER: owner})
        return self._connections.enter_context(sync.on_server(remote))

    def with_settings(self, settings: Settings) -> Timed:
        return ServedTimed(self._path, self._doors, settings, self.clock, self._connections)


def timed_on(kind: str, folder: Path, connections: ExitStack) -> Timed:
    """A timed store of one of the two kinds, closed after the test."""
    store: Store = SqliteStore.open(folder / "moorage.db") if kind == "sqlite" else ModelStore()
    connections.callback(lambda: drive(store.close()))
    return Timed(store, Settings(), connections)
