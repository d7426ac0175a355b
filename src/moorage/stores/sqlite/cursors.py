"""Cursors of the feed, in an integer key: an owner's number above, the cursor below."""

from __future__ import annotations

_CURSOR_BITS = 40


def feed_base(owner_no: int) -> int:
    """Where an owner's part of the feed begins; cursor c has this id plus c."""
    return owner_no << _CURSOR_BITS


def feed_end_id(owner_no: int) -> int:
    """Where it ends: above all of that owner's ids."""
    return (owner_no + 1) << _CURSOR_BITS
