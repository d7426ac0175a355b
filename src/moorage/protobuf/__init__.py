"""Generated code for gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "d584da316bc0c9bd7a861485aeff313a556450b5f86395e055b89d0fc95dbc7c"
