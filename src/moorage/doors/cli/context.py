"""Context: a session's keyed memory."""

from __future__ import annotations

from typing import Any

import click

from moorage.core.codec import encode_text
from moorage.doors.cli.app import App, group, pass_app
from moorage.doors.cli.arguments import read_value, session_argument, ttl_option
from moorage.doors.cli.edge import UsageProblem
from moorage.doors.cli.output import complain, is_terminal, say
from moorage.service.context import ContextWritten

version_option = click.option(
    "--expected-version", type=int, metavar="N", help="Refuse if the key (without KEY: the context) is not at it."
)


@group(
    "context",
    examples=(
        "moorage context set plan-prod region eu-central-1",
        "moorage context get plan-prod region",
    ),
)
def context() -> None:
    """Read and write a session's keyed memory."""


@context.command(
    "get",
    examples=(
        "moorage context get plan-prod",
        "moorage context get plan-prod region",
        "moorage --json context get plan-prod --details",
    ),
)
@session_argument()
@click.argument("key", required=False)
@click.option("--details", is_flag=True, help="With versions and expiries.")
@pass_app
def get(app: App, session: str, key: str | None, details: bool) -> None:
    """Show the context, or one key's value; {} if nothing is there."""
    session_id = app.id_of(session)
    value = _details(app, session_id, key) if details else app.moor.context.get(session_id, key)
    app.show(value, lambda: say(value if isinstance(value, str) else encode_text(value)))


def _details(app: App, session_id: str, key: str | None) -> Any:
    items = app.moor.context.items(session_id)
    return items if key is None else items.get(key, {})


@context.command(
    "set",
    examples=(
        "moorage context set plan-prod region eu-central-1",
        "moorage context set plan-prod limits '{\"cpu\": 4}' --ttl 30m",
        "moorage context set plan-prod lock me --expected-version 0",
    ),
)
@session_argument()
@click.argument("key")
@click.argument("value")
@click.option("--text", is_flag=True, help="Keep VALUE as text, even if it is JSON.")
@ttl_option
@version_option
@pass_app
def set_(app: App, session: str, key: str, value: str, text: bool, ttl: object, expected_version: int | None) -> None:
    """Remember a value under a key.

    VALUE is taken as JSON if it is that, else as text. Version 0 means: the key must be new.
    """
    kept = value if text else read_value(value, key)
    written = app.moor.context.put(app.id_of(session), key, kept, ttl=ttl, version=expected_version)
    if written.redacted:
        complain(f"warning: kept as [redacted], because its key names a secret: {', '.join(written.redacted)}")
    _show_written(app, written, "Remembered")


@context.command(
    "delete", examples=("moorage context delete plan-prod region", "moorage context delete plan-prod --all")
)
@session_argument()
@click.argument("key", required=False)
@click.option("--all", "everything", is_flag=True, help="Forget everything.")
@version_option
@pass_app
def delete(app: App, session: str, key: str | None, everything: bool, expected_version: int | None) -> None:
    """Forget a key; what is not there is forgotten already."""
    if (key is None) is not everything:
        raise UsageProblem("say what to forget: either KEY or --all")
    _show_written(app, app.moor.context.delete(app.id_of(session), key, version=expected_version), "Forgotten")


def _show_written(app: App, written: ContextWritten, done: str) -> None:
    keys = ", ".join(written.keys) or "nothing"
    app.show(written, lambda: say(f"{done}: {keys} (context version {written.version})") if is_terminal() else None)
