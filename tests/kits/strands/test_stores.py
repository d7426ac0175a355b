"""Strands: one contract for repositories and one for storages, held by its own and by ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands", reason="Strands is not installed; ./dev kits strands has it")

from strands import Agent
from strands.models.model import Model
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.storage import InMemoryStorage, Storage
from strands.types.exceptions import SessionException, StorageError
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from moorage import sync
from moorage.adapters.strands import MoorageSessionRepository, MoorageStorage
from moorage.core.errors import InvalidJson

HELLO: dict[str, Any] = {"role": "user", "content": [{"text": "Hello"}]}


def an_agent(name: str = "a", **state: Any) -> SessionAgent:
    """An agent with state."""
    return SessionAgent(agent_id=name, state=state, conversation_manager_state={})


class Group:
    """A group of agents, as far as a repository knows it."""

    id = "g"

    def __init__(self, state: Any) -> None:
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state}


# Repositories -------------------------------------------------------------------------------------


@pytest.fixture(params=["theirs", "ours"])
def repository(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Iterator[Any]:
    """A repository with the session `s` and its agent `a`."""
    if request.param == "theirs":
        made = FileSessionManager(session_id="s", storage_dir=str(tmp_path / "files"))
        made.create_agent("s", an_agent(n=1))
        yield made
        return
    with MoorageSessionRepository(url) as ours:
        ours.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        ours.create_agent("s", an_agent(n=1))
        yield ours


class TestRepository:
    """The contract of every repository."""

    def test_session_is_found_and_not_made_twice(self, repository: Any) -> None:
        assert repository.read_session("s").session_id == "s"
        assert repository.read_session("none") is None
        with pytest.raises(SessionException):
            repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))

    def test_state_of_an_agent_is_replaced(self, repository: Any) -> None:
        before = repository.read_agent("s", "a")
        repository.update_agent("s", an_agent(n=2))
        after = repository.read_agent("s", "a")

        assert (before.state, after.state, after.created_at) == ({"n": 1}, {"n": 2}, before.created_at)
        assert repository.read_agent("s", "none") is None
        with pytest.raises(SessionException):
            repository.update_agent("s", an_agent("none"))

    def test_messages_come_back_in_order(self, repository: Any) -> None:
        for number in range(12):
            repository.create_message("s", "a", SessionMessage(message={**HELLO}, message_id=number))

        def numbers(**page: int) -> list[int]:
            return [one.message_id for one in repository.list_messages("s", "a", **page)]

        assert numbers() == list(range(12))
        assert numbers(limit=3) == [0, 1, 2]
        assert numbers(limit=3, offset=10) == [10, 11]
        assert numbers(offset=9) == [9, 10, 11]
        assert repository.read_message("s", "a", 3).message == HELLO
        assert repository.read_message("s", "a", 99) is None
        with pytest.raises(SessionException):
            repository.list_messages("s", "none")

    def test_message_is_replaced(self, repository: Any) -> None:
        repository.create_message("s", "a", SessionMessage(message=HELLO, message_id=0))
        hidden: Any = {"role": "user", "content": [{"text": "[redacted]"}]}
        repository.update_message("s", "a", SessionMessage(message=HELLO, message_id=0, redact_message=hidden))

        assert repository.read_message("s", "a", 0).to_message() == hidden
        with pytest.raises(SessionException):
            repository.update_message("s", "a", SessionMessage(message=HELLO, message_id=7))

    def test_bytes_come_back(self, repository: Any) -> None:
        picture: Any = {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}]}
        repository.create_message("s", "a", SessionMessage(message=picture, message_id=0))

        assert repository.read_message("s", "a", 0).message == picture

    def test_group_of_agents_is_kept(self, repository: Any) -> None:
        assert repository.read_multi_agent("s", "g") is None
        with pytest.raises(SessionException):
            repository.update_multi_agent("s", Group(0))
        repository.create_multi_agent("s", Group(1))
        repository.update_multi_agent("s", Group(2))

        assert repository.read_multi_agent("s", "g") == {"id": "g", "state": 2}

    def test_deleted_session_begins_anew(self, repository: Any) -> None:
        repository.create_message("s", "a", SessionMessage(message=HELLO, message_id=0))
        repository.delete_session("s")
        assert repository.read_session("s") is None
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))

        assert repository.read_agent("s", "a") is None


def test_message_is_not_overwritten_by_another_writer(url: str) -> None:
    with MoorageSessionRepository(url) as repository:
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        repository.create_message("s", "a", SessionMessage(message=HELLO, message_id=0))
        with pytest.raises(SessionException, match="already exists"):
            repository.create_message("s", "a", SessionMessage(message={**HELLO}, message_id=0))


def test_message_of_an_unknown_session_is_refused(url: str) -> None:
    with MoorageSessionRepository(url) as repository, pytest.raises(SessionException, match="does not exist"):
        repository.create_message("none", "a", SessionMessage(message=HELLO, message_id=0))


def test_state_that_is_no_json_is_refused(url: str) -> None:
    with MoorageSessionRepository(url) as repository:
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        with pytest.raises(InvalidJson):
            repository.create_agent("s", an_agent(bad=object()))

        assert repository.read_agent("s", "a") is None


def test_other_owner_sees_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with MoorageSessionRepository(url, owner="one") as one, MoorageSessionRepository(url, owner="two") as two:
        one.create_session(Session(session_id="s", session_type=SessionType.AGENT))

        assert two.read_session("s") is None


@pytest.mark.parametrize("name", ["ü/é \n", "x" * 400, "../up"])
def test_any_names_will_do(name: str, tmp_path: Path) -> None:
    with MoorageSessionRepository(f"sqlite:///{tmp_path / 'a.db'}") as repository:
        repository.create_session(Session(session_id=name, session_type=SessionType.AGENT))
        repository.create_agent(name, an_agent(name))
        repository.create_message(name, name, SessionMessage(message=HELLO, message_id=0))

        assert len(repository.list_messages(name, name)) == 1


# Storages -----------------------------------------------------------------------------------------


@pytest.fixture(params=["theirs", "ours"])
async def storage(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Any]:
    """An empty storage."""
    if request.param == "theirs":
        yield InMemoryStorage()
        return
    async with MoorageStorage(url) as ours:
        yield ours


class TestStorage:
    """The contract of every storage."""

    async def test_bytes_come_back_until_they_are_replaced_or_deleted(self, storage: Any) -> None:
        assert isinstance(storage, Storage)
        assert await storage.read("a/b") is None
        await storage.write("a/b", b"\x00\xff")
        assert await storage.read("a/b") == b"\x00\xff"
        await storage.write("a//b/", b"")
        assert await storage.read("/a/b") == b""
        await storage.delete("a/b")
        await storage.delete("a/b")
        assert await storage.read("a/b") is None

    async def test_keys_are_listed_in_order(self, storage: Any) -> None:
        for key in ("b", "a/2", "a/10", "ab"):
            await storage.write(key, b"x")

        assert await storage.list("") == ["a/10", "a/2", "ab", "b"]
        assert await storage.list("a/") == ["a/10", "a/2"]
        assert await storage.list("none") == []

    async def test_words_are_found(self, storage: Any) -> None:
        await storage.write("notes/1", b"the weather in Genoa")
        await storage.write("notes/2", b"prices of tea")

        assert [one.key for one in await storage.search("Genoa weather")] == ["notes/1"]

    @pytest.mark.parametrize("key", ["", "/", "a/../b", "a\\b"])
    async def test_bad_key_is_refused(self, storage: Any, key: str) -> None:
        with pytest.raises(StorageError):
            await storage.write(key, b"x")


def test_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path / 'a.db'}"
    with MoorageSessionRepository(file) as repository, sync.connect(file) as moor:
        repository.create_session(Session(session_id="s", session_type=SessionType.AGENT))
        repository.create_agent("s", an_agent())
        repository.create_message("s", "a", SessionMessage(HELLO, 0))
        moor.fork("s", session_id="f")
        repository.create_message("f", "a", SessionMessage(HELLO, 1))
        fork = repository.read_session("f")

        assert fork is not None
        assert fork.session_id == "f"
        assert [len(repository.list_messages(name, "a")) for name in ("s", "f")] == [1, 2]


@pytest.mark.parametrize("value", [5, "text", None, [1, 2]])
async def test_value_that_is_not_bytes_is_refused(value: Any, tmp_path: Path) -> None:
    async with MoorageStorage(f"sqlite:///{tmp_path / 'a.db'}") as storage:
        with pytest.raises(StorageError, match="must be bytes"):
            await storage.write("k", value)

        assert await storage.list("") == []


async def test_value_of_100_megabytes_is_refused(tmp_path: Path) -> None:
    async with MoorageStorage(f"sqlite:///{tmp_path / 'a.db'}") as storage:
        with pytest.raises(StorageError):
            await storage.write("large", b"x" * 100_000_000)

        assert await storage.list("") == []


# The real framework ---------------------------------------------------------------------------------


class Scripted(Model):
    """A model that says how much it has heard."""

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": f"{len(messages)} messages"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def test_agent_goes_on_where_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    answers = []
    for prompt in ("one", "two"):
        with MoorageSessionRepository(url) as repository:
            manager = RepositorySessionManager(session_id="s", session_repository=repository)
            agent = Agent(model=Scripted(), agent_id="a", session_manager=manager, callback_handler=None)
            answers.append(str(agent(prompt)).strip())
    with sync.connect(url) as moor:
        said = [(entry.role, entry.text) for entry in moor.messages("s").items]

    assert answers == ["1 messages", "3 messages"]
    assert said == [("user", "one"), ("assistant", "1 messages"), ("user", "two"), ("assistant", "3 messages")]
