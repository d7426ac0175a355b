"""A store with sessions of every kind: for screenshots, and for tests that need them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.doors.web.stage import Stage, until

ANSWER = """Here is what I found:

1. `node-3` still runs **1.30**, the others *1.31*
2. the drain takes about two minutes

```python
def drain(node: str, *, grace: int = 120) -> None:
    # leave DaemonSets alone
    for pod in pods_on(node):
        evict(pod, grace=grace)
```

| node | version |
|---|---|
| node-1 | 1.31 |
| node-3 | 1.30 |

> Nothing else is affected. See the [runbook](https://example.org/runbook).
"""


class Scene(NamedTuple):
    """Ids of the sessions."""

    root: str  # of a family whose children ran and called back
    talk: str  # with a conversation of every kind of content
    trace: str  # with a run of two turns, tools, an approval and a child
    asks: str  # waits for an approval
    runs: str  # at work


def furnish(stage: Stage, *, more: int = 40) -> Scene:
    """Fill a store by REST, with real runs."""
    _delegations(stage)
    for index in range(more):
        _plain(stage, index)
    scene = Scene(
        root=_family(stage), talk=a_talk(stage), trace=_releasing(stage), asks=_asking(stage), runs=_running(stage)
    )
    _backlog(stage, scene)
    return scene


WORK = (  # agent, purpose and prompt of sessions from several walks of life
    ("support-triage", "answer ticket", "A customer cannot log in since the update"),
    ("research-writer", "literature review", "Collect what is known about reef restoration"),
    ("invoice-checker", "month-end", "Compare the invoices with the orders"),
    ("terraform-architect", "approval workflow", "Plan the change and tell whether it can go out"),
    ("travel-planner", "book a trip", "Find a train to Lisbon in May"),
)


def _plain(stage: Stage, index: int) -> None:
    agent, purpose, prompt = WORK[index % len(WORK)]
    name = f"{agent.partition('-')[0]}-{1200 + index}"
    session = stage.create(session_name=name, agent_name=agent, task_id=f"week-{index // 8 + 1}", purpose=purpose)
    stage.ask("POST", f"/sessions/{session}/messages", {"content": prompt, "run": False})
    if index % 3:
        phase = ("investigating", "planning", "executing", "validating")[index % 4]
        stage.ask("PATCH", f"/sessions/{session}", {"phase": phase})
    if index % 7 == 1:
        stage.ask("PATCH", f"/sessions/{session}", {"error": "the mailbox is locked"})
    if index % 4 == 0:
        outcome = ("completed", "failed", "abandoned")[index // 4 % 3]
        stage.ask("POST", f"/sessions/{session}/finalize", {"outcome": outcome, "summary": f"{purpose}: {outcome}"})
    elif index % 4 == 1:
        stage.ask("POST", f"/sessions/{session}/suspend", {"checkpoint": {"step": index}, "reason": "end of the day"})


def _releasing(stage: Stage) -> str:
    """A run with two turns, tool calls, an approval and a child."""
    session = a_release(stage, "release-notes")
    [asked] = stage.ask("GET", f"/approvals?session={session}&pending_only=true")["items"]
    stage.ask("POST", f"/approvals/{asked['approval_id']}/decision", {"decision": "approve"})
    stage.until_status(session, "idle")
    return session


def a_release(stage: Stage, name: str) -> str:
    """Ask for release notes; return the session once it waits for its approval."""
    asked = stage.run(
        "releaser", "Publish the notes of 1.5", session_name=name, purpose="release 1.5", mode="async_poll"
    )
    session = str(asked["session"]["session_id"])
    stage.until_status(session, "waiting")
    until(lambda: stage.ask("GET", f"/approvals?session={session}&pending_only=true")["items"])
    return session


def _family(stage: Stage) -> str:
    reply = stage.run(
        "talker",
        "Roll the release out",
        session_name="release-lead",
        task_id="release-7",
        purpose="roll out 1.5",
        mode="sync",
    )
    root = str(reply["session"]["session_id"])
    for agent, name in (("talker", "check-eu"), ("talker", "check-us"), ("broken", "check-ap")):
        stage.run(agent, f"Check {name}", session_name=name, parent=root, mode="async_callback")
    until(lambda: all(run["settled_at"] for run in _runs_below(stage, root)) or None)
    child = stage.ask("GET", "/sessions/check-eu")["session_id"]
    stage.run("echo-agent", "Compare the dashboards", session_name="dashboards", parent=child, mode="sync")
    return root


def _runs_below(stage: Stage, root: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stage.ask("GET", f"/runs?parent={root}")["items"]
    return found


def a_talk(stage: Stage, name: str = "upgrade-prod") -> str:
    """Create a conversation with every kind of content."""
    session = stage.create(
        session_name=name, agent_name="echo-agent", task_id="release-7", purpose="upgrade the cluster"
    )
    say = f"/sessions/{session}/messages"
    call = {"type": "tool_call", "id": "c1", "name": "kubectl", "input": {"args": ["get", "nodes"], "output": "wide"}}
    result = {"type": "tool_result", "call_id": "c1", "content": "node-1 Ready v1.31\nnode-3 Ready v1.30"}
    picture = {"type": "image", "url": "https://example.org/graph.png", "alt": "CPU of node-3"}
    stage.ask("PATCH", f"/sessions/{session}", {"phase": "investigating"})
    for message in (
        {"role": "system", "content": "You look after the production cluster."},
        {"role": "user", "content": "Which nodes have to be upgraded, and how long will it take?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, call]},
        {"role": "tool", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": ANSWER}, picture]},
    ):
        stage.ask("POST", say, {**message, "run": False})
    stage.ask("PATCH", f"/sessions/{session}", {"phase": "planning"})
    stage.ask("POST", f"/sessions/{session}/checkpoints", {"checkpoint": {"step": 2, "drained": ["node-3"]}})
    stage.ask("PUT", f"/sessions/{session}/context/maintenance_window", {"from": "02:00", "to": "04:00"})
    stage.ask("PUT", f"/sessions/{session}/context/cluster?ttl=86400", "prod-eu")
    stage.ask("POST", say, {"content": "Do it tonight.", "wait": 30})
    return session


def _asking(stage: Stage) -> str:
    reply = stage.run("careful", "Upgrade node-3", session_name="upgrade-node-3", mode="async_poll")
    session = str(reply["session"]["session_id"])
    stage.until_status(session, "waiting")
    return session


def _running(stage: Stage) -> str:
    session = str(stage.run("slow", "Scan all images", session_name="scan", mode="async_poll")["session"]["session_id"])
    stage.until_status(session, "running")
    return session


def _backlog(stage: Stage, scene: Scene) -> None:
    """Add a second plan after a rejected one, and a callback that becomes a dead letter.

    The second question comes before the answer to the first, so that no turn starts in between.
    """
    ask = f"/sessions/{scene.talk}/approvals"
    steps = ["drain node-3", "upgrade to 1.30", "uncordon node-3"]
    first = stage.ask("POST", ask, {"question": "Upgrade node-3?", "plan": {"steps": steps, "risk": "high"}})
    plan = {"steps": ["drain node-3", "upgrade to 1.31", "run smoke tests", "uncordon node-3"], "risk": "low"}
    question = {"question": "Upgrade node-3 to 1.31 instead?", "options": ["canary", "tonight"], "expires_in": 1500}
    stage.ask("POST", ask, {**question, "plan": plan})
    refused = {"decision": "reject", "note": "1.30 has the kubelet bug"}
    stage.ask("POST", f"/approvals/{first['approval_id']}/decision", refused)
    stage.run("echo-agent", "Compare the dashboards of ap", parent="check-ap", mode="async_callback")


def _delegations(stage: Stage) -> None:
    for number in (1, 1, 2, 3, 3):
        work = {"agent": "terraform-architect", "task_id": f"migration-{number}", "create": True}
        made = stage.ask("POST", "/delegations", work)["session"]["session_id"]
        stage.ask("PATCH", f"/sessions/{made}", {"phase": "investigating"})
    stage.ask("POST", f"/sessions/{made}/finalize", {"outcome": "completed"})
