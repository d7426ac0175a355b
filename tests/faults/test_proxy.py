"""The broken network is broken in the way it says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from moorage.testing.faults import eventually
from moorage.testing.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says everything again."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer(client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(4096):
                    client.sendall(data)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[Proxy]:
    with Proxy(echo) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        yield client


def come_in(proxy: Proxy) -> bytes:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as client:
        return client.recv(1)


def test_everything_passes(client: socket.socket) -> None:
    client.sendall(b"hello")
    assert client.recv(5) == b"hello"


def test_an_end_passes_too(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"bye")
    client.shutdown(socket.SHUT_WR)
    assert client.recv(3) == b"bye"
    assert client.recv(1) == b""
    assert eventually(lambda: proxy.connections == 0, 5)


def test_a_delay_counts_for_each_direction(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(0.2, "down")
    begun = time.monotonic()
    client.sendall(b"slow")
    assert client.recv(4) == b"slow"
    assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize("direction", ["up", "down"])
def test_proxy_drops_one_direction(proxy: Proxy, client: socket.socket, direction: str) -> None:
    proxy.swallow(direction)  # type: ignore[arg-type]
    client.sendall(b"lost")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert proxy.connections == 1


def test_a_reset_is_told_to_both_and_others_come_in(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"hello")
    client.recv(5)
    assert proxy.reset() == 1
    with pytest.raises(ConnectionError):
        client.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as other:
        other.sendall(b"again")
        assert other.recv(5) == b"again"


def test_mended_proxy_resets_connections_that_missed_bytes(proxy: Proxy, client: socket.socket) -> None:
    proxy.swallow()
    client.sendall(b"lost")
    assert eventually(lambda: proxy.connections == 1, 5)
    proxy.mend()
    with pytest.raises(ConnectionError):
        client.recv(1)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as other:
        other.sendall(b"again")
        assert other.recv(5) == b"again"


def test_proxy_refuses_new_connections(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(b"in")
    assert client.recv(2) == b"in"
    proxy.refuse()
    with pytest.raises(ConnectionError):
        come_in(proxy)
    client.sendall(b"on")
    assert client.recv(2) == b"on"
