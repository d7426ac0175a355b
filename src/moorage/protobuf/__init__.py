"""What travels over gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "af4a242764fcce56fc41b688c9c1bcc9fd94b8a67964d5488273754a9afbd0ff"
