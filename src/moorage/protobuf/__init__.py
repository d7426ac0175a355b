"""Generated code for gRPC. Written by scripts/generate_proto.py from proto/; do not edit."""

DIGEST = "7393b6e81b2f503f951e0b6d3c2015969cb45d2db5b84606b930f9d0c281bf56"
