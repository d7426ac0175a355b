"""Keys: make, list and revoke them, on the store itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

from moorage.core.errors import utc_text
from moorage.core.key import Key, Scope
from moorage.doors.cli.app import App, command, group, pass_app
from moorage.doors.cli.arguments import DURATION
from moorage.doors.cli.output import fields, is_terminal, note, page_of, say, table


@group(
    "keys",
    places={"create": "keys:create", "list": "keys:list_", "revoke": "keys:revoke"},
    examples=("moorage keys create --name laptop", "moorage keys list", "moorage keys revoke 3f9a1c0b7d2e"),
)
def keys() -> None:
    """Make, list and revoke the keys that a server asks for."""


@command(
    "create",
    examples=(
        "moorage keys create --name laptop --expires 90d",
        "moorage keys create --owner ann --scope read --scope approve",
        "moorage keys create --name build-box --scope launch --owners ann --owners bob",
    ),
)
@click.option("--owner", metavar="OWNER", help="Whose sessions it opens.  [default: local]")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="What it is good for; may be given several times.  [default: read, write]",
)
@click.option("--name", metavar="NAME", help="What people call it.")
@click.option(
    "--owners", multiple=True, metavar="OWNER", help="With scope launch: an owner whose turns it takes; several times."
)
@click.option("--expires", type=DURATION, metavar="DURATION", help="After that it counts no more, such as 90d.")
@pass_app
def create(
    app: App,
    owner: str | None,
    scopes: tuple[str, ...],
    name: str | None,
    owners: tuple[str, ...],
    expires: timedelta | None,
) -> None:
    """Make a key and print it. It is shown this once: what is kept does not give it back."""
    made = app.moor.create_key(
        owner=owner, scopes=scopes or (Scope.READ, Scope.WRITE), name=name, owners=owners or None, expires_in=expires
    )
    app.show({**shown(made.key), "text": made.text}, lambda: _show_new(made.key, made.text))


def _show_new(key: Key, text: str) -> None:
    if is_terminal():
        note(f"Key {key.key_id} of {key.owner} ({', '.join(key.scopes)}). Keep it: it is not shown again.")
    say(text)


def shown(key: Key) -> dict[str, Any]:
    """A key as a document, with whether it counts now."""
    return {**msgspec.to_builtins(key), "state": state_of(key)}


def state_of(key: Key) -> str:
    """Whether it counts, or why not."""
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.counts(datetime.now(UTC)) else "expired"


@command("list", examples=("moorage keys list", "moorage keys list --owner ann --json"))
@click.option("--owner", metavar="OWNER", help="Only this owner's.")
@pass_app
def list_(app: App, owner: str | None) -> None:
    """List keys, oldest first, without their secrets: revoked ones and those past their time too.

    Piped, one line for each: id, state, owner, scopes, name, when it ends, when it was last used.
    """
    found = app.moor.keys(owner=owner).items
    app.show(page_of([shown(key) for key in found]), lambda: _show_keys(found))


def _show_keys(found: list[Key]) -> None:
    rows = [_row(key) for key in found]
    if is_terminal():
        table(("key", "state", "owner", "scopes", "name", "expires", "last used"), rows)
        return
    for row in rows:
        say(fields(*row))


def _row(key: Key) -> tuple[object, ...]:
    times = (_at(key.expires_at), _at(key.last_used_at))
    return (key.key_id, state_of(key), key.owner, ",".join(key.scopes), key.name, *times)


def _at(at: datetime | None) -> str | None:
    return None if at is None else utc_text(at.replace(microsecond=0))


@command("revoke", examples=("moorage keys revoke 3f9a1c0b7d2e", "moorage keys revoke 3f9a1c0b7d2e --json"))
@click.argument("key_id", metavar="KEY")
@pass_app
def revoke(app: App, key_id: str) -> None:
    """Let a key count no more: at once here, within a second at every server. Twice is harmless."""
    key = app.moor.revoke_key(key_id)
    app.show(shown(key), lambda: say(key.key_id))
