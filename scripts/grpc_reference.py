"""Writes docs/reference/grpc.md: every service, method and message of proto/, with the scope each method takes.

`python scripts/grpc_reference.py` writes it, `--check` only says whether it is fresh.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from moorage.core.key import scope_text
from moorage.doors.grpc.platform import Platform
from moorage.doors.grpc.sessions import SessionsService

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "grpc.md"
FILES = ("agent_platform.proto", "moorage/v1/sessions.proto")

HEAD = """# gRPC

The [gRPC](../grpc.md) services of `moorage serve`, besides `grpc.health.v1.Health` and reflection. Scopes are those
of [keys](../access.md). Errors have the status of their family:

| status | family of [errors](errors.md) |
|---|---|
| `INVALID_ARGUMENT` | fix the request |
| `NOT_FOUND` | it is not there, or not yours |
| `FAILED_PRECONDITION` | refused as things stand |
| `ABORTED` | an agent failed in the middle of a stream |
| `UNAUTHENTICATED`, `PERMISSION_DENIED` | no key, or not with this one |
| `RESOURCE_EXHAUSTED` | too often, too many streams, too large |
| `UNAVAILABLE` | the store cannot answer, or no endpoint of an agent can be reached |
| `DEADLINE_EXCEEDED`, `CANCELLED` | the caller stopped waiting |

Trailing metadata of an error: `session-id`, `error-code`, `error-bin` (JSON). Metadata that a call may have:
`authorization`, `x-agent-session-id`, `x-agent-session-name`, `x-agent-run-id`, `x-moorage-by`, `x-moorage-holder`.
While a run waits, the initial metadata says why: `moorage-because` has the [reason](../lifecycle.md#status),
`moorage-because-facts` the facts that go with it (JSON). If it still waits at the end, the trailing metadata says so.
"""


def main() -> int:
    """Write the page, or say whether it is fresh."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text() == text else 1
    PAGE.write_text(text)
    return 0


def page() -> str:
    """The page as it has to be."""
    return HEAD + "".join(_file((ROOT / "proto" / name).read_text(), name) for name in FILES)


def _file(text: str, name: str) -> str:
    [package] = re.findall(r"^package ([\w.]+);", text, flags=re.M)
    parts = [f"\n## {package}\n\nIn [{name}](../../proto/{name}).\n"]
    for service, body in re.findall(r"^service (\w+) {\n(.*?)^}", text, flags=re.M | re.S):
        parts.append(f"\n### {service}\n\n| method | asks | answers | scope | |\n|---|---|---|---|---|\n")
        parts += [_method(*each) for each in _METHOD.findall(body)]
    parts.append("\n### Messages\n\n| message | fields |\n|---|---|\n")
    parts += [_message(*each) for each in re.findall(r"^message (\w+) {(.*?)}", text, flags=re.M | re.S)]
    return "".join(parts)


_METHOD = re.compile(r"((?:  // .*\n)*)  rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\);")


def _method(comment: str, name: str, asks: str, stream: str, answers: str) -> str:
    told = " ".join(line.removeprefix("  // ") for line in comment.splitlines()).rstrip(".")
    streamed = " …" if stream else ""
    return f"| `{name}` | `{asks}` | `{answers}`{streamed} | {_scope(name)} | {told} |\n"


def _scope(name: str) -> str:
    rpc = {**Platform().rpcs(), **SessionsService().rpcs()}[name]
    return "the operation's" if rpc.scope is None else scope_text(rpc.scope, rpc.or_scope)


def _message(name: str, body: str) -> str:
    fields = re.findall(r"^  (repeated )?([\w.<>, ]+?) (\w+) = (\d+);", body, flags=re.M)
    told = ", ".join(f"`{field}` {number}{' …' if repeated else ''}" for repeated, _, field, number in fields)
    return f"| `{name}` | {told or 'none'} |\n"


if __name__ == "__main__":
    sys.exit(main())
