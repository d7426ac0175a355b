"""Keys: stored with the digests of their secrets, revoked for good."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.core.errors import KeyNotFound
from moorage.core.key import Key, Scope, SigningSecret
from moorage.ports import Store
from moorage.service.keys import all_keys, end_key, find_key, first_secret, note_use, save_key
from moorage.testing.builders import *


def a_key(key_id: str = "k1", owner: str = OWNER, **fields: Any) -> Key:
    """Return a key with scope read."""
    fields = {"scopes": (Scope.READ,), "created_at": NOON, **fields}
    return Key(key_id=key_id, owner=owner, **fields)


class KeyRules:
    """Rules of keys and of the signing secret, on every store."""

    async def test_key_is_kept_whole_with_its_digest(self, store: Store) -> None:
        key = a_key(
            scopes=(Scope.LAUNCH, Scope.ADMIN),
            name="build box",
            owners=(OWNER, OTHER),
            created_by="tester",
            expires_at=after(60),
        )
        await save_key(store, key, "d-1")

        assert await find_key(store, "k1") == (key, "d-1")
        for unknown in ("k2", "", "kéy", "k1 "):
            assert await find_key(store, unknown) is None

    async def test_keys_are_listed_by_owner_in_the_order_they_were_made(self, store: Store) -> None:
        for n, (key_id, owner) in enumerate((("k3", OWNER), ("k1", OTHER), ("k2", OWNER))):
            await save_key(store, a_key(key_id, owner, created_at=after(n)), "d")

        assert [key.key_id for key in await all_keys(store)] == ["k3", "k1", "k2"]
        assert [key.key_id for key in await all_keys(store, OWNER)] == ["k3", "k2"]
        assert await all_keys(store, "nobody") == []

    async def test_time_of_last_use_never_moves_back(self, store: Store) -> None:
        await save_key(store, a_key(), "d")
        for at in (after(5), after(2)):
            await note_use(store, "k1", at)

        assert [key.last_used_at for key in await all_keys(store)] == [after(5)]

    async def test_revoked_key_stays_revoked_as_it_was(self, store: Store) -> None:
        await save_key(store, a_key(), "d-1")

        revoked = await end_key(store, "k1", after(1))
        assert revoked.revoked_at == after(1)
        assert await end_key(store, "k1", after(2)) == revoked
        await note_use(store, "k1", after(3))
        found = await find_key(store, "k1")
        assert found is not None
        assert (found[0].revoked_at, found[0].last_used_at, found[1]) == (after(1), after(3), "d-1")

    async def test_key_that_is_not_there_cannot_be_revoked(self, store: Store) -> None:
        with pytest.raises(KeyNotFound):
            await end_key(store, "k1", NOON)
        await note_use(store, "k1", NOON)
        assert await all_keys(store) == []

    async def test_anothers_key_behaves_as_unknown(self, store: Store) -> None:
        await save_key(store, a_key(), "d")

        with pytest.raises(KeyNotFound):
            await end_key(store, "k1", NOON, owner=OTHER)
        found = await find_key(store, "k1")
        assert found is not None
        assert found[0].revoked_at is None
        assert (await end_key(store, "k1", NOON, owner=OWNER)).revoked_at == NOON

    async def test_use_and_revocation_at_the_same_time_both_count(self, store: Store) -> None:
        await save_key(store, a_key(), "d")
        await asyncio.gather(
            *(note_use(store, "k1", after(n)) for n in range(10)),
            end_key(store, "k1", after(5)),
            *(note_use(store, "k1", after(n)) for n in range(10)),
        )

        [key] = await all_keys(store)
        assert (key.revoked_at, key.last_used_at) == (after(5), after(9))

    async def test_all_who_sign_share_the_secret_that_was_first(self, store: Store) -> None:
        proposed = [SigningSecret(secret_id=f"s{n}", value=f"{n:064x}", created_at=after(n)) for n in range(8)]
        got = await asyncio.gather(*(first_secret(store, one) for one in proposed))

        assert len(set(got)) == 1
        assert got[0] in proposed
        assert await first_secret(store, proposed[-1]) == got[0]
