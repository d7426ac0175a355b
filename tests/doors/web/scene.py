"""A store that looks lived in: for pictures, and for tests that want some of everything."""

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
    """Ids of what there is to see."""

    root: str  # of a family whose children ran and called back
    talk: str  # with a conversation that has some of everything
    asks: str  # waits for an approval
    runs: str  # at work


def furnish(stage: Stage, *, more: int = 40) -> Scene:
    """Fill a store by REST, with real runs."""
    for index in range(more):
        _plain(stage, index)
    scene = Scene(root=_family(stage), talk=a_talk(stage), asks=_asking(stage), runs=_running(stage))
    _backlog(stage, scene)
    return scene


def _plain(stage: Stage, index: int) -> None:
    agent = ("terraform-architect", "gitops-operator", "cloud-troubleshooter", "devops-developer")[index % 4]
    task = f"release-{index // 8 + 1}"
    session = stage.create(session_name=f"{agent.split('-')[0]}-{index:02}", agent_name=agent, task_id=task)
    said = f"Look at change {index} and tell whether it can go out"
    stage.ask("POST", f"/sessions/{session}/messages", {"content": said, "run": False})
    if index % 3:
        phase = ("investigating", "planning", "executing", "validating")[index % 4]
        stage.ask("PATCH", f"/sessions/{session}", {"phase": phase})
    if index % 7 == 1:
        stage.ask("PATCH", f"/sessions/{session}", {"error": "the plan does not apply: lock held"})
    if index % 5 == 0:
        outcome = ("completed", "failed", "abandoned")[index // 5 % 3]
        stage.ask(
            "POST", f"/sessions/{session}/finalize", {"outcome": outcome, "summary": f"Change {index}: {outcome}"}
        )
    elif index % 5 == 1:
        stage.ask("POST", f"/sessions/{session}/suspend", {"checkpoint": {"step": index}, "reason": "end of the day"})


def _family(stage: Stage) -> str:
    reply = stage.run("talker", "Roll the release out", session_name="release-lead", task_id="release-7", mode="sync")
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
    """A conversation with everything that one may have in it."""
    session = stage.create(session_name=name, agent_name="echo-agent", task_id="release-7", purpose="upgrade")
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
    """A second plan after one that was refused, work that was picked up, and a callback that nobody can take."""
    ask = f"/sessions/{scene.talk}/approvals"
    steps = ["drain node-3", "upgrade to 1.30", "uncordon node-3"]
    first = stage.ask("POST", ask, {"question": "Upgrade node-3?", "plan": {"steps": steps, "risk": "high"}})
    refused = {"decision": "reject", "note": "1.30 has the kubelet bug"}
    stage.ask("POST", f"/approvals/{first['approval_id']}/decision", refused)
    plan = {"steps": ["drain node-3", "upgrade to 1.31", "run smoke tests", "uncordon node-3"], "risk": "low"}
    question = {"question": "Upgrade node-3 to 1.31 instead?", "options": ["canary", "tonight"], "expires_in": 1500}
    stage.ask("POST", ask, {**question, "plan": plan})
    for number in (1, 1, 2, 3, 3):
        work = {"agent": "terraform-architect", "task_id": f"migration-{number}", "create": True}
        made = stage.ask("POST", "/delegations", work)["session"]["session_id"]
        stage.ask("PATCH", f"/sessions/{made}", {"phase": "investigating"})
    stage.ask("POST", f"/sessions/{made}/finalize", {"outcome": "completed"})
    stage.run("echo-agent", "Compare the dashboards of ap", parent="check-ap", mode="async_callback")
