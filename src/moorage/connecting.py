"""`moorage.connect`: a connection to a store or to a server, as the URL says."""

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
    """Connect to the store or server that `url` names.

    `moorage.connect` is for an event loop and opens a store on first use; `moorage.sync.connect` needs no loop and
    opens a store at once. Without a URL, it is MOORAGE_URL, else an SQLite file in the user's data folder.

    `key` and `deadline` are for servers: the access key (by default MOORAGE_TOKEN, else MOORAGE_KEY), and the seconds
    after which a server that does not answer counts as unreachable (30). `context_url` is for stores: the Redis or
    Valkey server that keeps contexts (by default MOORAGE_CONTEXT_URL, else that of the configuration).
    """
    picked = config.pick_url(url)
    if not config.is_server(picked):
        return client.connect(picked, owner=owner, by=by, interface=interface, holder=holder, context_url=context_url)
    config.check_no_context_url(context_url)
    from moorage.remote import client as remote

    return remote.connect(picked, owner=owner, by=by, interface=interface, holder=holder, key=key, deadline=deadline)
