"""Memory: values that all sessions of an owner share, and the context of one session."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from moorage.core.codec import as_text
from moorage.core.errors import RecordNotFound, utc_text
from moorage.core.record import BYTES, Record
from moorage.doors.cli import arguments
from moorage.doors.cli.app import App, group
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import is_terminal, say, warn_of_secrets
from moorage.doors.cli.tables import page_options, show_list, show_rows, wide_option
from moorage.doors.cli.wording import ago
from moorage.service.records import ContextWritten

NAMES = "namespace", "key", "version", "size", "updated_at", "expires_at"

namespace_argument = click.argument("namespace")
key_version = arguments.expected_version("Refuse if the key is at another version.")


@group("memory", "moorage memory set preferences units metric", "moorage memory get preferences units")
def memory() -> None:
    """Read and write values that all your sessions share."""


@memory.subcommand("get", "moorage memory get preferences units", "moorage --json memory get preferences units")
@namespace_argument
@click.argument("key")
def get(app: App, namespace: str, key: str) -> None:
    """Show the value of a key; bytes in base64."""
    record = app.moor.memory.get(namespace, key)
    if record is None:
        raise RecordNotFound(namespace, key)
    app.show(_shown(record), lambda: say(_text(record)))


@memory.subcommand(
    "set",
    "moorage memory set preferences units metric",
    "moorage memory set preferences limits '{\"cpu\": 4}' --ttl 30d",
    "moorage memory set locks deploy me --expected-version 0",
)
@namespace_argument
@click.argument("key")
@click.argument("value")
@arguments.flag("--text", "Store VALUE as text, even if it is JSON.")
@arguments.ttl
@key_version
def set_(app: App, /, namespace: str, key: str, value: str, text: bool, **options: Any) -> None:
    """Store a value under a key.

    VALUE is stored as JSON if it is valid JSON, else as text. Version 0 means that the key must be new.
    """
    kept = value if text else arguments.read_value(value, key)
    written = app.moor.memory.put(namespace, key, kept, **options)
    told = f"Stored: {key} of {namespace} (version {written.version})"
    app.show(written, lambda: say(told) if is_terminal() else None)


@memory.subcommand("list", "moorage memory list preferences", "moorage memory list preferences --prefix un")
@namespace_argument
@click.option("--prefix", default="", metavar="TEXT", help="Only keys with this prefix.")
@wide_option
@page_options
def list_(app: App, namespace: str, prefix: str, limit: int | None, cursor: str | None) -> None:
    """List keys with their values, in the order of keys."""
    ask = partial(app.moor.memory.list, namespace, prefix=prefix)
    nothing = f"Nothing is stored in {namespace}."
    show_list(app, ask, _show_all, limit=limit, cursor=cursor, nothing=nothing, by="after", document=_shown)


def _show_all(records: Sequence[Record]) -> None:
    when = ago if is_terminal() else utc_text
    rows = [(each.key, each.version, when(each.updated_at), _text(each)) for each in records]
    show_rows(("key", "version", "updated", "value"), rows)


@memory.subcommand("delete", "moorage memory delete preferences units", "moorage memory delete preferences --all")
@namespace_argument
@click.argument("key", required=False)
@click.option("--prefix", metavar="TEXT", help="Delete all keys with this prefix.")
@arguments.flag("--all", "everything", "Delete the whole namespace.")
@key_version
def delete(app: App, /, namespace: str, key: str | None, prefix: str | None, everything: bool, **known: Any) -> None:
    """Delete a key, or all keys with a prefix. Missing keys are no error."""
    if [key is not None, prefix is not None, everything].count(True) != 1:
        raise UsageProblem("say what to delete: one of KEY, --prefix and --all")
    if key is not None:
        app.moor.memory.delete(namespace, key, **known)
    else:
        app.moor.memory.delete(namespace, prefix or "", prefix=True)
    told = {"namespace": namespace, "key": key, "prefix": prefix if key is None else None}
    app.show(told, lambda: say("Deleted.") if is_terminal() else None)


def _shown(record: Record) -> dict[str, Any]:
    about = {name: getattr(record, name) for name in NAMES}
    return {**about, **({"base64": _text(record)} if record.form == BYTES else {"value": record.content})}


def _text(record: Record) -> str:
    return b64encode(record.value).decode() if record.form == BYTES else as_text(record.content)


# Context ------------------------------------------------------------------------------------------

context_version = arguments.expected_version("Refuse if the key (without KEY: the context) is at another version.")


@group("context", "moorage context set plan-prod region eu-central-1", "moorage context get plan-prod region")
def context() -> None:
    """Read and write a session's keyed memory."""


@context.subcommand(
    "get",
    "moorage context get plan-prod",
    "moorage context get plan-prod region",
    "moorage --json context get plan-prod --details",
)
@arguments.session
@click.argument("key", required=False)
@arguments.flag("--details", "Also show versions and expiry.")
def get_context(app: App, session: str, key: str | None, details: bool) -> None:
    """Show the context, or the value of one key. An empty context is {}."""
    session_id = app.id_of(session)
    if details:
        items = app.moor.context.items(session_id)
        value = items if key is None else items.get(key, {})
    else:
        value = app.moor.context.get(session_id, key)
    app.show(value, lambda: say(as_text(value)))


@context.subcommand(
    "set",
    "moorage context set plan-prod region eu-central-1",
    "moorage context set plan-prod limits '{\"cpu\": 4}' --ttl 30m",
    "moorage context set plan-prod lock me --expected-version 0",
)
@arguments.session
@click.argument("key")
@click.argument("value")
@arguments.flag("--text", "Store VALUE as text, even if it is JSON.")
@arguments.ttl
@context_version
def set_context(app: App, /, session: str, key: str, value: str, text: bool, **options: Any) -> None:
    """Store a value under a key.

    VALUE is stored as JSON if it is valid JSON, else as text. Version 0 means that the key must be new.
    """
    kept = value if text else arguments.read_value(value, key)
    written = app.moor.context.put(app.id_of(session), key, kept, **options)
    warn_of_secrets(written.redacted)
    _show_written(app, written, "Remembered")


@context.subcommand("delete", "moorage context delete plan-prod region", "moorage context delete plan-prod --all")
@arguments.session
@click.argument("key", required=False)
@arguments.flag("--all", "everything", "Delete all keys.")
@context_version
def delete_context(app: App, session: str, key: str | None, everything: bool, version: int | None) -> None:
    """Delete a key. A missing key is no error."""
    if (key is None) is not everything:
        raise UsageProblem("say what to delete: either KEY or --all")
    _show_written(app, app.moor.context.delete(app.id_of(session), key, version=version), "Forgotten")


def _show_written(app: App, written: ContextWritten, done: str) -> None:
    keys = ", ".join(written.keys) or "nothing"
    app.show(written, lambda: say(f"{done}: {keys} (context version {written.version})") if is_terminal() else None)
