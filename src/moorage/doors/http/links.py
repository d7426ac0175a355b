"""Links of the OpenAPI document: which operations take what an answer names.

They tell generators and testing tools that the id of a session that was just created leads to its messages.
"""

from __future__ import annotations

from typing import Any

ABOUT_ONE = "{session_id}"
SESSION = {"session_id": "$response.body#/session_id"}
OF_RUN = ("get_run", "result", "stop_run", "retry")
SAME_SESSION = {"session_id": "$request.path.session_id"}
SAME_KEY = {**SAME_SESSION, "key": "$request.path.key"}

# By the operation whose answer it is: where its values go, and to which operations; no operations: all about a session.
LINKS: dict[str, list[tuple[dict[str, str], tuple[str, ...]]]] = {
    "create": [(SESSION, ())],
    "agent_sessions_create": [(SESSION, ("agent_sessions_get", "agent_sessions_messages", "agent_sessions_complete"))],
    "fork": [(SESSION, ("get", "messages", "ancestors"))],
    "run": [
        ({"run_id": "$response.body#/run/run_id"}, OF_RUN),
        ({"session_id": "$response.body#/run/session_id"}, ("get", "messages", "log")),
    ],
    "request_approval": [({"approval_id": "$response.body#/approval_id"}, ("approval", "decide"))],
    "save_checkpoint": [({**SAME_SESSION, "number": "$response.body#/number"}, ("checkpoint_one",))],
    "context.put": [(SAME_KEY, ("context.get_one", "context.delete_one"))],
    "register_launcher": [
        ({"launcher_id": "$response.body#/launcher_id"}, ("turn_claim", "turn_heartbeat", "drain_launcher"))
    ],
    "create_key": [({"key_id": "$response.body#/key/key_id"}, ("revoke_key",))],
    "define_agent": [({"name": "$response.body#/name"}, ("agent", "remove_agent"))],
}


def add_links(paths: dict[str, dict[str, Any]]) -> None:
    """Put the links into the answers of the operations."""
    operations = {each["operationId"]: each for verbs in paths.values() for each in verbs.values()}
    about_one = [  # but not the newest checkpoint: a new session has none
        each["operationId"]
        for path, verbs in paths.items()
        for each in verbs.values()
        if path.startswith(f"/sessions/{ABOUT_ONE}") and path.count("{") == 1 and each["operationId"] != "checkpoint"
    ]
    for name, links in LINKS.items():
        answer = next(each for status, each in operations[name]["responses"].items() if status in ("200", "201"))
        answer["links"] = {
            target: {"operationId": operations[target]["operationId"], "parameters": values}
            for values, targets in links
            for target in targets or about_one
        }
