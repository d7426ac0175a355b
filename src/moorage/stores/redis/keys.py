"""The names of all keys.

Every key of an owner has the owner in braces. So all of them are in one slot, one script may write them all, and a
cluster spreads owners over its servers. Keys without an owner have a separate tag.

=================  ===========  ================================================================================
`h:ID`             hash         a session: its revision, its head as JSON, and the fields that an append moves
`l:ID`             stream       the entries of the session's own log, ids `NUMBER-0`
`e:ID`             sorted set   `KIND:NUMBER` of entries that are no plain messages
`k:ID`             hash         client keys, and their entries
`r:ID`             hash         records by name; those of the owner under the id `-memory`
`n:ID`, `y:ID`     sorted set   their names in order; their expiry times
`o:ID`             hash         blocks a session: pending approvals (`a…`), runs of its children (`c…`)
`w:ID`             hash         open work: runs (`r…`), turns (`t…`), items (`i…`)
`i:ID`, `b:ID`     hash         all items of an inbox, and their bodies
`runs` …           hash         all runs, turns, approvals, by id; tombstones by session
`z:…`              sorted set   places in lists: see `places`
`t:ID`             string       the lock of a writer that lost too often, for half a second at most
`feed`             stream       `CURSOR-0`: a session, the last of its committed entries, their number
=================  ===========  ================================================================================
"""

from __future__ import annotations

from urllib.parse import quote


class Keys:
    """The keys of one owner."""

    __slots__ = ("_of", "owner")

    def __init__(self, prefix: str, owner: str) -> None:
        self.owner = owner
        self._of = f"{prefix}:{{o:{quote(owner, safe='')}}}:"

    def __call__(self, name: str) -> str:
        """Return a key of which the owner has one: runs, turns, approvals, dead, names, feed …"""
        return self._of + name

    def of(self, what: str, session_id: str) -> str:
        """Return a key of a session: h, l, e, k, r, n, y, o, w, i, b."""
        return f"{self._of}{what}:{session_id}"

    def list(self, name: str, value: str = "") -> str:
        """Return the key of a list, or of the list for one value: `agent`, `state` …"""
        return f"{self._of}z:{name}:{value}" if value else f"{self._of}z:{name}"
