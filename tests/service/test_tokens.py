"""Session tokens: signed, ended by time, and reaching downwards only."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage.core.errors import InvalidField, SessionNotFound, Unauthorized
from moorage.core.key import SessionToken, SigningSecret, is_session_token, new_token, sign, verify
from moorage.service.deps import Caller, Deps
from moorage.service.inline import drive
from moorage.service.keys import authenticate, create_key, reaches, read_token, session_token
from moorage.service.sessions import SessionRequest, create_session
from moorage.stores.sqlite.store import SqliteStore
from moorage.testing.builders import NOON, FakeClock
from moorage.testing.model_store import ModelStore
from tests.service.doors import Timed


@pytest.fixture
def timed(timed_store: Timed) -> Timed:
    """No door in between: this is what servers do with keys, tokens and each other."""
    return timed_store


HOUR = timedelta(hours=1)


def token_for(timed: Timed, ref: str, lifetime: object = HOUR, owner: str = "local") -> str:
    return drive(session_token(timed.deps, owner, ref, lifetime))


def test_token_names_its_session_and_expiry(timed: Timed) -> None:
    session = timed.moor.create(name="planner")
    text = token_for(timed, "planner")

    token = drive(read_token(timed.deps, text))
    assert (token.owner, token.session_id, token.expires_at) == ("local", session.id, NOON + HOUR)
    assert is_session_token(text)
    assert text.startswith("moors_")
    assert text.isascii()
    assert not set(text) & set(" \"'=\n")  # it stands in an environment and in a header


def test_a_token_ends_at_its_time(timed: Timed) -> None:
    text = token_for(timed, timed.moor.create().id)
    timed.forward(minutes=59, seconds=59)
    drive(read_token(timed.deps, text))
    timed.forward(seconds=1)

    with pytest.raises(Unauthorized):
        drive(read_token(timed.deps, text))


def test_no_letter_of_a_token_can_be_changed(timed: Timed) -> None:
    text = token_for(timed, timed.moor.create(session_id="s-1").id)
    for place in range(len(text)):
        for letter in {"A", "b", "_", "."} - {text[place]}:
            with pytest.raises(Unauthorized):
                drive(read_token(timed.deps, text[:place] + letter + text[place + 1 :]))


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "moors_",
        "moors_.",
        "moors_e30.x",
        "moors_W10.x",
        "moors_é",
        "moors_" + "a" * 10**6,
        b"moors_",
        "moors_" + "[",
    ],
)
def test_invalid_token_is_refused(timed: Timed, text: Any) -> None:
    with pytest.raises(Unauthorized):
        drive(read_token(timed.deps, text))


def test_a_token_signed_with_another_secret_is_refused(timed: Timed) -> None:
    timed.moor.create(session_id="s-1")
    mine = token_for(timed, "s-1")
    other = Deps(ModelStore(), FakeClock(), os.urandom)
    real = drive(read_token(timed.deps, mine))
    forged = SigningSecret(secret_id=real.secret_id, value="00" * 32, created_at=NOON)

    with pytest.raises(Unauthorized):
        drive(read_token(other, mine))
    with pytest.raises(Unauthorized):
        drive(read_token(timed.deps, sign(real, forged)))


def test_a_token_is_no_key_and_a_key_is_no_token(timed: Timed) -> None:
    token, key = token_for(timed, timed.moor.create().id), drive(create_key(timed.deps)).text

    with pytest.raises(Unauthorized):
        drive(authenticate(timed.deps, token))
    with pytest.raises(Unauthorized):
        drive(read_token(timed.deps, key))
    assert not is_session_token(key)


def test_a_token_is_only_for_a_session_that_is_there(timed: Timed) -> None:
    timed.moor.create(session_id="s-1")

    with pytest.raises(SessionNotFound):
        token_for(timed, "s-2")
    with pytest.raises(SessionNotFound):
        token_for(timed, "s-1", owner="another")
    with pytest.raises(InvalidField):
        token_for(timed, "s-1", lifetime=-1)


def test_servers_of_one_store_take_each_others_tokens(tmp_path: Path) -> None:
    stores = [SqliteStore.open(tmp_path / "moorage.db") for _ in range(2)]
    one, other = (Deps(store, FakeClock(), os.urandom) for store in stores)
    drive(create_session(one, Caller(), SessionRequest(session_id="s-1")))
    first, second = (drive(session_token(deps, "local", "s-1")) for deps in (one, other))

    assert drive(read_token(other, first)).session_id == drive(read_token(one, second)).session_id == "s-1"
    for store in stores:
        drive(store.close())
    again = SqliteStore.open(tmp_path / "moorage.db")
    assert drive(read_token(Deps(again, FakeClock(), os.urandom), first)).session_id == "s-1"
    drive(again.close())


def test_signing_is_pure() -> None:
    secret = SigningSecret(secret_id="a1", value="ab" * 32, created_at=NOON)
    token = new_token("ann", "s-1", NOON.replace(microsecond=7) + HOUR, secret)

    assert token == SessionToken("a1", "ann", "s-1", NOON + HOUR)
    assert sign(token, secret) == sign(token, secret)
    assert verify(sign(token, secret), {"a1": secret}.get, NOON) == token
    with pytest.raises(Unauthorized):
        verify(sign(token, secret), {"b2": secret}.get, NOON)


# Reach ------------------------------------------------------------------------------------------


@pytest.fixture
def family(timed: Timed) -> Timed:
    """root > child > grandchild > great > last, and beside them: root > sister > niece, and another root."""
    chain = ["root", "child", "grandchild", "great", "last"]
    for above, name in zip([None, *chain], chain, strict=False):
        timed.moor.create(session_id=name, name=f"{name}-name", parent=above)
    timed.moor.create(session_id="sister", parent="root")
    timed.moor.create(session_id="niece", parent="sister")
    timed.moor.create(session_id="stranger", parent=None)
    timed.moor.fork("child", session_id="fork")
    return timed


@pytest.mark.parametrize(
    ("held", "reached"),
    [
        ("root", {"root", "child", "grandchild", "great", "last", "sister", "niece"}),
        ("child", {"child", "grandchild", "great", "last"}),
        ("great", {"great", "last"}),
        ("sister", {"sister", "niece"}),
        ("stranger", {"stranger"}),
        ("fork", {"fork"}),
    ],
)
def test_a_token_reaches_its_session_and_all_below(family: Timed, held: str, reached: set[str]) -> None:
    everybody = {session.id for session in family.moor.list(limit=100)}
    assert len(everybody) == 9

    assert {each for each in everybody if drive(reaches(family.deps, "local", held, each))} == reached


def test_a_name_is_reached_as_its_session_is(family: Timed) -> None:
    assert drive(reaches(family.deps, "local", "child", "last-name"))
    assert not drive(reaches(family.deps, "local", "child", "root-name"))


def test_token_does_not_cover_a_missing_session(family: Timed) -> None:
    family.moor.delete("niece")

    for ref in ("nobody", "niece", "", "../x", "é"):
        assert not drive(reaches(family.deps, "local", "child", ref))
    assert not drive(reaches(family.deps, "another", "root", "child"))


def test_its_own_session_is_reached_though_it_is_gone(family: Timed) -> None:
    family.moor.delete("niece")

    assert drive(reaches(family.deps, "local", "niece", "niece"))  # so that its bearer hears session_gone


def test_another_session_that_is_called_like_one_that_is_gone_is_not_reached(family: Timed) -> None:
    family.moor.delete("niece")
    family.moor.create(session_id="s-9", name="niece", parent=None)

    assert not drive(reaches(family.deps, "local", "niece", "niece"))
