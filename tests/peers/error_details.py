#!/usr/bin/env python3
"""Errors of a controller, as a foreign client reads them: Python's gRPC, with stubs made of our API.

    error_details.py CONTROLLER       a program crossmesh-controller, which is started and asked for what it refuses

Each error must carry a google.rpc.Status (`grpc-status-details-bin`) with one ErrorInfo that says what the error is
about, what was expected and what was found. Exits with 1 when one does not. Needs the packages that tests/peers/run
installs: the messages of google.rpc are those of googleapis-common-protos, not ours.
"""

import contextlib
import importlib
import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, Iterator

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What clients of gRPC 1.51 take at the end of a call; later ones drop some calls from there on, and all from twice that.
TRAILER_BYTES_MAX = 8192
OPTIONS = (("grpc.max_metadata_size", TRAILER_BYTES_MAX), ("grpc.absolute_max_metadata_size", TRAILER_BYTES_MAX))
START_SECONDS_MAX = 30
CALL_SECONDS_MAX = 30


@dataclass(frozen=True)
class Refusal:
    """A call that is refused, and what its error says; None: too much to be said in parts as well."""

    what: str
    call: Callable[[], object]
    code: grpc.StatusCode
    said: dict[str, str] | None


def make_stubs(folder: pathlib.Path) -> None:
    """Of the whole API; `import crossmesh.v1...` finds them from then on."""
    protos = sorted(str(path.relative_to(ROOT / "proto")) for path in (ROOT / "proto/crossmesh").rglob("*.proto"))
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    if protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", *protos]) != 0:
        sys.exit("the stubs cannot be made")
    sys.path.insert(0, str(folder))


@contextlib.contextmanager
def running(controller: str, folder: pathlib.Path) -> Iterator[str]:
    """The address of a controller that runs until the end."""
    ready = folder / "ready"
    process = subprocess.Popen([controller, "--listen", f"unix:{folder / 'controller'}", "--ready-file", ready])
    try:
        until = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"{controller} does not start")
            time.sleep(0.01)
        yield json.loads(ready.read_text())["addresses"][0]
    finally:
        process.terminate()
        process.wait()


def refusals(channel: grpc.Channel) -> list[Refusal]:
    # Made by now.
    mesh = importlib.import_module("crossmesh.v1.mesh_service_pb2")
    reshard = importlib.import_module("crossmesh.v1.reshard_service_pb2")
    meshes = importlib.import_module("crossmesh.v1.mesh_service_pb2_grpc").MeshServiceStub(channel)
    reshards = importlib.import_module("crossmesh.v1.reshard_service_pb2_grpc").ReshardServiceStub(channel)

    def plan(pattern: str, layout: str) -> Callable[[], object]:
        request = reshard.PlanReshardRequest()
        request.spec.inline_manifest.tensors.add(name="w", dtype="F32", shape=[4])
        for side, host in ((request.spec.source, "a"), (request.spec.destination, "b")):
            side.inline_mesh.axes = "x=2"
            side.inline_mesh.devices = f"{host}.0-1"
            side.rules.add(pattern=pattern, layout=layout)
        return lambda: reshards.PlanReshard(request, timeout=CALL_SECONDS_MAX)

    def said_of(pattern: str) -> dict[str, str]:
        return {"object": f'spec.source.rules: layout rule of pattern "{pattern}"',
                "expected": "a layout, coordinates and a data type on one line, without #"}

    large = mesh.CreateMeshRequest()
    large.mesh.name = "m"
    large.mesh.devices = "a" * (2 << 20)
    return [
        Refusal("a mesh that is not there",
                lambda: meshes.GetMesh(mesh.GetMeshRequest(name="a: b"), timeout=CALL_SECONDS_MAX),
                grpc.StatusCode.NOT_FOUND,
                {"object": 'mesh "a: b"', "expected": "a registered one", "found": "none"}),
        Refusal("a layout that is malformed", plan("*", "[x"), grpc.StatusCode.INVALID_ARGUMENT,
                {"object": 'spec.source.rules: layout rules, line 1: layout rule " [x", column 4', "expected": '"]"',
                 "found": "the end"}),
        Refusal("a request that is too large",
                lambda: meshes.CreateMesh(large, timeout=CALL_SECONDS_MAX),
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                {"object": "crossmesh.v1.CreateMeshRequest", "expected": f"at most {1 << 20} bytes",
                 "found": f"{large.ByteSize()}"}),
        # A byte beyond ASCII travels as three.
        *(Refusal(f"a name of {letters} letters that are not ASCII", plan(letters * "\u00e9", "#"),
                  grpc.StatusCode.INVALID_ARGUMENT, said_of(letters * "\u00e9") if letters < 500 else None)
          for letters in (250, 700, 1400, 9000)),
    ]


def complaint(refusal: Refusal) -> str | None:
    """What is wrong with the error; None where nothing is."""
    try:
        refusal.call()
        return "expected an error, found none"
    except grpc.RpcError as error:
        if error.code() != refusal.code:
            return f"expected {refusal.code}, found {error.code()}: {error.details()}"
        try:
            # Refuses a status whose code or message is not the call's.
            status = rpc_status.from_call(error)
        except ValueError as why:
            return str(why)
    if refusal.said is None:
        return None
    if status is None:
        return "expected grpc-status-details-bin, found none"
    info = error_details_pb2.ErrorInfo()
    if len(status.details) != 1 or not status.details[0].Unpack(info):
        return f"expected one ErrorInfo, found {status.details}"
    found = {"reason": info.reason, "domain": info.domain, **info.metadata}
    expected = {"reason": refusal.code.name, "domain": "crossmesh", **refusal.said}
    return None if found == expected else f"expected {expected}, found {found}"


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_stubs(folder)
        with running(sys.argv[1], folder) as address, grpc.insecure_channel(address, OPTIONS) as channel:
            for refusal in refusals(channel):
                why = complaint(refusal)
                failed += why is not None
                print(f"{refusal.what}: {why or 'its details are read'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
