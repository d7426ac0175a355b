"""Keys: kept with the digest of their secrets, revoked once and for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.core.errors import KeyNotFound
from moorage.core.key import Key, Scope
from moorage.core.token import SigningSecret
from moorage.ports import Store
from moorage.testing.builders import NOON, OTHER, OWNER, after


def a_key(key_id: str = "k1", owner: str = OWNER, **fields: Any) -> Key:
    """A key that reads."""
    fields = {"scopes": (Scope.READ,), "created_at": NOON, **fields}
    return Key(key_id=key_id, owner=owner, **fields)


class KeyRules:
    """Rules of `save_key`, `key`, `keys`, `has_keys`, `revoke_key`, `note_key_use` and `signing_secret`."""

    async def test_key_is_kept_whole_with_its_digest(self, store: Store) -> None:
        key = a_key(
            scopes=(Scope.LAUNCH, Scope.ADMIN),
            name="build box",
            owners=(OWNER, OTHER),
            created_by="tester",
            expires_at=after(60),
        )
        await store.save_key(key, "d-1")

        assert await store.key("k1") == (key, "d-1")
        for unknown in ("k2", "", "kéy", "k1 "):
            assert await store.key(unknown) is None

    async def test_keys_are_listed_by_owner_in_the_order_they_were_made(self, store: Store) -> None:
        for key_id, owner in (("k3", OWNER), ("k1", OTHER), ("k2", OWNER)):
            await store.save_key(a_key(key_id, owner), "d")

        assert [key.key_id for key in await store.keys()] == ["k3", "k1", "k2"]
        assert [key.key_id for key in await store.keys(OWNER)] == ["k3", "k2"]
        assert await store.keys("nobody") == []

    async def test_store_tells_whether_there_was_ever_a_key(self, store: Store) -> None:
        assert not await store.has_keys()
        await store.save_key(a_key(), "d")
        await store.revoke_key("k1", NOON)

        assert await store.has_keys()

    async def test_revoked_key_stays_revoked_as_it_was(self, store: Store) -> None:
        await store.save_key(a_key(), "d-1")

        revoked = await store.revoke_key("k1", after(1))
        assert revoked.revoked_at == after(1)
        assert await store.revoke_key("k1", after(2)) == revoked
        await store.note_key_use("k1", after(3))
        found = await store.key("k1")
        assert found is not None
        assert (found[0].revoked_at, found[0].last_used_at, found[1]) == (after(1), after(3), "d-1")

    async def test_key_that_is_not_there_cannot_be_revoked(self, store: Store) -> None:
        with pytest.raises(KeyNotFound):
            await store.revoke_key("k1", NOON)
        await store.note_key_use("k1", NOON)
        assert not await store.has_keys()

    async def test_anothers_key_behaves_as_unknown(self, store: Store) -> None:
        await store.save_key(a_key(), "d")

        with pytest.raises(KeyNotFound):
            await store.revoke_key("k1", NOON, owner=OTHER)
        found = await store.key("k1")
        assert found is not None
        assert found[0].revoked_at is None
        assert (await store.revoke_key("k1", NOON, owner=OWNER)).revoked_at == NOON

    async def test_use_and_revocation_at_the_same_time_both_count(self, store: Store) -> None:
        await store.save_key(a_key(), "d")
        await asyncio.gather(
            *(store.note_key_use("k1", after(n)) for n in range(10)),
            store.revoke_key("k1", after(5)),
            *(store.note_key_use("k1", after(n)) for n in range(10)),
        )

        [key] = await store.keys()
        assert (key.revoked_at, key.last_used_at) == (after(5), after(9))

    async def test_all_who_sign_share_the_secret_that_was_first(self, store: Store) -> None:
        proposed = [SigningSecret(secret_id=f"s{n}", value=f"{n:064x}", created_at=after(n)) for n in range(8)]
        got = await asyncio.gather(*(store.signing_secret(one) for one in proposed))

        assert len(set(got)) == 1
        assert got[0] in proposed
        assert await store.signing_secret(proposed[-1]) == got[0]
