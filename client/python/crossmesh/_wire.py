"""The API's messages, in a descriptor pool of their own.

A process may have other files and messages of the same names, of other versions of protobuf's compiler: what is here
is made of descriptors when the process runs, and nothing of it is in protobuf's default pool.
"""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Made by the build: protoc --descriptor_set_out --include_imports.
DESCRIPTORS = "api.binpb"


@dataclass(frozen=True)
class Method:
    """A method of a service, by which path it is called and with what."""

    path: str
    request: Any
    response: Any
    request_stream: bool
    response_stream: bool

    @property
    def kind(self) -> str:
        """As gRPC's channels call it, such as "unary_stream"."""
        names = {False: "unary", True: "stream"}
        return f"{names[self.request_stream]}_{names[self.response_stream]}"


@functools.cache
def _files() -> Any:
    data = (pathlib.Path(__file__).resolve().parent / DESCRIPTORS).read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(data)


@functools.cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in _files().file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.cache
def message(name: str) -> Any:
    """The class of a message, such as "crossmesh.v1.Mesh"; the package may be left out."""
    full = name if "." in name else f"crossmesh.v1.{name}"
    descriptor = _pool().FindMessageTypeByName(full)
    return message_factory.GetMessageClass(descriptor)


@functools.cache
def _methods() -> dict[str, Method]:
    methods = {}
    for file in _files().file:
        if file.package != "crossmesh.v1":
            continue
        for service in file.service:
            for method in service.method:
                methods[f"{service.name}/{method.name}"] = Method(
                    path=f"/{file.package}.{service.name}/{method.name}",
                    request=message(method.input_type.removeprefix(".")),
                    response=message(method.output_type.removeprefix(".")),
                    request_stream=method.client_streaming,
                    response_stream=method.server_streaming)
    return methods


def method(name: str) -> Method:
    """By service and name, such as "MeshService/CreateMesh"."""
    return _methods()[name]


def methods() -> list[str]:
    """The names of all methods of the API."""
    return sorted(_methods())
