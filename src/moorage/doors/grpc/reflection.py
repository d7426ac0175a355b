"""Server reflection in both versions, v1 and v1alpha: clients use either.

The library supports v1alpha only. The messages of v1 are the same under another package name, so one servicer answers
both, and the file descriptor of v1 is that of v1alpha with its names changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

METHOD = "ServerReflectionInfo"
V1, V1ALPHA = "grpc.reflection.v1", "grpc.reflection.v1alpha"
SERVICES = tuple(f"{package}.ServerReflection" for package in (V1, V1ALPHA))


def add_to(server: Any, services: Iterable[str]) -> None:
    """Add reflection, in both versions, for these services and for itself."""
    servicer = reflection.aio.ReflectionServicer((*services, *SERVICES), pool=_Pools())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in SERVICES:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {METHOD: handler}),))


class _Pools:
    """Finds descriptors in the default pool, then in one of our own.

    The file of v1 is not added to the default pool: a library with its own copy could not be imported any more.
    """

    def __init__(self) -> None:
        self._own = descriptor_pool.DescriptorPool()
        self._own.Add(_file_of_v1())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def find(*arguments: Any) -> Any:
            try:
                return getattr(descriptor_pool.Default(), name)(*arguments)
            except KeyError:
                return getattr(self._own, name)(*arguments)

        return find


def _file_of_v1() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", V1
    file.ClearField("options")  # they mark the file as deprecated
    for message in file.message_type:
        for field in message.field:
            if field.type_name:  # of a message
                field.type_name = _renamed(field.type_name)
    for method in file.service[0].method:
        method.input_type, method.output_type = _renamed(method.input_type), _renamed(method.output_type)
    return file


def _renamed(name: str) -> str:
    return name.replace(f".{V1ALPHA}.", f".{V1}.")
