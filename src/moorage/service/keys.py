"""Keys and session tokens: create, list, revoke and verify.

The doors check permissions (`Key.check`): on the machine itself, a user who can open the store may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from moorage.core.brief import brief
from moorage.core.document import DocumentKind
from moorage.core.duration import check_ttl
from moorage.core.errors import InvalidField, KeyNotFound, NotFound, StoreError, Unauthorized
from moorage.core.ids import check_is_text, check_label
from moorage.core.key import (
    ID_BYTES,
    SECRET_BYTES,
    SECRET_ID_BYTES,
    Key,
    Scope,
    SessionToken,
    SigningSecret,
    check_scopes,
    is_secret_of,
    key_text,
    new_token,
    read_key,
    secret_digest,
    sign,
    verify,
)
from moorage.ports import Documents
from moorage.service.deps import Deps
from moorage.service.documents import Collection

KNOWN_FOR = timedelta(milliseconds=500)  # a key that another process revokes is refused within a second
NOTE_EVERY = timedelta(hours=1)
TOKEN_LIFETIME = timedelta(hours=24)
NO_DIGEST = secret_digest("")  # compared for an unknown key, so that the check takes as long


@brief("key")
class NewKey(Struct, frozen=True, kw_only=True):
    """A new key and its text, which is shown only once."""

    key: Key
    text: str


async def create_key(
    deps: Deps,
    *,
    owner: str = "local",
    scopes: Iterable[str] = (Scope.READ, Scope.WRITE),
    name: str | None = None,
    owners: Iterable[str] | None = None,
    expires_in: object = None,
    by: str | None = None,
) -> NewKey:
    """Create a key. A launcher's key works for `owners`, or for its own owner if none are named."""
    checked = check_scopes(scopes)
    lifetime, now = check_ttl(expires_in, "expires_in"), deps.clock.now()
    whose, is_for_launcher = check_label("owner", owner), Scope.LAUNCH in checked
    label = None if name is None else check_label("name", name)
    given = () if owners is None else tuple(dict.fromkeys(check_label("owners", each) for each in owners))
    if given and not is_for_launcher:
        raise InvalidField("owners", "are for a launcher's key; give it the scope launch as well")
    key = Key(
        key_id=deps.entropy(ID_BYTES).hex(),
        owner=whose,
        scopes=checked,
        name=label,
        owners=given or ((whose,) if is_for_launcher else ()),
        created_at=now,
        created_by=by,
        expires_at=None if lifetime is None else now + lifetime,
    )
    text = key_text(key.key_id, deps.entropy(SECRET_BYTES))
    await save_key(deps.store, key, secret_digest(text.rpartition("_")[2]))
    return NewKey(key=key, text=text)


async def revoke_key(deps: Deps, key_id: str, *, owner: str | None = None) -> Key:
    """Revoke a key for ever, harmlessly twice; with `owner`, only one of theirs. Raises KeyNotFound, InvalidField."""
    check_is_text(key_id, "key_id")
    key = await end_key(deps.store, key_id, deps.clock.now(), owner=owner)
    deps.known_keys.pop(key_id, None)
    return key


async def has_keys(deps: Deps) -> bool:
    """Return whether any key was ever created. Revoking the last key does not open access."""
    return bool(await deps.store.documents(DocumentKind.KEY, limit=1))


# Keys in the store ------------------------------------------------------------------------------


class StoredKey(Struct, frozen=True):
    """A key as it is stored: with the digest of its secret."""

    key: Key
    digest: str


_KEYS = Collection(DocumentKind.KEY, StoredKey)
_SECRETS = Collection(DocumentKind.SECRET, SigningSecret)
SIGNING = "session tokens"


async def save_key(store: Documents, key: Key, digest: str) -> None:
    """Store a new key with the digest of its secret."""
    await _KEYS.put(store, key.key_id, lambda _: StoredKey(key, digest))


async def find_key(store: Documents, key_id: str) -> tuple[Key, str] | None:
    """Return a key, revoked or not, and the digest of its secret; None if there is no such key."""
    found = await _KEYS.get(store, key_id)
    return None if found is None else (found.key, found.digest)


async def all_keys(store: Documents, owner: str | None = None) -> list[Key]:
    """Return all keys, or an owner's, oldest first; including revoked ones."""
    whose = None if owner is None else check_label("owner", owner)
    keys = [each.key for each in await _KEYS.all(store) if whose in (None, each.key.owner)]
    return sorted(keys, key=lambda key: (key.created_at, key.key_id))


async def end_key(store: Documents, key_id: str, at: datetime, *, owner: str | None = None) -> Key:
    """Revoke a key; leave a revoked key as it is. Raises KeyNotFound; with `owner`, for another owner's key too."""

    def revoked(known: StoredKey | None) -> StoredKey:
        if known is None or owner not in (None, known.key.owner):
            raise KeyNotFound(key_id)
        return known if known.key.revoked_at is not None else replace(known, key=replace(known.key, revoked_at=at))

    ended = await _KEYS.put(store, key_id, revoked)
    assert ended is not None
    return ended.key


async def note_use(store: Documents, key_id: str, at: datetime) -> None:
    """Store the time of the latest use of a key; never move it back. An unknown key is no error."""

    def used(known: StoredKey | None) -> StoredKey | None:
        if known is None or (known.key.last_used_at is not None and known.key.last_used_at >= at):
            return known
        return replace(known, key=replace(known.key, last_used_at=at))

    await _KEYS.put(store, key_id, used)


async def first_secret(store: Documents, proposed: SigningSecret) -> SigningSecret:
    """Return the signing secret of all servers of this store: the first secret that was ever proposed."""
    return await _SECRETS.put(store, SIGNING, lambda known: known or proposed) or proposed


# Authentication ---------------------------------------------------------------------------------


async def authenticate(deps: Deps, text: object) -> Key:
    """Return the key of a text. Raises Unauthorized, with the same message whatever is wrong."""
    now, read = deps.clock.now(), read_key(text)
    if read is None:
        raise Unauthorized
    key_id, secret = read
    found = await _known(deps, key_id, now)
    digest = NO_DIGEST if found is None else found[1]
    if not is_secret_of(digest, secret) or found is None or not found[0].counts(now):
        raise Unauthorized
    return await _noted(deps, *found, now)


async def _known(deps: Deps, key_id: str, now: datetime) -> tuple[Key, str] | None:
    """Return a key and its digest from a short cache. Unknown ids are not cached: anyone could send many."""
    known = deps.known_keys.get(key_id)
    if known is not None and timedelta() <= now - known[0] < KNOWN_FOR:
        return known[1]
    found = await find_key(deps.store, key_id)
    if found is None:
        deps.known_keys.pop(key_id, None)
    else:
        deps.known_keys[key_id] = (now, found)
    return found


async def _noted(deps: Deps, key: Key, digest: str, now: datetime) -> Key:
    """Store once an hour that a key is in use, so that people see unused ones. A failing store is no error."""
    if key.last_used_at is not None and now - key.last_used_at < NOTE_EVERY:
        return key
    used = replace(key, last_used_at=now)
    deps.known_keys[key.key_id] = (now, (used, digest))
    with suppress(StoreError):
        await note_use(deps.store, key.key_id, now)
    return used


# Session tokens ---------------------------------------------------------------------------------


async def session_token(
    deps: Deps, owner: str, session_id: str, lifetime: object = TOKEN_LIFETIME, *, run_id: str | None = None
) -> str:
    """Return a token for this session and its descendants, valid for this long; with a run, in its name.

    Raises SessionNotFound, SessionGone.
    """
    lives_for = check_ttl(lifetime, "lifetime") or TOKEN_LIFETIME
    session = await deps.store.get(owner, session_id)
    secret = await _signing_secret(deps)
    return sign(new_token(owner, session.session_id, deps.clock.now() + lives_for, secret, run_id), secret)


async def token_where_guarded(deps: Deps, owner: str, session_id: str, run_id: str | None = None) -> str | None:
    """Return a token for a session's agent if the store has keys; else None."""
    return await session_token(deps, owner, session_id, run_id=run_id) if await has_keys(deps) else None


async def read_token(deps: Deps, text: object) -> SessionToken:
    """Return the content of a session token. Raises Unauthorized unless this store signed it and it has not expired."""
    secret = await _signing_secret(deps)
    return verify(text, lambda secret_id: secret if secret_id == secret.secret_id else None, deps.clock.now())


async def _signing_secret(deps: Deps) -> SigningSecret:
    if deps.signing_secret is None:
        proposed = SigningSecret(
            secret_id=deps.entropy(SECRET_ID_BYTES).hex(),
            value=deps.entropy(SECRET_BYTES).hex(),
            created_at=deps.clock.now(),
        )
        deps.signing_secret = await first_secret(deps.store, proposed)
    return deps.signing_secret


async def reaches(deps: Deps, owner: str, token_session: str, ref: str) -> bool:
    """Return whether a token for one session allows access to another: that session, or a descendant of it.

    A missing session is not accessible, unless it was the token's own: other sessions stay hidden. The id of a deleted
    session may be another's name, so the id behind `ref` counts.
    """
    try:
        session = await deps.store.get(owner, ref)
    except NotFound:
        return ref == token_session
    if token_session in (session.session_id, session.parent_session_id, session.root_session_id):
        return True
    if session.depth < 3:  # its root and its parent are all its ancestors
        return False
    above = await deps.store.ancestors(owner, session.session_id)
    return token_session in {ancestor.session_id for ancestor in above}
