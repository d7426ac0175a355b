"""Configuration: file, then environment, then arguments; what is wrong in it is said."""

from __future__ import annotations

from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from moorage import config, sync
from moorage.core.errors import InvalidField, MoorageError, StoreUnavailable, Unsupported


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("MOORAGE_HOME", str(folder))
    return folder


def write(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text, encoding="utf-8")


FULL = """
url = "memory://configured"
[resume]
idle_limit = "45s"
max_errors = 5
[resume.idle_limits]
approval = "14d"
planning = "1.5h"
[family]
depth = 3
open_children = 7
[retention]
age = "2w"
every = "15m"
[retention.ages]
completed = "7d"
suspended = "never"
[redact]
words = ["badge", "password"]
"""


def test_every_setting_is_read(home: Path) -> None:
    write(home, FULL)
    settings = config.read_settings()
    assert settings.resume.idle_limit == timedelta(seconds=45)
    assert settings.resume.max_errors == 5
    assert settings.resume.idle_limits == {"approval": timedelta(days=14), "planning": timedelta(hours=1.5)}
    assert (settings.family.depth, settings.family.open_children) == (3, 7)
    assert (settings.retention.age, settings.retention.every) == (timedelta(weeks=2), timedelta(minutes=15))
    assert settings.retention.ages == {"completed": timedelta(days=7), "suspended": None}
    assert settings.secret_words == ("badge", "password")
    assert config.pick_url() == "memory://configured"


def test_without_a_file_there_are_defaults(home: Path) -> None:
    settings = config.read_settings()
    assert settings.resume.idle_limit == timedelta(minutes=30)
    assert settings.resume.idle_limits == {"approval": timedelta(days=7)}
    assert settings.resume.max_errors == 3
    assert (settings.retention.age, settings.retention.ages) == (timedelta(hours=24), {})
    assert settings.retention.every == timedelta(hours=1)
    assert (settings.family.depth, settings.family.open_children) == (16, 1000)


def test_missing_setting_keeps_its_default(home: Path) -> None:
    write(home, "[resume.idle_limits]\nplanning = '1h'\n")
    settings = config.read_settings()
    assert settings.resume.idle_limits == {"approval": timedelta(days=7), "planning": timedelta(hours=1)}
    assert settings.resume.max_errors == 3


def test_arguments_go_before_the_environment_before_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.pick_url() == f"sqlite:///{home / 'moorage.db'}"
    write(home, 'url = "memory://file"\n')
    assert config.pick_url() == "memory://file"
    monkeypatch.setenv("MOORAGE_URL", "memory://environment")
    assert config.pick_url() == "memory://environment"
    assert config.pick_url("memory://argument") == "memory://argument"


def test_without_anything_sessions_live_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path / "not there yet"))
    with sync.connect() as moor:
        moor.create(session_id="s-1")
    assert (tmp_path / "not there yet" / "moorage.db").exists()
    assert (tmp_path / "not there yet").stat().st_mode & 0o077 == 0
    with sync.connect() as moor:
        assert moor.get("s-1").id == "s-1"


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1.5h", timedelta(minutes=90)),
        (" 7d ", timedelta(days=7)),
    ],
)
def test_durations_read_as_people_write_them(text: str, lasts: timedelta) -> None:
    assert config.duration("age", text) == lasts


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-7d", "7D", "1e3s", "7d7d", 7, None, ["7d"], "9" * 30 + "d"])
def test_other_durations_are_refused(text: Any) -> None:
    with pytest.raises(InvalidField, match="30m, 24h or 7d"):
        config.duration("retention.age", text)


@pytest.mark.parametrize(
    "text",
    [
        "[resume",
        "a = = b",
        "[resume]\nidle_limit = 30\n",
        "[resume]\nidle_limit = '30 minutes'\n",
        "[resume]\nmax_errors = 0\n",
        "[resume]\nmax_errors = 'three'\n",
        "[resume]\nmax_errors = true\n",
        "[resume.idle_limits]\nsleeping = '1h'\n",
        "[resume.idle_limits]\napproval = 7\n",
        "resume = 3\n",
        "[family]\ndepth = -1\n",
        "[family]\nopen_childs = 3\n",
        "[retention]\nage = 24\n",
        "[retention]\nages = '7d'\n",
        "[retention]\ncompleted = '7d'\n",
        "retention = '7d'\n",
        "[redact]\nwords = 'password'\n",
        "[redact]\nwords = [1, 2]\n",
        "[redact]\nwords = 7\n",
        "family = []\n",
    ],
)
def test_invalid_file_is_reported_before_the_store_opens(home: Path, text: str) -> None:
    write(home, text)
    with pytest.raises(InvalidField):
        sync.connect(f"sqlite:///{home / 'other.db'}")
    assert not (home / "other.db").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age = '7 days'", r"retention\.age is '7 days'; write a duration such as 30m, 24h or 7d, or never"),
        ("every = '0s'", r"retention\.every is '0s'; give 1s or more, or never"),
        ("every = false", r"retention\.every is False; write a duration"),
        ("[retention.ages]\ncompleted = 7", r"retention\.ages\.completed is 7; write a duration"),
        ("[retention.ages]\nsuspended = 'Never'", r"retention\.ages\.suspended is 'Never'; .* or never"),
        (
            "[retention.ages]\nasleep = '7d'",
            r"retention\.ages has 'asleep', which is not a state; use some of created, ",
        ),
        ("ages = ['7d']", r"retention\.ages must be a table"),
        ("completed = '7d'", r"config has completed in retention; known are age, ages, every"),
    ],
)
def test_invalid_retention_names_the_setting(home: Path, text: str, said: str) -> None:
    write(home, f"[retention]\n{text}\n")
    with pytest.raises(InvalidField, match=said):
        config.read_settings()


def test_never_stands_for_a_duration(home: Path) -> None:
    write(home, "[retention]\nage = 'never'\nevery = ' never '\n")
    retention = config.read_settings().retention
    assert (retention.age, retention.every) == (None, None)


def test_a_file_that_is_no_text_is_said_to_be_so(home: Path) -> None:
    (home / "config.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidField, match=r"config\.toml"):
        config.read_settings()


def test_settings_of_the_file_count(home: Path) -> None:
    write(home, FULL)
    with sync.connect("memory://") as moor:
        session = moor.create("agent", metadata={"badge": "x", "token": "y"})
        assert session.metadata == {"badge": "[redacted]", "token": "y"}
        moor.update(session.id, phase="planning")
        assert moor.should_resume(session.id).criteria["idle_seconds"].limit == 5400.0
        assert moor.should_resume(session.id).criteria["error_count"].limit == 5


# Stores by URL ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "mysql://x", "sqlite", "sqlite:", "file.db", "oracle://u:secret@h/d", "://", "http"]
)
def test_an_unknown_store_is_refused_without_telling_its_password(url: str) -> None:
    with pytest.raises(MoorageError) as refused:
        sync.connect(url)
    assert isinstance(refused.value, (Unsupported, InvalidField))
    assert "secret" not in str(refused.value.to_dict())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://relative.db"])
def test_an_sqlite_url_names_a_file(url: str) -> None:
    with pytest.raises(InvalidField) as refused:
        sync.connect(url)
    assert refused.value.code == "invalid_url"


def test_paths_with_spaces_and_escapes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with space & ünï"
    folder.mkdir()
    with sync.connect(f"sqlite:///{folder}/a b.db") as moor:
        moor.create(session_id="s-1")
    with sync.connect(f"sqlite:///{str(folder).replace(' ', '%20')}/a%20b.db") as moor:
        assert moor.get("s-1").id == "s-1"
    monkeypatch.chdir(folder)
    with sync.connect("sqlite:///a b.db") as moor:
        assert moor.get("s-1").id == "s-1"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        sync.connect(f"sqlite:///{tmp_path}/nowhere/moorage.db")
    with pytest.raises(StoreUnavailable, match="folder"):
        sync.connect(f"sqlite:///{tmp_path}")


def test_memory_is_private_unless_named() -> None:
    with sync.connect("memory://") as one, sync.connect("memory://") as two:
        one.create(session_id="s-1")
        assert two.list().items == []
    with sync.connect("memory://shared-by-two") as one, sync.connect("memory://shared-by-two") as two:
        one.create(session_id="s-1")
        assert two.get("s-1").id == "s-1"


def test_the_clock_is_in_utc_and_moves() -> None:
    clock = config.SystemClock()
    first = clock.now()
    assert first.tzinfo is UTC
    assert clock.now() >= first


def test_two_connections_of_one_process_have_two_holders() -> None:
    assert config.unique_holder() != config.unique_holder()


def test_custom_window_and_counter_apply_to_resume(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_tokens_for_a_test.py").write_text("def count(entry):\n    return len(entry.text.split())\n")
    write(home, '[window]\ntokens = 3\ncounter = "my_tokens_for_a_test:count"\n')
    with sync.connect("memory://") as moor:
        moor.create(session_id="s-1")
        moor.append("s-1", ["one two", "three", "four", "five"])
        assert [message.text for message in moor.resume("s-1").messages] == ["three", "four", "five"]
        assert [message.text for message in moor.messages("s-1", tokens=2)] == ["four", "five"]
    write(home, "[window]\nturns = 2\n")
    with sync.connect("memory://") as moor:
        moor.create(session_id="s-1")
        moor.append("s-1", [f"word {number}" for number in range(60)])
        assert [message.text for message in moor.resume("s-1").messages] == ["word 58", "word 59"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tokens = 0", "invalid_window"),
        ('counter = "nowhere_at_all:count"', "invalid_window"),
        ('counter = "os:nothing"', "invalid_window"),
        ('counter = "os:sep"', "invalid_window"),
        ("counter = 5", "invalid_window"),
        ("words = 5", "invalid_config"),
    ],
)
def test_a_wrong_window_is_refused(home: Path, text: str, code: str) -> None:
    write(home, f"[window]\n{text}\n")
    with pytest.raises(MoorageError) as refused:
        sync.connect("memory://").list()
    assert refused.value.code == code


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "planner.toml"
    with config.replacing(str(path)) as first:
        first.write(b"first")
        with config.replacing(str(path)) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_file_stays_whole_when_its_replacement_fails(tmp_path: Path) -> None:
    path = tmp_path / "planner.toml"
    path.write_text("whole")

    def replace_half() -> None:
        with config.replacing(str(path)) as file:
            file.write(b"half")
            raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        replace_half()
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
