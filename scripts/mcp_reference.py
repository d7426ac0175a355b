"""Writes docs/reference/mcp.md: every tool with what it takes and answers, every resource, every error of the protocol.

`python scripts/mcp_reference.py` writes it, `--check` only says whether it is fresh.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from moorage.doors.mcp import named
from moorage.doors.mcp.resources import TEMPLATES
from moorage.doors.mcp.table import Schema, Tool
from moorage.doors.mcp.tools import TOOLS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "mcp.md"

HEAD = """# MCP

What `/mcp` of a server and `moorage mcp` answer to ([how to use it](../mcp.md)). Scopes are those of
[keys](../access.md). A tool that fails answers with the error flag; its text is `code: what to do`, and its structured
content has an `error` with the code and the facts of the [error](errors.md).

"""
CHANGES = """
## Changes

What a client is told without asking.

- There are other agents, workers or tools: in revision 2026-07-28 by `subscriptions/listen` with `toolsListChanged`; in
  older ones by `notifications/tools/list_changed`, to a client that has listed them, but not with `serve --workers`.
- Something happened in a session: by `subscriptions/listen` with its address among up to 100 `resourceSubscriptions`;
  older revisions have to read it again.
- That there are other sessions is told to nobody.
"""
ERRORS = """
## Errors of the protocol

| code | when |
|---|---|
| -32602 | a tool that is not there (`tool_not_found`), no cursor (`invalid_cursor`), a resource that is out of reach |
| -32002 | a resource that is not there (`session_not_found`, `resource_not_found`) |
| -32700, -32600, -32601 | what is no JSON, no message of the protocol, no method of it |
| -32000 | of `moorage mcp`: the server does not answer, or does not let you in |
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
    parts = [HEAD, "## Tools\n", *map(_tool, TOOLS.values())]
    parts += [
        "\n## Agents, workers and tools by name\n\n",
        _fields(named.AGENT_INPUT),
        "\nA tool takes its own arguments, ",
    ]
    parts += ["`operation` if it has several, and `session_id`. Numbers may come as texts.\n"]
    parts += [f"\nAnswers: of agents and workers {_names(named.AGENT_OUTPUT)}; of tools {_names(named.TOOL_OUTPUT)}.\n"]
    parts += [
        "\n## Resources\n\n| address | |\n|---|---|\n",
        *(f"| `{uri}` | {told} |\n" for _, uri, told in TEMPLATES),
    ]
    return "".join([*parts, CHANGES, ERRORS])


def _tool(tool: Tool) -> str:
    does = [tool.scope.value, *(["may destroy"] if tool.destroys else []), *(["repeatable"] if tool.repeatable else [])]
    about = f"\n### {tool.name}\n\n{tool.description} ({', '.join(does)})\n"
    return f"{about}\n{_fields(tool.input_schema)}\nAnswers: {_names(tool.output_schema)}.\n"


def _fields(schema: Schema) -> str:
    rows = [
        f"| `{name}` | {_kind(field)} | {_about(name, field, schema)} |\n"
        for name, field in schema["properties"].items()
    ]
    return "".join(["| argument | | |\n|---|---|---|\n", *rows]) if rows else "Takes nothing.\n"


def _about(name: str, field: Schema, schema: Schema) -> str:
    told = [field["description"]] if "description" in field else []
    if name in schema.get("required", ()):
        told.append("must be given")
    elif field.get("default") not in (None, [], {}):
        told.append(f"`{str(field['default']).lower() if isinstance(field['default'], bool) else field['default']}`")
    return "; ".join(told).replace("|", "\\|")


def _kind(field: Schema) -> str:
    if "enum" in field:
        return " ".join(f"`{value}`" for value in sorted({str(value).lower() for value in field["enum"]}))
    kinds: list[Any] = [each.get("type") for each in field.get("anyOf", [field])]
    return " or ".join(str(kind) for kind in kinds if kind not in (None, "null")) or "any JSON"


def _names(schema: Schema) -> str:
    return ", ".join(f"`{name}`" for name in schema["properties"])


if __name__ == "__main__":
    sys.exit(main())
