"""Secrets stay out: by whole words of their keys, wherever they are nested."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.redact import REDACTED, SECRET_WORDS, Redactor

redactor = Redactor()

SECRET_KEYS = (
    "password", "Password", "PASSWORD", "db_password", "dbPassword", "DBPassword", "db-password", "db.password",
    "passwordHash", "token", "access_token", "accessToken", "APIToken", "x-auth-token", "api_key", "apiKey", "apikey",
    "API_KEY", "X-Api-Key", "openai_api_key", "secret", "client_secret", "clientSecret", "secrets", "Authorization",
    "authorization", "credential", "credentials", "aws_access_key_id", "private_key", "privateKey", "set-cookie",
    "passphrase", "pwd", "passwd", "bearer",
)  # fmt: skip
OTHER_KEYS = (
    "tokenizer", "tokenize", "detokenized", "passwordless", "secretary", "keyboard", "api", "key", "monkey", "author",
    "authorized", "cookies_accepted_at", "compass", "accessed", "", "_", "пароль", "tok_en",
)  # fmt: skip


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_key_that_names_a_secret_as_a_whole_word_is_one(key: str) -> None:
    assert redactor.is_secret(key)
    assert redactor.clean({key: "hunter2"}) == ({key: REDACTED}, (key,))


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_a_key_that_only_contains_the_letters_is_none(key: str) -> None:
    assert not redactor.is_secret(key)
    assert redactor.clean({key: "hunter2"}) == ({key: "hunter2"}, ())


def test_only_texts_are_secrets() -> None:
    value = {"token": 17, "password": None, "secret": True, "token_count": 12, "api_key": ""}
    assert redactor.clean(value) == (value, ())


def test_secrets_are_found_in_objects_and_lists_and_their_paths_told() -> None:
    value = {
        "db": {"host": "h", "password": "x"},
        "servers": [{"token": "a"}, {"name": "n"}, [{"deep": {"apiKey": "b"}}]],
        "note": "token: not a key",
    }
    cleaned, paths = redactor.clean(value)
    assert cleaned == {
        "db": {"host": "h", "password": REDACTED},
        "servers": [{"token": REDACTED}, {"name": "n"}, [{"deep": {"apiKey": REDACTED}}]],
        "note": "token: not a key",
    }
    assert paths == ("db.password", "servers[0].token", "servers[2][0].deep.apiKey")
    assert value["db"] == {"host": "h", "password": "x"}, "what was given stays as it was"


def test_a_tuple_hides_nothing() -> None:
    cleaned, paths = redactor.clean({"servers": ({"password": "x"},)})
    assert paths == ("servers[0].password",)
    assert "x" not in str(cleaned)


def test_redacted_value_is_not_reported_again() -> None:
    value = {"token": REDACTED}
    assert redactor.clean(value) == (value, ())


def test_the_list_is_settable() -> None:
    own = Redactor(("badge_number",))
    assert own.is_secret("employeeBadgeNumber")
    assert not own.is_secret("password")


plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("hunter2")
keys = st.sampled_from((*SECRET_KEYS, *OTHER_KEYS)) | st.text(max_size=8)
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(keys, inner), max_leaves=15
)


def secrets_left(value: Any) -> list[str]:
    """Non-empty texts under a secret's key that were not taken out."""
    if isinstance(value, dict):
        here = [key for key, item in value.items() if isinstance(item, str) and item and redactor.is_secret(key)]
        return [key for key in here if value[key] != REDACTED] + [
            key for item in value.values() for key in secrets_left(item)
        ]
    return [key for item in value for key in secrets_left(item)] if isinstance(value, (list, tuple)) else []


def without_secrets(value: Any) -> Any:
    """The value with every secret text dropped, for comparing what must stay."""
    if isinstance(value, dict):
        return {
            key: without_secrets(item)
            for key, item in value.items()
            if not (isinstance(item, str) and redactor.is_secret(key))
        }
    return [without_secrets(item) for item in value] if isinstance(value, (list, tuple)) else value


@given(st.dictionaries(keys, values))
def test_no_secret_is_left_and_nothing_else_is_touched(value: dict[str, Any]) -> None:
    cleaned, paths = redactor.clean(value)
    assert secrets_left(cleaned) == []
    assert without_secrets(cleaned) == without_secrets(value)
    assert bool(paths) is bool(secrets_left(value))
    assert redactor.clean(cleaned) == (cleaned, ()), "cleaning twice takes nothing more"


@given(st.sampled_from(SECRET_WORDS), st.text("abcxyz", min_size=1, max_size=4), st.sampled_from("_-. /:"))
def test_a_secret_word_beside_others_is_found_but_not_inside_one(word: str, other: str, between: str) -> None:
    assert redactor.is_secret(f"{other}{between}{word}")
    assert redactor.is_secret(f"{word}{between}{other}")
    assert redactor.is_secret(other + word.title().replace("_", ""))
