"""What travels over gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "6e0a48648e121d426486a91242e4b662b5ff4860a6f657d53b639425d5762f94"
