"""Rules for several servers on one store: they are equal and act as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import httpx2
import pytest

import moorage.sync
from moorage.service.leases import BEAT_EVERY
from tests.fleet.machines import Fleet, Writer, answers, said_in, until


class FleetRules:
    """Subclass it and provide a `store_url` fixture: an empty store that several servers can reach."""

    @pytest.fixture
    def fleet(self, store_url: str, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
        """Starts servers on one store."""
        started: list[Fleet] = []

        def start(count: int = 2, settings: str = "") -> Fleet:
            fleet = Fleet(store_url, tmp_path, count, launches=False)
            (fleet.home / "config.toml").write_text(settings)
            started.append(fleet)
            fleet.start()
            return fleet

        yield start
        for each in started:
            each.end()

    def test_stream_at_one_server_carries_writes_of_the_other(self, fleet: Callable[..., Fleet]) -> None:
        one, other = fleet().urls
        with moorage.sync.connect(one) as reader, moorage.sync.connect(other) as writer:
            session = writer.create(agent="talker").id
            heard = reader.events(session, after=0)
            assert next(heard).type == "created"
            for number in range(5):
                said = time.monotonic()
                writer.append(session, f"number {number}")
                assert next(heard).data["content"] == f"number {number}"
                assert time.monotonic() - said < 5

    def test_request_with_one_key_runs_once_at_any_server(self, fleet: Callable[..., Fleet]) -> None:
        urls = fleet().urls

        def create(number: int) -> str:
            headers, body = {"Idempotency-Key": f"key-{number // 6}"}, {"purpose": f"number {number // 6}"}
            answer = httpx2.post(f"{urls[number % 2]}/sessions", json=body, headers=headers, timeout=30)
            assert answer.status_code in (200, 201), answer.text
            return str(answer.json()["session_id"])

        with ThreadPoolExecutor(12) as together:
            made = list(together.map(create, range(24)))
        assert [len(set(made[start : start + 6])) for start in range(0, 24, 6)] == [1, 1, 1, 1]
        with moorage.sync.connect(urls[0]) as moor:
            assert len(moor.list().items) == 4

    def test_two_servers_allow_a_key_no_more_than_one(self, fleet: Callable[..., Fleet], store_url: str) -> None:
        with moorage.sync.connect(store_url) as store:
            key = store.create_key(scopes=["read"]).text
        urls = fleet(settings="[server]\nrate = 1\nburst = 30\n").urls
        time.sleep(BEAT_EVERY.total_seconds() + 1)  # so the first knows of the second
        began = time.monotonic()
        with httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=10) as http:
            answers = [http.get(f"{url}/sessions?limit=1").status_code for _ in range(40) for url in urls]
        assert set(answers) == {200, 429}
        assert 20 <= answers.count(200) <= 30 + (time.monotonic() - began) + 2

    def test_rolling_restart_loses_nothing(self, fleet: Callable[..., Fleet]) -> None:
        servers = fleet()
        with moorage.sync.connect(servers.urls[0]) as moor:
            session = moor.create(agent="talker").id
        writer = Writer(servers.urls, session)
        writer.start()
        until(lambda: len(writer.acknowledged) >= 3)
        for number in range(2):
            before = len(writer.acknowledged)
            servers.servers[number].restart()
            until(lambda: answers(servers.ports[number]))  # noqa: B023
            until(lambda: len(writer.acknowledged) > before + 2)  # noqa: B023
        writer.stop.set()
        writer.join(30)
        assert said_in(servers.urls[1], session) == writer.acknowledged

    def test_page_of_a_stream_is_the_same_at_every_server(self, fleet: Callable[..., Fleet]) -> None:
        urls = fleet(3).urls
        with moorage.sync.connect(urls[0]) as moor:
            sessions = [moor.create(agent="talker").id for _ in range(5)]
        with ThreadPoolExecutor(6) as together:
            list(together.map(lambda n: _append(urls[n % 3], sessions[n % 5], n), range(30)))
        told = []
        for url in urls:
            with moorage.sync.connect(url) as moor:
                told.append([(event.id, event.session_id) for event in islice(moor.events(after=0), 35)])
        assert told[0] == told[1] == told[2]


def _append(url: str, session: str, number: int) -> None:
    with moorage.sync.connect(url) as moor:
        moor.append(session, f"number {number}")
