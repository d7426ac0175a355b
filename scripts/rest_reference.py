"""Writes docs/reference/rest.md: every route of the HTTP door, from the table of operations and what routes say.

`python scripts/rest_reference.py` writes it, `--check` only says whether it is fresh.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from moorage import config
from moorage.core.key import scope_text
from moorage.doors.http.app import Route
from moorage.doors.http.openapi import described
from moorage.doors.http.serve import make_door

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "rest.md"

HEAD = """# REST

The routes of `moorage serve`. `GET /openapi.json` has the same for programs, with every type, and `/docs` as a page.
`/graphql` and `/mcp` have references of their own: [GraphQL](graphql.md), [MCP](mcp.md).

- Bodies and answers are JSON. A list is `{"items": […], "next": …}`; `next` goes into `cursor` (or `before`, `after`)
  for what follows, and is null at the end.
- Wherever a path has `{session_id}`, a session's name will do as well.
- An error is `application/problem+json` with `code`, `detail`, its facts, `status` and `request_id`; the
  [codes](errors.md) are the same at every door.
- `Idempotency-Key` on a POST that creates a session or something in its log (`openapi.json` says which): asked again
  within 24 hours, the same answer; with another body, 409. `POST /keys` makes another [key](../access.md) each time.
- A session's `ETag` is its version and its last entry. `If-None-Match` gets 304, `If-Match` on a change 412 if the
  session's version is another by now: on every route with `{session_id}`, compared in the transaction that makes the
  change. A field `version` of a context's routes is the version of the key, or of the whole context.
- `X-Request-Id` comes back, and stands in every line of the log about the request.
- `X-Agent-Session-Id` or `X-Agent-Session-Name` name the session that asks, where the body does not: the parent.
- `X-Moorage-Holder`, or `holder` in the body of a `resume`, says who would drive a session, and gets the hold again
  with a new token, which ends the old one. Without it the key is the holder, so workers that share a key need names.
  On a server without keys every request is a new holder: of two that resume a session, one gets it, the other 409.
- `Authorization: Bearer KEY`, once the store has [keys](../access.md). The scope that a route needs is in its line.

The fields of a request are in the query of a GET or DELETE, and in the body of other methods; fields in
parentheses are optional. [Over HTTP](../http.md) tells how to send messages and follow streams.
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
    door = make_door(config.open_deps("memory://", threaded=True))
    groups: dict[str, list[tuple[str, str]]] = {}
    for route in described(door.routes):
        groups.setdefault(_group(route.path), []).append((route.path, _row(route)))
    parts = [HEAD]
    for name, rows in sorted(groups.items()):
        lines = [row for _, row in sorted(rows)]
        parts.append(f"\n## {name}\n\n| route | | scope | fields |\n|---|---|---|---|\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def _group(path: str) -> str:
    return "/" + path.split("/")[1]


def _row(route: Route) -> str:
    fields = [name for kind in (route.query, route.body) if kind is not None for name in _fields(kind)]
    if route.operation is not None and route.operation.body is not None:
        fields.insert(0, f"the {route.operation.body[:5]} is the body")
    scope = "" if route.scope is None else scope_text(route.scope, route.or_scope)
    told = re.sub(r"\s+", " ", str(route.summary).rstrip(".")).replace("|", "\\|")
    return f"| `{route.verb} {route.path}` | {told} | {scope} | {', '.join(fields)} |"


def _fields(kind: Any) -> list[str]:
    if kind is bytes or isinstance(kind, dict):
        return []
    return [each.name if each.required else f"({each.name})" for each in msgspec.structs.fields(kind)]


if __name__ == "__main__":
    sys.exit(main())
