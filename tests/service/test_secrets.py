"""Secrets: not kept where they are not needed, not shown where they had to be kept."""

from __future__ import annotations

import pytest

from moorage.service.deps import Settings
from tests.service.doors import Place, Timed

SECRET = "hunter2-hunter2"


def test_metadata_keeps_no_secret_and_the_answer_lists_the_paths(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent", metadata={"db": {"password": SECRET}, "servers": [{"apiKey": SECRET}], "n": 1})
    assert session.redacted == ("db.password", "servers[0].apiKey")
    updated = moor.update(session.id, metadata={"token": SECRET, "tokenizer": "bpe", "token_count": 7})
    assert updated.redacted == ("token",)
    now = moor.get(session.id)
    assert now.metadata == {
        "db": {"password": "[redacted]"},
        "servers": [{"apiKey": "[redacted]"}],
        "n": 1,
        "token": "[redacted]",
        "tokenizer": "bpe",
        "token_count": 7,
    }
    assert now.redacted == ()
    assert moor.fork(session.id, metadata={"secret": SECRET}).redacted == ("secret",)


def test_no_secret_of_metadata_or_context_reaches_log_feed_export_or_search(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent", metadata={"password": SECRET})
    moor.update(session.id, metadata={"nested": ({"secret": SECRET},)})
    moor.context.merge(session.id, {"credentials": SECRET})
    everything = [
        *map(str, moor.log(session.id)),
        *map(str, moor.events(follow=False)),
        *moor.export(session.id),
        *moor.export(session.id, format="markdown"),
        str(moor.get(session.id)),
        str(moor.context.items(session.id)),
    ]
    assert not any(SECRET in text for text in everything)
    assert moor.search("hunter2") == []


def test_no_secret_reaches_the_file(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not place.is_file:
        pytest.skip("there is no file")
    moor = place.connect()
    session = moor.create("agent", metadata={"password": SECRET})
    moor.context.put(session.id, "api_key", SECRET)
    path = place.url.removeprefix("sqlite:///")
    for ending in ("", "-wal"):
        with open(path + ending, "rb") as file:  # noqa: PTH123  # a suffix on a database's name is no path of its own
            assert SECRET.encode() not in file.read()


def test_tool_inputs_stay_whole_in_the_log_and_are_redacted_in_exports(place: Place) -> None:
    moor = place.connect()
    session = moor.create("agent")
    call = {"type": "tool_call", "id": "c", "name": "login", "input": {"password": SECRET, "user": "ann"}}
    moor.append(session.id, {"role": "assistant", "content": [call]})
    assert moor.messages(session.id).items[0].content == [call]
    assert moor.resume(session.id).messages[0].content == [call]
    for form in ("jsonl", "markdown"):
        text = "\n".join(moor.export(session.id, format=form))
        assert SECRET not in text
        assert "[redacted]" in text
        assert "ann" in text


def test_the_list_of_words_is_settable(timed: Timed) -> None:
    own = timed.with_settings(Settings(secret_words=("badge",)))
    session = own.moor.create("agent", metadata={"badge": SECRET, "password": "not a secret here"})
    assert session.metadata == {"badge": "[redacted]", "password": "not a secret here"}
