#!/usr/bin/env python3
"""Writes src/moorage/protobuf: what protoc makes of the files in proto/, as one flat package.

    python scripts/generate_proto.py           write it
    python scripts/generate_proto.py --check   exit 1 if it is not fresh

Only where modules import each other do they differ from protoc's own: `moorage.v1` would be looked for in our package.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
PACKAGE = ROOT / "src" / "moorage" / "protobuf"
FILES = ("agent_platform.proto", "moorage/v1/sessions.proto")
INIT = '"""What travels over gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""\n'


def main() -> int:
    """Write the package, or compare it."""
    wanted = generated()
    if "--check" in sys.argv[1:]:
        present = {path.name: path.read_text() for path in PACKAGE.glob("*.py*")}
        return 0 if present == wanted else 1
    PACKAGE.mkdir(exist_ok=True)
    for name, text in wanted.items():
        (PACKAGE / name).write_text(text)
    return 0


def generated() -> dict[str, str]:
    """The modules as they have to be, by name."""
    with tempfile.TemporaryDirectory() as folder:
        _protoc(folder)
        found = {path.name: _placed(path.read_text()) for path in Path(folder).rglob("*.py*")}
    return {"__init__.py": INIT, **found}


def _protoc(folder: str) -> None:
    from importlib.resources import files

    from grpc_tools import protoc

    outs = [f"--{kind}={folder}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    paths = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
    if protoc.main(["protoc", *paths, *outs, *FILES]) != 0:
        sys.exit("generate_proto: protoc refused; the lines above say why")


def _placed(text: str) -> str:
    """A module as it is called in our package."""
    text = re.sub(
        r"^import agent_platform_pb2 as", "from moorage.protobuf import agent_platform_pb2 as", text, flags=re.M
    )
    return (
        text.replace("from moorage.v1 import", "from moorage.protobuf import")
        .replace("'moorage.v1.sessions_pb2'", "'moorage.protobuf.sessions_pb2'")
        .replace("'agent_platform_pb2'", "'moorage.protobuf.agent_platform_pb2'")
    )


if __name__ == "__main__":
    sys.exit(main())
