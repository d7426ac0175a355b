"""Generated code for gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "cb6f47c332e3fc510b477f7bffd0e9562fcfbffd408bca10454a4c27fcef915b"
