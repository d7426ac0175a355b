"""Context: a session's keyed memory."""

from __future__ import annotations

from typing import Any

import click

from moorage.core.codec import as_text
from moorage.doors.cli.app import App, group
from moorage.doors.cli.arguments import expected_version_option, read_value, session_argument, ttl_option
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import is_terminal, say, warn_of_secrets
from moorage.service.context import ContextWritten

version_option = expected_version_option("Refuse if the key (without KEY: the context) is at another version.")


@group("context", "moorage context set plan-prod region eu-central-1", "moorage context get plan-prod region")
def context() -> None:
    """Read and write a session's keyed memory."""


@context.subcommand(
    "get",
    "moorage context get plan-prod",
    "moorage context get plan-prod region",
    "moorage --json context get plan-prod --details",
)
@session_argument
@click.argument("key", required=False)
@click.option("--details", is_flag=True, help="Also show versions and expiry.")
def get(app: App, session: str, key: str | None, details: bool) -> None:
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
@session_argument
@click.argument("key")
@click.argument("value")
@click.option("--text", is_flag=True, help="Store VALUE as text, even if it is JSON.")
@ttl_option
@version_option
def set_(app: App, /, session: str, key: str, value: str, text: bool, **options: Any) -> None:
    """Store a value under a key.

    VALUE is stored as JSON if it is valid JSON, else as text. Version 0 means that the key must be new.
    """
    kept = value if text else read_value(value, key)
    written = app.moor.context.put(app.id_of(session), key, kept, **options)
    warn_of_secrets(written.redacted)
    _show_written(app, written, "Remembered")


@context.subcommand("delete", "moorage context delete plan-prod region", "moorage context delete plan-prod --all")
@session_argument
@click.argument("key", required=False)
@click.option("--all", "everything", is_flag=True, help="Delete all keys.")
@version_option
def delete(app: App, session: str, key: str | None, everything: bool, version: int | None) -> None:
    """Delete a key. A missing key is no error."""
    if (key is None) is not everything:
        raise UsageProblem("say what to delete: either KEY or --all")
    _show_written(app, app.moor.context.delete(app.id_of(session), key, version=version), "Forgotten")


def _show_written(app: App, written: ContextWritten, done: str) -> None:
    keys = ", ".join(written.keys) or "nothing"
    app.show(written, lambda: say(f"{done}: {keys} (context version {written.version})") if is_terminal() else None)
