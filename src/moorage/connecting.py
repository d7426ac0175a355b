"""`moorage.connect`: a connection to a store or to a server, as the URL says."""

from __future__ import annotations

from moorage import config
from moorage.client import LocalMoorage, OpenStore
from moorage.connection import Connection, caller_for
from moorage.core.errors import InvalidField


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
    picked, caller = config.pick_url(url), caller_for(owner=owner, by=by, interface=interface, holder=holder)
    if not config.is_server(picked):
        return LocalMoorage(OpenStore(url=picked, context_url=context_url), caller)
    if context_url is not None:
        raise InvalidField("context_url", "is for stores; a server has its own (`moorage serve --context-url URL`)")
    if owner != "local":
        raise InvalidField("owner", "cannot be given to a server: the key decides it; leave it out")
    from moorage.remote.client import RemoteMoorage

    return RemoteMoorage.to(picked, caller, key=key or config.server_key(), deadline=deadline)
