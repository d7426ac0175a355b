"""Keys for encryption at rest."""

from __future__ import annotations

import click

from moorage.config import entropy
from moorage.doors.cli.app import App, command, pass_app
from moorage.doors.cli.output import say


@command(
    "encryption-key",
    examples=("moorage encryption-key", "moorage encryption-key 2026-01"),
)
@click.argument("key_id", metavar="[ID]", required=False)
@pass_app
def encryption_key(app: App, key_id: str | None) -> None:
    """Make a new key for encryption at rest and print it, as ID:BASE64. It is kept nowhere.

    Put it into MOORAGE_ENCRYPTION_KEYS or the key file. Without ID it gets one by chance.
    """
    from moorage.stores.sealing import KEY_BYTES, written_key

    name = f"k{entropy(4).hex()}" if key_id is None else key_id
    line = written_key(name, entropy(KEY_BYTES))
    app.show({"key_id": name, "key": line}, lambda: say(line))
