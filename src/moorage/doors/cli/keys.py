"""Keys: create, list and revoke server keys on the store itself; create keys for encryption at rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from moorage.config import entropy
from moorage.core.key import Key, Scope
from moorage.doors.cli.app import App, command, group
from moorage.doors.cli.arguments import DURATION, many_option
from moorage.doors.cli.output import is_terminal, note, page_of, say
from moorage.doors.cli.tables import TableRow, show_rows, wide_option
from moorage.doors.cli.wording import ago, seconds_text


@group("keys", "moorage keys create --name laptop", "moorage keys list", "moorage keys revoke 3f9a1c0b7d2e")
def keys() -> None:
    """Create, list and revoke the access keys of a server."""


@keys.subcommand(
    "create",
    "moorage keys create --name laptop --expires 90d",
    "moorage keys create --owner ann --scope read --scope approve",
    "moorage keys create --name build-box --scope launch --owners ann --owners bob",
)
@click.option("--owner", metavar="OWNER", help="The owner whose sessions it opens.  [default: local]")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    help="A right of the key. Can be repeated.  [default: read, write]",
)
@click.option("--name", metavar="NAME", help="A name for the key.")
@many_option("--owners", told="With scope launch: an owner whose turns it takes.", metavar="OWNER")
@click.option("--expires", type=DURATION, metavar="DURATION", help="Expire after, such as 90d.")
def create(app: App, /, scopes: tuple[str, ...], owners: tuple[str, ...], expires: object, **known: Any) -> None:
    """Create a key and print it. It is shown once; the store keeps a hash."""
    known |= {"scopes": scopes or (Scope.READ, Scope.WRITE), "owners": owners or None, "expires_in": expires}
    made = app.moor.create_key(**known)
    app.show({**shown(made.key), "text": made.text}, lambda: _show_new(made.key, made.text))


def _show_new(key: Key, text: str) -> None:
    if is_terminal():
        note(f"Key {key.key_id} of {key.owner} ({', '.join(key.scopes)}). Keep it: it is not shown again.")
    say(text)


def shown(key: Key) -> dict[str, Any]:
    """Return a key as JSON, with its present state."""
    return {**msgspec.to_builtins(key), "state": state_of(key)}


def state_of(key: Key) -> str:
    """Return whether a key is valid, revoked or expired."""
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.counts(datetime.now(UTC)) else "expired"


@keys.subcommand("list", "moorage keys list", "moorage keys list --owner ann --json")
@click.option("--owner", metavar="OWNER", help="Only keys of this owner.")
@wide_option
def list_(app: App, owner: str | None) -> None:
    """List keys, oldest first; also revoked and expired ones.

    The secrets are not stored. Piped, one line for each: id, state, owner, scopes, name, when it ends, when it was
    last used.
    """
    found = app.moor.keys(owner=owner).items
    columns, spare = ("name", "key", "state", "owner", "scopes", "expires", "last used"), ("last used", "expires")
    rows, lines = map(_cells, found), map(_fields, found)
    app.show(
        page_of([shown(key) for key in found]),
        lambda: show_rows(columns, rows, lines=lines, spare=spare, nothing="No keys."),
    )


def _cells(key: Key) -> TableRow:
    return key.name, *_about(key), ago(key.expires_at), ago(key.last_used_at)


def _fields(key: Key) -> TableRow:
    return *_about(key), key.name, seconds_text(key.expires_at), seconds_text(key.last_used_at)


def _about(key: Key) -> TableRow:
    return key.key_id, state_of(key), key.owner, ",".join(key.scopes)


@keys.subcommand("revoke", "moorage keys revoke 3f9a1c0b7d2e", "moorage keys revoke 3f9a1c0b7d2e --json")
@click.argument("key_id", metavar="KEY")
def revoke(app: App, key_id: str) -> None:
    """Revoke a key. Other servers follow within a second. Repeating it is harmless."""
    key = app.moor.revoke_key(key_id)
    name = f"{key.name} ({key.key_id})" if key.name else key.key_id
    app.tell(shown(key), f"Revoked key {name} of {key.owner}.", key.key_id)


@command("encryption-key", "moorage encryption-key", "moorage encryption-key 2026-01")
@click.argument("key_id", metavar="[ID]", required=False)
def encryption_key(app: App, key_id: str | None) -> None:
    """Create a key for encryption at rest and print it.

    It is printed as ID:BASE64 and stored nowhere. Put it into MOORAGE_ENCRYPTION_KEYS or the key file. Without ID,
    it gets a random one.
    """
    from moorage.stores.sealing import KEY_BYTES, written_key

    name = f"k{entropy(4).hex()}" if key_id is None else key_id
    line = written_key(name, entropy(KEY_BYTES))
    app.show({"key_id": name, "key": line}, lambda: say(line))
