#!/usr/bin/env bash
# Compiles the protocol buffers for Python clients: proto/agent_platform_pb2.py and its neighbours, or into a folder.
#
#     bash scripts/compile_proto.sh [FOLDER]
#
# Then: sys.path.insert(0, './proto'); import agent_platform_pb2, agent_platform_pb2_grpc
# Needs `pip install grpcio-tools`; PYTHON chooses the interpreter.
set -euo pipefail
proto="$(cd "$(dirname "${BASH_SOURCE[0]}")/../proto" && pwd)"
out="${1:-$proto}"
python="${PYTHON:-python3}"
if ! "$python" -c 'import grpc_tools.protoc' 2>/dev/null; then
    echo "compile_proto.sh: $python has no grpcio-tools; run: $python -m pip install grpcio-tools" >&2
    exit 1
fi
mkdir -p "$out"
"$python" -m grpc_tools.protoc -I"$proto" --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
    agent_platform.proto moorage/v1/sessions.proto
