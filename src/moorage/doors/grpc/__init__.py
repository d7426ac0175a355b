"""The gRPC door. Only `serve` and `sample` load it, and only where the extra `grpc` is installed."""
