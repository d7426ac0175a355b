"""Damaged TOML: definitions of agents and settings are read, or refused with the name of the file."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from moorage import config
from moorage.agents.registry import decoded, read_definition
from moorage.core.errors import InvalidDefinition, InvalidField
from tests.fuzz.inputs import SEED, kept, many, tried

DEFINITIONS = (
    '[agent]\nname = "coder"\nkind = "command"\ncommand = ["coder", "--once"]\nprotocol = "jsonl"\ntimeout = "30m"\n'
    'retry = "always"\nenv = { LEVEL = "2" }\n[agent.mcp_servers.own]\ntype = "stdio"\ncommand = "s"\nargs = ["a"]\n',
    '[worker]\nname = "model"\nkind = "openai"\nmodel = "small"\nbase_url = "http://h"\napi_key_env = "KEY"\n',
    '[tool]\nname = "hello"\nkind = "python"\nfunction = "package.module:function"\nmax_concurrent = 2\n',
)
SETTINGS = '[server]\nrate = 10\nburst = 30\n[retention]\nkeep = "30d"\n[hooks]\ndeny_if_resumable = true\n'
PIECES = (
    *('"', '"""', "'", "\\", "\\u0000", "\\ud800", "[", "]]", "[[", "{", "}", "=", ".", ",", "#", "\n", "\r", "\x00"),
    *("nan", "-inf", "1e999", "0x", "9" * 30, "9" * 5000, "1979-05-27", "07:32:00", "true", "ü", "a." * 40, "[" * 300),
    *("name", "kind", "[agent]\n", "[agent.env]\n", '"agent" = 1\n', "timeout = -1\n", "command = []\n"),
)


def damaged(text: str, chance: random.Random) -> bytes:
    """The text with some pieces left out, doubled, replaced or put in between."""
    for _ in range(chance.randrange(1, 6)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 0, 1, 5, 40)))
        text = text[:start] + chance.choice(("", text[start:end] * 2, chance.choice(PIECES))) + text[end:]
    data = bytearray(text.encode())
    if data and chance.random() < 0.1:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def check_definition(sent: bytes) -> bool:
    """Read one definition; return whether it is one."""
    with tried("toml", sent):
        try:
            return bool(read_definition(decoded(sent, "x.toml"), "x.toml").name)
        except InvalidDefinition:
            return False


@pytest.mark.timeout(120 + many(500) // 50)
def test_damaged_definition_is_read_or_refused_in_our_words() -> None:
    chance = random.Random(SEED)
    for sent in kept("toml"):
        check_definition(sent)
    read = [check_definition(damaged(chance.choice(DEFINITIONS), chance)) for _ in range(many(500))]
    assert 0 < sum(read) < len(read)


@pytest.mark.timeout(120 + many(200) // 50)
def test_damaged_settings_are_read_or_refused_in_our_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("MOORAGE_") and name != "MOORAGE_HOME"]:
        if name not in ("MOORAGE_COUNTS", "MOORAGE_FUZZ", "MOORAGE_SEED"):
            monkeypatch.delenv(name)
    chance = random.Random(SEED)
    for sent in [*kept("toml"), *(damaged(SETTINGS, chance) for _ in range(many(200)))]:
        (tmp_path / "config.toml").write_bytes(sent)
        with tried("toml", sent), suppress(InvalidField):
            config.read_settings()
