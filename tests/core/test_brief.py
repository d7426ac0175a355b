"""Values at a prompt and in notebooks: short, told by the fields that people look for, and without secrets."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import moorage
from moorage import sync, values

CLASSES = {name: kind for name, kind in vars(values).items() if inspect.isclass(kind) and issubclass(kind, Struct)}


def html(value: Any) -> str:
    """Return what a notebook shows."""
    shown: str = value._repr_html_()
    return shown


@pytest.fixture
def moor() -> Iterator[sync.Moorage]:
    with sync.connect("memory://") as opened:
        yield opened


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_value_names_its_short_fields(name: str) -> None:
    kind = CLASSES[name]
    assert [field for field in kind.__brief__ if not hasattr(kind, field)] == []  # type: ignore[attr-defined]


def test_session_is_one_line_with_what_people_look_for(moor: sync.Moorage) -> None:
    session = moor.create(agent="planner", name="plan", purpose="p" * 500, metadata={"a": "b" * 500})
    shown = repr(session)
    assert shown.startswith("Session(session_name='plan', status='created', phase='initializing', agent_name='planner'")
    assert shown.endswith(f"session_id='{session.id}')")
    assert len(shown) < 300


def test_lists_are_counted(moor: sync.Moorage) -> None:
    for _ in range(3):
        moor.create()
    assert repr(moor.list()) == "Page(items=[3 items])"


def test_reason_within_an_answer_is_whole(moor: sync.Moorage) -> None:
    moor.create(session_id="s-1", agent="echo-agent")
    reply = moor.send("s-1", "hi")
    assert f"because=Because(reason='{reply.because and reply.because.reason}'" in repr(reply)
    assert repr(reply).count("(") == repr(reply).count(")")


def test_words_of_an_enumeration_are_texts(moor: sync.Moorage) -> None:
    assert "scopes=['read', 'write']" in repr(moor.create_key().key)


def test_secrets_are_not_shown(moor: sync.Moorage) -> None:
    session = moor.create()
    back, key = moor.resume(session.id), moor.create_key()
    assert "hold=Hold(holder=" in repr(back)
    for shown in (repr(back), html(back), repr(back.hold), repr(key), html(key)):
        assert str(back.hold.token) not in shown
        assert key.text not in shown


def test_notebook_gets_a_table_of_a_page(moor: sync.Moorage) -> None:
    moor.create(name="plan", purpose="<b>bold</b>")
    page = moor.list(limit=1)
    assert html(page).startswith("<table><tr><th>session_name</th><th>status</th>")
    assert "<td>plan</td><td>created</td>" in html(page)
    assert "&lt;b&gt;bold" in html(page)
    assert "<caption>Session</caption><tr><th>session_name</th><td>plan</td></tr>" in html(page.items[0])


def test_connection_shows_its_url_without_the_password(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/m.db"
    with sync.connect(url) as moor:
        assert repr(moor) == f"Moorage('{url}')"
    assert repr(moorage.connect("memory://")) == "Moorage('memory://')"
    assert repr(moorage.connect("http://127.0.0.1:8765", key="moor_secret")) == "Moorage('http://127.0.0.1:8765')"
    assert "secret" not in repr(moorage.connect("postgresql://ann:secret@localhost/sessions"))
