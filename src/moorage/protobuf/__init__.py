"""What travels over gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "1dfab9f4a8279083279859dcc6df5e3e40c086583a37684ce00b9ec3fbcd55f3"
