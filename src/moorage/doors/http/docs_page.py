"""The OpenAPI document as a readable page: plain HTML, without scripts, usable offline."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; min-width: 4.5rem; font-family: ui-monospace, monospace; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8886; border-radius: .3rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top; }
.say { opacity: .75; } details details { margin-left: 1.5rem; }
"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest())
POLICY = (
    b"default-src 'none'; style-src 'sha256-" + _STYLE_HASH + b"'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'"
)


def docs_page(document: dict[str, Any]) -> str:
    """Return a page with every operation, grouped by topic."""
    groups: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(document, verb.upper(), path, operation))
    body = "".join(f"<h2>{escape(name)}</h2>{''.join(shown)}" for name, shown in groups.items())
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} {escape(info['version'])}: REST</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
        f"<p>{escape(info['description'])} For programs: <a href=openapi.json>openapi.json</a>.</p>{body}</html>"
    )


def _operation(document: dict[str, Any], verb: str, path: str, operation: dict[str, Any]) -> str:
    scope = f" · scope <code>{escape(operation['x-scope'])}</code>" if "x-scope" in operation else ""
    return (
        f"<details><summary><b>{verb}</b> <code>{escape(path)}</code> <span class=say>{escape(operation['summary'])}"
        f"</span></summary><p><code>{escape(operation['operationId'])}</code>{scope}</p>"
        f"{_parameters(operation)}{_body(document, operation)}{_answers(document, operation)}</details>"
    )


def _parameters(operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{escape(_kind(each['schema']))}"
        f"<td>{'required' if each.get('required') else ''}<td>{escape(each.get('description', ''))}"
        for each in operation["parameters"]
    )
    return f"<table>{rows}</table>" if rows else ""


def _body(document: dict[str, Any], operation: dict[str, Any]) -> str:
    if "requestBody" not in operation:
        return ""
    content = operation["requestBody"]["content"]
    return "".join(f"<p>Body, {escape(kind)}</p>{_shape(document, each['schema'])}" for kind, each in content.items())


def _answers(document: dict[str, Any], operation: dict[str, Any]) -> str:
    told = []
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            for kind, each in answer.get("content", {}).items():
                told.append(f"<p>Answer {status}, {escape(kind)}</p>{_shape(document, each['schema'])}")
    return "".join(told)


def _shape(document: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the fields of an object, or the kind of anything else."""
    name = schema.get("$ref", "").rpartition("/")[2]
    known = document["components"]["schemas"].get(name, schema)
    fields = known.get("properties")
    if not fields:
        return f"<pre>{escape(_kind(schema))}</pre>"
    required = set(known.get("required", ()))
    lines = [f"  {field}{'' if field in required else '?'}: {_kind(each)}" for field, each in fields.items()]
    return f"<pre>{escape(name)} {{\n{escape(chr(10).join(lines))}\n}}</pre>"


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    return str(schema.get("format") or schema.get("type") or "any JSON")
