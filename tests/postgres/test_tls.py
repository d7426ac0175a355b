"""Connections over TLS: real certificates, a server that has one, and those who must not be believed."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from moorage.core.errors import InvalidField, StoreUnavailable
from moorage.stores.postgres.connection import PostgresConnection
from moorage.stores.postgres.store import PostgresStore
from moorage.testing.builders import OWNER, a_session, a_stamp, said, whole_log
from moorage.testing.postgres import Installation, PostgresServer, installations

IN_TIME = 15  # seconds: half of what a caller would wait for a database that is away


class Authority:
    """A certificate authority."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _certificate(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def signed(self, host: str) -> tuple[bytes, bytes]:
        """A certificate for an address, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(_name(host), self._name, key.public_key())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        certificate = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM), key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(hours=1),
        not_valid_after=now + timedelta(hours=1),
    )


class Secured(NamedTuple):
    """A server with TLS, and files with certificates of authorities."""

    server: PostgresServer
    authority: Path
    stranger: Path

    def url(self, options: str) -> str:
        """Over the network, with more to say."""
        return f"{self.server.url(tcp=True)}?{options}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """It has a certificate for 127.0.0.1, and refuses connections without TLS."""
    folder = tmp_path_factory.mktemp("certificates")
    authority, stranger = Authority("ours"), Authority("somebody else")
    (folder / "ours.pem").write_bytes(authority.certificate)
    (folder / "stranger.pem").write_bytes(stranger.certificate)
    with PostgresServer(_with_tls(), tcp=True) as server:
        _secure(server, *authority.signed("127.0.0.1"))
        yield Secured(server, folder / "ours.pem", folder / "stranger.pem")


def _with_tls() -> Installation:
    for each in installations():
        if b"SSL_CTX_new" in (each.programs / "postgres").read_bytes():
            return each
    pytest.skip("no PostgreSQL here was built with TLS; those that come as Python packages are not")


def _secure(server: PostgresServer, certificate: bytes, key: bytes) -> None:
    owner = server.data.stat()
    for name, content in (("server.crt", certificate), ("server.key", key)):
        path = server.data / name
        path.touch(0o600)
        path.write_bytes(content)
        os.chown(path, owner.st_uid, owner.st_gid)
    (server.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
    server.configure(ssl="on")
    server.restart("fast")


@pytest.mark.parametrize("sslmode", ["require", "verify-ca", "verify-full"])
async def test_everything_goes_over_tls(secured: Secured, sslmode: str) -> None:
    root = "" if sslmode == "require" else f"&sslrootcert={quote(str(secured.authority))}"
    store = PostgresStore(secured.url(f"sslmode={sslmode}{root}&schema=s_{sslmode.replace('-', '_')}"))
    await store.create(OWNER, a_session("s-1"))
    await store.append(OWNER, "s-1", said("in private"), a_stamp())
    store.pulse()  # so that it listens, too
    assert len(await whole_log(store, "s-1")) == 2

    async def secured_or_not(db: PostgresConnection) -> set[bool]:
        sql = "SELECT ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE client_port > 0"
        return {row[0] for row in await db.all(sql)}

    assert await store._access.read(secured_or_not) == {True}
    await store.close()


async def test_untrusted_certificate_is_refused(secured: Secured) -> None:
    await _is_refused(
        secured.url(f"sslmode=verify-full&sslrootcert={quote(str(secured.stranger))}"), "certificate verify failed"
    )


async def test_a_certificate_for_another_name_is_refused_at_once(secured: Secured) -> None:
    url = secured.url(f"sslmode=verify-full&sslrootcert={quote(str(secured.authority))}")
    await _is_refused(url.replace("127.0.0.1", "localhost"), "localhost")


async def test_a_server_that_insists_on_tls_says_so_at_once(secured: Secured) -> None:
    await _is_refused(secured.url("sslmode=disable"), "no encryption")


async def test_server_without_tls_is_refused_if_required() -> None:
    with PostgresServer(tcp=True) as server:
        await _is_refused(f"{server.url()}?sslmode=require", "rejected SSL")


async def _is_refused(url: str, why: str) -> None:
    store = PostgresStore(url)
    async with asyncio.timeout(IN_TIME):
        with pytest.raises(StoreUnavailable, match=why) as refused:
            await store.owners()
    assert refused.value.code == "store_unavailable"
    await store.close()


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
def test_a_certificate_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(InvalidField, match=f"{name}.*no/such.pem"):
        PostgresStore(f"postgresql://db/app?sslmode=verify-full&{name}=no/such.pem")
