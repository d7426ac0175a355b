"""TLS to endpoints: who signs their certificates, and the one that they are shown.

Variables name the files. Without any, an endpoint's certificate is checked as gRPC does it by itself.
"""

from __future__ import annotations

from typing import Any

from moorage.agents.interface import Secret

SCHEME = "grpcs://"
CA, CERT, KEY = "MOORAGE_GRPC_CA", "MOORAGE_GRPC_CERT", "MOORAGE_GRPC_KEY"


def credentials(secret: Secret | None) -> Any:
    """What channels to `grpcs://` endpoints are made with; it reads files. Raises OSError."""
    import grpc

    ca, cert, key = (_read(None if secret is None else secret(name)) for name in (CA, CERT, KEY))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read(path: str | None) -> bytes | None:
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()
