"""The test data: the same messages, ids and names for every contender.

Everything is derived from a number, so two processes that never met agree on the id of the
seeded session 4711 and on the text of the third message.
"""

from __future__ import annotations

import random
from uuid import UUID

Message = dict[str, str]

MESSAGE_BYTES = 1024
SMALL_MESSAGE_BYTES = 120
AGENTS = 20
PAGE = 50
METADATA = {"workspace": "prod", "region": "eu-west-1", "attempt": 1}
PURPOSE = "approval_workflow"

_WORDS = (
    "plan apply state module resource change review approve region subnet cluster volume bucket policy role "
    "network gateway route table rule group instance image disk snapshot backup restore verify update create"
).split()
_SEED_EPOCH_MS = 1_700_000_000_000
_POOL = 64


def text(size: int, seed: int) -> str:
    """Readable words of exactly `size` bytes: a search index has real work to do with them."""
    chance = random.Random(seed)
    words: list[str] = []
    length = 0
    while length < size:
        words.append(chance.choice(_WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:size].ljust(size, ".")


def _turn(size: int, seed: int) -> list[Message]:
    return [
        {"role": "user", "content": text(size, 2 * seed)},
        {"role": "assistant", "content": text(size, 2 * seed + 1)},
    ]


_TURNS = [_turn(MESSAGE_BYTES, seed) for seed in range(_POOL)]
_SMALL_TURNS = [_turn(SMALL_MESSAGE_BYTES, seed) for seed in range(_POOL)]


def turn(number: int) -> list[Message]:
    """A user and an assistant message of 1 KB each."""
    return _TURNS[number % _POOL]


def small_turn(number: int) -> list[Message]:
    """A user and an assistant message of 120 bytes each."""
    return _SMALL_TURNS[number % _POOL]


def messages(count: int) -> list[Message]:
    """`count` messages of 1 KB, users and assistants in turn."""
    return [turn(number // 2)[number % 2] for number in range(count)]


def seeded_id(number: int) -> str:
    """The id of a seeded session: shaped and ordered like the UUIDv7 a store would make itself."""
    scattered = (number * 0x9E3779B97F4A7C15) & 0x3FFF_FFFF_FFFF_FFFF
    return str(UUID(int=(_SEED_EPOCH_MS + number) << 80 | 0x7000 << 64 | 0x8000_0000_0000_0000 | scattered))


def seeded_name(number: int) -> str:
    """The name of a seeded session."""
    return f"name-{number:07d}"


def agents(total: int) -> int:
    """How many agents share a store of `total` sessions: twenty, or as many as leave a full page to each."""
    return max(1, min(AGENTS, total // PAGE))


def agent(number: int, total: int) -> str:
    """The agent of a seeded session."""
    return f"agent-{number % agents(total):02d}"


def spread(count: int, total: int) -> list[int]:
    """`count` numbers over 0 … total-1 in scattered order, so that no read profits from its neighbour."""
    chosen = [index * total // count for index in range(min(count, total))]
    random.Random(count).shuffle(chosen)
    return chosen
