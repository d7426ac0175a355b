"""A family of ann's, a session of hers beside it and one of bob's, each with a word of its own in all it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from moorage.service.keys import session_token
from tests.doors.http.visitors import Guarded

ABOVE = {
    "parent": None,
    "child": "parent",
    "sibling": "parent",
    "grandchild": "child",
    "stranger": None,
    "bob": None,
}
EVERYONE = tuple(ABOVE)
OF_ANN = frozenset(EVERYONE) - {"bob"}
VISIBLE_TO = {  # of a session's token
    "parent": {"parent", "child", "sibling", "grandchild"},
    "child": {"child", "grandchild"},
    "sibling": {"sibling"},
    "grandchild": {"grandchild"},
}
NAMES_ITS_PARENT = re.compile(r"(parent|root)_?session_?(id|name)", re.IGNORECASE)  # a record names its parent and root

HOUR = 3600  # seconds; a turn whose lease ends changes sessions while a walk compares them
Leaf = tuple[str, str]  # where it stands in an answer, and the text


def owner_of(who: str) -> str:
    return "ann" if who in OF_ANN else "bob"


def id_of(who: str) -> str:
    return f"id-of-{who}"


def secret(who: str) -> str:
    return f"word-of-{who}"


async def token_of(place: Guarded, who: str) -> str:
    return await session_token(place.door.deps, owner_of(who), id_of(who))


async def settle(place: Guarded) -> dict[str, dict[str, str]]:
    """Make the sessions; return what stands in paths, for each."""
    keys = {owner: await place.embedded(owner).create_key(scopes=["read"]) for owner in ("ann", "bob")}
    places = {who: await _settle_one(place, who) | {"key_id": keys[owner_of(who)].key.key_id} for who in EVERYONE}
    for who in ("child", "bob"):
        places[who] |= await _claim(place, who)
    return places


async def _settle_one(place: Guarded, who: str) -> dict[str, str]:
    moor, word, parent = place.embedded(owner_of(who)), secret(who), ABOVE[who]
    await moor.create(
        "planner", session_id=id_of(who), parent=None if parent is None else id_of(parent), purpose=word,
        metadata={"why": word}, task_id="T001" if parent is None else None,
    )  # fmt: skip
    await moor.append(id_of(who), [word, f"{word} again"])
    number = (await moor.save_checkpoint(id_of(who), {"step": word})).number
    await moor.context.put(id_of(who), "tone", word)
    await moor.records.put(id_of(who), "notes", "one", word)
    if parent is None:
        await moor.memory.put("notes", "one", word)
    await moor.update(id_of(who), error=word)
    approval = await moor.request_approval(id_of(who), f"{word}?", plan=word)
    asked = await moor.run("echo-agent", word, mode="async_poll", session_id=f"run-of-{who}", parent=id_of(who))
    [item] = (await moor.inbox(f"run-of-{who}")).items
    return {
        "session_id": id_of(who),
        "key": "tone",
        "namespace": "notes",
        "record_key": "one",
        "number": str(number),
        "approval_id": approval.approval_id,
        "run_id": asked.run.run_id,
        "item_id": item.item_id,
        "launcher_id": "x",
        "turn_id": "x",
        "name": "echo-agent",
        "tool": "weather-tool",
    }


async def _claim(place: Guarded, who: str) -> dict[str, str]:
    """Let a launcher of the owner's take the turn of `who`."""
    launch = place.visitor(await place.key(owner_of(who), "launch"))
    launcher = (await launch.post("/launchers", json={"name": secret(who)})).json()["launcher_id"]
    wish = {"agents": {"echo-agent": "resume"}, "room": len(EVERYONE), "lease": HOUR, "lost_after": HOUR}
    claimed = (await launch.post(f"/launchers/{launcher}/claim", json=wish)).json()["turns"]
    [turn] = [each["turn"] for each in claimed if each["turn"]["session_id"] == f"run-of-{who}"]
    approval = await place.embedded(owner_of(who)).request_approval(f"run-of-{who}", f"{secret(who)}?")
    return {"launcher_id": launcher, "turn_id": turn["turn_id"], "approval_id": approval.approval_id}


def check(visible: Iterable[str], text: str, asked_for: dict[str, str] | None = None) -> None:
    """Fail if a field of an answer tells of sessions out of scope; callers know the ids that they asked for."""
    others = [mark for who in set(EVERYONE) - set(visible) for mark in (secret(who), f"run-of-{who}", id_of(who))]
    known = [value for value in (asked_for or {}).values() if "-of-" in value]
    told = [(where, leaf) for where, leaf in leaves(text) if _tells(leaf, others, known)]
    assert not told, f"a caller that reaches {sorted(visible)} is told of others: {told}"


def _tells(leaf: str, marks: Iterable[str], known: Iterable[str]) -> bool:
    for value in known:
        leaf = leaf.replace(value, "")
    return any(mark in leaf for mark in marks)


def leaves(text: str) -> Iterator[Leaf]:
    """Every text in an answer that is JSON or lines of JSON, but for the names of a record's parent and root."""
    try:
        yield from _leaves("", json.loads(text))
    except ValueError:
        for number, line in enumerate(text.splitlines()):
            try:
                yield from _leaves(f"line {number}", json.loads(line.removeprefix("data: ")))
            except ValueError:
                yield f"line {number}", line


def _leaves(where: str, value: Any) -> Iterator[Leaf]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield f"{where}.{name}", name
            if not NAMES_ITS_PARENT.fullmatch(name):
                yield from _leaves(f"{where}.{name}", each)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _leaves(f"{where}[{number}]", each)
    elif isinstance(value, str) and value[:1] in "{[" and value:
        yield from leaves(value)  # JSON in a text, as answers of MCP have it
    elif isinstance(value, str):
        yield where, value
