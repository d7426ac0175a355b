"""Writes docs/reference/mcp.md and mcp-tools.md: every tool with arguments and answer, resources, protocol errors.

`python scripts/mcp_reference.py` writes them, `--check` only says whether they are fresh.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from moorage.doors.mcp import named
from moorage.doors.mcp.calls import McpTool, Schema
from moorage.doors.mcp.resources import TEMPLATES
from moorage.doors.mcp.tools import TOOLS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"

HEAD = """# MCP

The tools and resources of `/mcp` of a server and of `moorage mcp` ([how to use it](../mcp.md)). Scopes are those of
[keys](../access.md). A tool that fails answers with the error flag; its text is `code: what to do`, and its structured
content has an `error` with the code and the facts of the [error](errors.md). The [tools](mcp-tools.md) have a page of
their own.

"""
TOOLS_HEAD = """# MCP tools

Every tool of [MCP](mcp.md) with its scope, arguments and answer.
"""
CHANGES = """
## Changes

Notifications to clients.

- There are other agents, workers or tools: in revision 2026-07-28 by `subscriptions/listen` with `toolsListChanged`; in
  older ones by `notifications/tools/list_changed`, to a client that has listed them, but not with `serve --workers`.
- Something happened in a session: by `subscriptions/listen` with its address among up to 100 `resourceSubscriptions`;
  older revisions have to read it again.
- Other sessions are not announced.
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
    """Write the pages, or compare them."""
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in pages().items()))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    parts = [HEAD, "## Agents, workers and tools by name\n\n", _fields(named.AGENT_INPUT)]
    parts += [
        "\nA tool takes its own arguments, `operation` if it has several, and `session_id`. Numbers may be strings.\n"
    ]
    parts += [f"\nAnswers: of agents and workers {_names(named.AGENT_OUTPUT)}; of tools {_names(named.TOOL_OUTPUT)}.\n"]
    parts += [
        "\n## Resources\n\n| address | |\n|---|---|\n",
        *(f"| `{uri}` | {told} |\n" for _, uri, told in TEMPLATES),
    ]
    return {
        REFERENCE / "mcp.md": "".join([*parts, CHANGES, ERRORS]),
        REFERENCE / "mcp-tools.md": "".join([TOOLS_HEAD, *map(_tool, TOOLS.values())]),
    }


def _tool(tool: McpTool) -> str:
    does = [tool.scope.value, *(["may destroy"] if tool.destroys else []), *(["repeatable"] if tool.repeatable else [])]
    about = f"\n## {tool.name}\n\n{tool.description} ({', '.join(does)})\n"
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
    elif field.get("default") not in (None, (), [], {}):
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
