#!/usr/bin/env python3
"""Writes src/moorage/protobuf: what protoc makes of the files in proto/, as one flat package.

    python scripts/generate_proto.py           write it
    python scripts/generate_proto.py --check   exit 1 if it is not fresh

Only where modules import each other do they differ from protoc's own: `moorage.v1` would be looked for in our package.
The generator is fetched for each run and is no part of the development environment: it forbids protobuf 7.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
PACKAGE = ROOT / "src" / "moorage" / "protobuf"
FILES = ("agent_platform.proto", "moorage/v1/sessions.proto")
GENERATOR = "grpcio-tools==1.72.1"  # the first for protobuf 6: runtimes of that and of the next major version accept it
INIT = '''"""Generated code for gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "{digest}"
'''


def main() -> int:
    """Write the package, or check it."""
    if "--check" in sys.argv[1:]:
        return 0 if is_fresh() else 1
    PACKAGE.mkdir(exist_ok=True)
    modules = generated()
    for name, text in {**modules, "__init__.py": INIT.format(digest=digest(modules))}.items():
        (PACKAGE / name).write_text(text)
    return 0


def is_fresh() -> bool:
    """Tell whether the package came from these files and this generator, and was not edited since."""
    present = {path.name: path.read_text() for path in PACKAGE.glob("*.py*")}
    return present.pop("__init__.py", None) == INIT.format(digest=digest(present))


def digest(modules: dict[str, str]) -> str:
    """Return a digest of the generator, what it read and what it wrote."""
    sources = [(PROTO / name).read_text() for name in FILES]
    parts = [GENERATOR, *sources, *(f"{name}\n{text}" for name, text in sorted(modules.items()))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def generated() -> dict[str, str]:
    """The modules as they have to be, by name."""
    with tempfile.TemporaryDirectory() as tools, tempfile.TemporaryDirectory() as folder:
        _fetch_generator(tools)
        _protoc(tools, folder)
        return {path.name: _placed(path.read_text()) for path in Path(folder).rglob("*.py*")}


def _fetch_generator(folder: str) -> None:
    uv = shutil.which("uv")
    install = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    subprocess.run([*install, "--quiet", "--no-deps", "--target", folder, GENERATOR], check=True)


def _protoc(tools: str, folder: str) -> None:
    outs = [f"--{kind}={folder}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    paths = [f"-I{PROTO}", f"-I{Path(tools) / 'grpc_tools' / '_proto'}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *paths, *outs, *FILES]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": tools})


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
