"""`moorage.connect`: sessions on a store of this machine, or on a server; the URL says which."""

from __future__ import annotations

from moorage import client, config
from moorage.connection import Connection


def connect(
    url: str | None = None,
    *,
    owner: str = "local",
    by: str | None = None,
    interface: str = "python",
    holder: str | None = None,
    key: str | None = None,
    deadline: float | None = None,
    context_url: str | None = None,
) -> Connection:
    """Return sessions on the store or the server that `url` names, for an event loop.

    Without a URL: MOORAGE_URL, else an SQLite file in the user's data folder. `key` and `deadline` are
    for servers: what to show at the door (else MOORAGE_TOKEN, else MOORAGE_KEY), and after how many
    seconds without an answer the server counts as unreachable (30). `context_url` is for stores: the Redis or
    Valkey server that keeps the context of sessions (else MOORAGE_CONTEXT_URL, else the configuration's).
    """
    picked = config.pick_url(url)
    if not config.is_server(picked):
        return client.connect(picked, owner=owner, by=by, interface=interface, holder=holder, context_url=context_url)
    config.check_no_context_url(context_url)
    from moorage.remote import client as remote

    return remote.connect(picked, owner=owner, by=by, interface=interface, holder=holder, key=key, deadline=deadline)
