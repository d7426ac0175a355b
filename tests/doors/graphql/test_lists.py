"""Lists with what hangs on each item: read together, a page at a time, nothing twice and nothing left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage import config
from moorage.api import Moorage
from moorage.service.deps import Deps
from tests.doors.graphql.client import Client
from tests.doors.http.server import Served, serving

HEADS = "nodes { sessionId } pageInfo { hasNextPage endCursor }"


class Counting:
    """A store that notes what it is asked."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **options)

        return counted


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[Counting, Client, Moorage]]:
    real = config.open_deps(url, threaded=True)
    store: Any = Counting(real.store)
    deps = Deps(store, real.clock, real.entropy, real.settings, real.find_agent)
    async with serving(deps) as served, Client(served.url) as gql:
        yield store, gql, served.moorage()
    await real.store.close()


WHOLE = """
query ($ref: ID!) {
  agentSession(sessionId: $ref) {
    children(first: 100) {
      nodes {
        sessionId
        parent { sessionId parent { sessionId } }
        history(last: 2) { nodes { text } pageInfo { hasPreviousPage } }
        older: history(last: 1, before: "3") { nodes { text } }
        approvals { question }
        children(first: 2) { nodes { sessionId history(last: 1) { nodes { text } } } pageInfo { hasNextPage } }
      }
    }
  }
}
"""


async def family(moor: Moorage, name: str, children: int) -> None:
    await moor.create(session_id=name, parent=None)
    for number in range(children):
        child = f"{name}-{number}"
        await moor.create(session_id=child, parent=name)
        await moor.append(child, [f"{child} one", f"{child} two", f"{child} three"])
        await moor.request_approval(child, f"{child}?")
        await moor.create(session_id=f"{child}-x", parent=child)
        await moor.append(f"{child}-x", [f"{child} x"])


async def test_nested_fields_of_a_list_are_read_in_batches(url: str) -> None:
    async with counted(url) as (store, gql, moor):
        await family(moor, "small", 1)
        await family(moor, "large", 30)
        asked = {}
        for name in ("small", "large"):
            await gql.data("{ __typename }")  # what is due has been looked at
            store.calls.clear()
            answer = await gql.data(WHOLE, ref=name)
            asked[name] = Counter({call: count for call, count in store.calls.items() if call not in CLOCKWORK})
            check_family(answer["agentSession"]["children"]["nodes"], name)
        assert asked["large"] == asked["small"]
        # its head; its children; their parents, and theirs; their children; two windows, then a third; their approvals
        assert sum(asked["large"].values()) <= 9, asked
        assert asked["large"]["tails"] == 3
        assert asked["large"]["find"] == 2


async def test_a_session_with_its_history_is_one_read(url: str) -> None:
    async with counted(url) as (store, gql, moor):
        await family(moor, "small", 1)
        store.calls.clear()
        query = """{ agentSession(sessionId: "small-0") { state history(last: 2) { nodes { text } pageInfo {
          startCursor } } } }"""
        window = (await gql.data(query))["agentSession"]["history"]
        assert [each["text"] for each in window["nodes"]] == ["small-0 two", "small-0 three"]
        assert window["pageInfo"]["startCursor"] == "3"
        assert {call: count for call, count in store.calls.items() if call not in CLOCKWORK} == {"tail": 1}


# Time passes at every door, and each asks now and then whether there are keys (documents).
CLOCKWORK = {"next_expiry", "documents", "sweep", "pulse", "wait"}


def check_family(nodes: list[Any], name: str) -> None:
    assert [each["sessionId"] for each in nodes] == [f"{name}-{number}" for number in range(len(nodes))]
    for each in nodes:
        child = each["sessionId"]
        assert each["parent"] == {"sessionId": name, "parent": None}
        assert [said["text"] for said in each["history"]["nodes"]] == [f"{child} two", f"{child} three"]
        assert each["history"]["pageInfo"]["hasPreviousPage"] is True
        assert [said["text"] for said in each["older"]["nodes"]] == [f"{child} one"]
        assert [asked["question"] for asked in each["approvals"]] == [f"{child}?"]
        [grandchild] = each["children"]["nodes"]
        assert grandchild == {"sessionId": f"{child}-x", "history": {"nodes": [{"text": f"{child} x"}]}}


async def test_pages_of_children_hold_each_once(gql: Client, served: Served) -> None:
    moor = served.moorage()
    await moor.create(session_id="mother", parent=None)
    for number in range(7):
        await moor.create(session_id=f"child-{number}", parent="mother")
    query = f"""query ($after: String) {{ agentSession(sessionId: "mother") {{
      children(first: 3, after: $after) {{ {HEADS} }} }} }}"""
    seen: list[str] = []
    after, pages = None, 0
    while after is not None or not pages:
        page = (await gql.data(query, after=after))["agentSession"]["children"]
        seen += [each["sessionId"] for each in page["nodes"]]
        after, pages = page["pageInfo"]["endCursor"], pages + 1
        assert page["pageInfo"]["hasNextPage"] is (after is not None)
    assert seen == [f"child-{number}" for number in range(7)]


async def test_a_plain_list_goes_on_after_the_cursor_of_its_connection(gql: Client, served: Served) -> None:
    for number in range(5):
        await served.moorage().create("a" if number % 2 else "b", session_id=f"s-{number}", parent=None)
    page = await gql.data(f'{{ agentSessionsConnection(agentName: "b", first: 2) {{ {HEADS} }} }}')
    connection = page["agentSessionsConnection"]
    assert [each["sessionId"] for each in connection["nodes"]] == ["s-4", "s-2"]
    query = 'query ($after: String) { agentSessions(agentName: "b", limit: 2, after: $after) { sessionId } }'
    rest = await gql.data(query, after=connection["pageInfo"]["endCursor"])
    assert rest == {"agentSessions": [{"sessionId": "s-0"}]}


async def test_histories_are_paged_backwards(gql: Client, served: Served) -> None:
    await served.moorage().create(session_id="long", parent=None)
    await served.moorage().append("long", [f"m-{number}" for number in range(10)])
    query = """query ($before: String) { agentSession(sessionId: "long") {
      history(last: 4, before: $before) { nodes { text } pageInfo { hasPreviousPage startCursor } } } }"""
    seen: list[str] = []
    before, pages = None, 0
    while before is not None or not pages:
        page = (await gql.data(query, before=before))["agentSession"]["history"]
        seen[:0] = [each["text"] for each in page["nodes"]]
        before, pages = page["pageInfo"]["startCursor"], pages + 1
    assert (seen, pages) == ([f"m-{number}" for number in range(10)], 3)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("state: ACTIVE", ["busy"]),
        ("state: CREATED", ["child", "idle"]),
        ('agentName: "planner"', ["busy"]),
        ("interface: CLI", ["idle"]),
        ('interface: "cli"', ["idle"]),
        ('parent: "busy"', ["child"]),
        ('parent: "named"', ["child"]),
        ('taskId: "t-1"', ["child", "busy"]),
        ("limit: 1", ["child"]),
    ],
)
async def test_filters_find_matching_sessions(gql: Client, served: Served, filters: str, found: list[str]) -> None:
    moor = served.moorage()
    cli = await gql.http.post("/sessions", json={"session_id": "idle"}, headers={"x-moorage-interface": "cli"})
    assert cli.status_code == 201
    await moor.create("planner", session_id="busy", name="named", task_id="t-1", parent=None)
    await moor.append("busy", ["hello"])
    await moor.create(session_id="child", parent="busy")
    answer = await gql.data(f"{{ agentSessions({filters}) {{ sessionId }} }}")
    assert [each["sessionId"] for each in answer["agentSessions"]] == found


async def test_the_variable_of_an_interface_takes_any_case(gql: Client, served: Served) -> None:
    await gql.http.post("/sessions", json={"session_id": "idle"}, headers={"x-moorage-interface": "cli"})
    query = "query ($by: Interface) { agentSessions(interface: $by) { sessionId interface } }"
    assert await gql.data(query, by="CLI") == {"agentSessions": [{"sessionId": "idle", "interface": "cli"}]}


async def test_window_keeps_pairs_and_pinned_messages(gql: Client, served: Served, tmp_path: Path) -> None:
    moor = served.moorage()
    await moor.create(session_id="s", parent=None)
    await moor.append("s", [{"role": "system", "content": "rules"}, "a", "b"])
    await moor.append("s", [{"role": "assistant", "content": [{"type": "tool_call", "id": "c", "name": "t"}]}])
    await moor.append("s", [{"role": "tool", "content": [{"type": "tool_result", "call_id": "c", "output": 1}]}])
    expected = [entry.number for entry in (await moor.messages("s", last=1)).items]
    answer = await gql.data('{ agentSession(sessionId: "s") { history(last: 1) { nodes { number } } } }')
    assert [each["number"] for each in answer["agentSession"]["history"]["nodes"]] == expected
    assert len(expected) > 1
