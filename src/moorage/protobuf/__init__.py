"""What travels over gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""
