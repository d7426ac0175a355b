"""Encryption at rest: bodies are sealed before a store writes them, and opened after it has read them.

A sealed text names its key: `~sealed1:KEY_ID:`, then in base64 a nonce and the AES-256-GCM ciphertext of the body. The
place of the body (`about`) is authenticated with it, so an encrypted text cannot be moved to another place. Several
keys may be configured: the first one encrypts, all of them decrypt.

Stores of every kind use this; `cryptography` is imported when there is something to seal or open.
"""

from __future__ import annotations

import os
from binascii import a2b_base64, b2a_base64
from typing import TYPE_CHECKING

from moorage.core.errors import EncryptionKeyMissing, InvalidField
from moorage.stores import SEALED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12  # random: one key is good for four thousand million records
MAX_KEY_ID = 64
_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


class SealBroken(ValueError):
    """A sealed text cannot be opened: it was damaged or changed, or was sealed for another place."""

    def __init__(self, key_id: str, about: str) -> None:
        self.key_id = key_id
        super().__init__(
            f"what is sealed with encryption key {key_id!r} does not open as {about!r}: it was damaged or changed, or "
            "belongs to another record"
        )


class Sealer:
    """Seals with one key, opens with several."""

    def __init__(self, keys: Mapping[str, bytes], *, seals: bool = True) -> None:
        """Take keys by their ids. The first one seals; without `seals` they only open."""
        if not keys:
            raise InvalidField("encryption", "has no keys")
        self.key_id = next(iter(keys))
        self.seals = seals
        self._keys = {key_id: _checked(key_id, key) for key_id, key in keys.items()}
        self._ciphers: dict[str, AESGCM] = {}
        self._refusals: tuple[type[Exception], ...] = (ValueError,)  # errors for a text that cannot be opened

    def __repr__(self) -> str:
        return f"Sealer({', '.join(self._keys)})"  # never show a key

    def seal(self, body: str, about: str) -> str:
        """Return a body as a sealed text, which only this key opens, and only with the same `about`."""
        beginning = f"{SEALED}{self.key_id}:"
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(self.key_id).encrypt(nonce, body.encode(), f"{beginning}{about}".encode())
        return beginning + b2a_base64(nonce + sealed, newline=False).decode()

    def open(self, sealed: str, about: str) -> str:
        """Return the body of a sealed text. Raises EncryptionKeyMissing or SealBroken."""
        key_id = key_id_of(sealed)
        if key_id not in self._keys:
            raise EncryptionKeyMissing(key_id)
        cipher, beginning = self._cipher(key_id), f"{SEALED}{key_id}:"
        try:
            data = a2b_base64(sealed[len(beginning) :], strict_mode=True)
            return cipher.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], f"{beginning}{about}".encode()).decode()
        except self._refusals as error:
            raise SealBroken(key_id, about) from error

    def is_newest(self, text: str) -> bool:
        """Return whether a text is sealed with the current sealing key."""
        return text.startswith(f"{SEALED}{self.key_id}:")

    def fingerprints(self) -> dict[str, str]:
        """Return a fingerprint of each key, by key id. It reveals nothing about a random key."""
        from hashlib import sha256

        return {key_id: sha256(b"moorage encryption key" + key).hexdigest()[:16] for key_id, key in self._keys.items()}

    def _cipher(self, key_id: str) -> AESGCM:
        if (known := self._ciphers.get(key_id)) is None:
            from moorage.core.extras import provided_by

            with provided_by("encryption", "encryption at rest"):
                from cryptography.exceptions import InvalidTag
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            known = self._ciphers[key_id] = AESGCM(self._keys[key_id])
            self._refusals = (InvalidTag, ValueError)
        return known


def key_id_of(sealed: str) -> str:
    """Return the key id in a sealed text."""
    end = sealed.find(":", len(SEALED), len(SEALED) + MAX_KEY_ID + 1)
    return sealed[len(SEALED) : end] if end >= 0 else ""


def _checked(key_id: str, key: bytes) -> bytes:
    if not 0 < len(key_id) <= MAX_KEY_ID or not _ID_CHARACTERS.issuperset(key_id):
        raise InvalidField(
            "encryption", f"has the key id {key_id[:MAX_KEY_ID]!r}; use 1 to {MAX_KEY_ID} of letters, digits, '.-_'"
        )
    if len(key) != KEY_BYTES:
        raise InvalidField("encryption", f"has a key {key_id!r} of {len(key)} bytes; it must be {KEY_BYTES}")
    return key


def read_keys(text: str) -> dict[str, bytes]:
    """Return keys by their ids, from ID:BASE64 separated by commas or lines. Raises InvalidField; never shows a key."""
    keys: dict[str, bytes] = {}
    lines = (line.partition("#")[0] for line in text.splitlines())
    for number, pair in enumerate((pair.strip() for line in lines for pair in line.split(",") if pair.strip()), 1):
        key_id, separator, encoded = pair.partition(":")
        try:
            key = a2b_base64(encoded.strip().replace("-", "+").replace("_", "/"), strict_mode=True)
        except ValueError:
            separator = ""
        if not separator:
            raise InvalidField("encryption", f"has no ID:BASE64 in place {number}; `moorage encryption-key` makes one")
        if key_id.strip() in keys:
            raise InvalidField("encryption", f"has two keys with the id {key_id.strip()!r}")
        keys[key_id.strip()] = _checked(key_id.strip(), key)
    return keys


def written_key(key_id: str, key: bytes) -> str:
    """Return a key in the form that `read_keys` reads."""
    return f"{key_id}:{b2a_base64(_checked(key_id, key), newline=False).decode()}"
