#!/usr/bin/env python3
"""A cluster for one program of Ray: a controller, and a worker on each of some nodes, for as long as a command runs.

    python3 deploy/ray/crossmesh_ray.py --nodes 4 --interface eth0 -- python3 train.py

The command runs where this does, and finds the controller by CROSSMESH_CONTROLLER. Workers are named worker-0, worker-1
and so on, and have one device in host memory each, .0 of their name. Nothing is encrypted: the nodes' network is one
that only its users reach. The programs are in PATH on every node. From a program of Ray, use Cluster.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PATIENCE_S = 120
POLL_S = 0.1


@ray.remote(num_cpus=0)
class Daemon:
    """A daemon of Crossmesh on the node of this actor. It ends with the actor."""

    def __init__(self, name: str, command: list[str], insecure: bool):
        self.name = name
        self.folder = tempfile.TemporaryDirectory(prefix="crossmesh")
        self.ready_file = pathlib.Path(self.folder.name, "ready")
        self.log = pathlib.Path(self.folder.name, "log")
        address = ray.util.get_node_ip_address()
        command = [part.replace("{folder}", self.folder.name) for part in command]
        command += ["--listen", f"{address}:0", "--ready-file", str(self.ready_file)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command + (["--insecure"] if insecure else []), stdout=log, stderr=log)

    def serve(self) -> dict:
        """What its ready file says, once it serves. RuntimeError, with its log, when it does not."""
        until = time.monotonic() + PATIENCE_S
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.name} does not serve: {self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)
        return json.loads(self.ready_file.read_text())

    def stop(self) -> int:
        """Its exit status."""
        self.process.terminate()
        return self.process.wait()


class Cluster:
    """A controller and workers on nodes of Ray, which is initialised. A context manager."""

    def __init__(self, nodes: int, interface: str, insecure: bool = True, strategy: str = "STRICT_SPREAD"):
        self.insecure = insecure
        self.daemons = []
        # One worker on each node; the controller is where the first one is.
        self.group = placement_group([{"CPU": 1}] * nodes, strategy=strategy)
        try:
            ray.get(self.group.ready(), timeout=PATIENCE_S)
            controller = self._start("controller", 0, ["crossmesh-controller"])
            self.address = ray.get(controller.serve.remote())["addresses"][0]
            workers = [self._start(f"worker-{i}", i, [
                "crossmesh-worker", "--name", f"worker-{i}", "--devices", f"worker-{i}.0", "--controller", self.address,
                "--memory-socket", "{folder}/memory", "--data-interface", interface]) for i in range(nodes)]
            self.workers = ray.get([worker.serve.remote() for worker in workers])
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, bundle: int, command: list[str]):
        place = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle)
        daemon = Daemon.options(scheduling_strategy=place).remote(name, command, self.insecure)
        self.daemons.append(daemon)
        return daemon

    def stop(self) -> None:
        """Workers first: they tell the controller that they leave."""
        for daemon in reversed(self.daemons):
            try:
                ray.get(daemon.stop.remote())
            except ray.exceptions.RayError as error:
                print(f"a daemon was lost: {error}", file=sys.stderr)
        self.daemons = []
        remove_placement_group(self.group)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_) -> None:
        self.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, required=True, help="how many workers, each on a node of its own")
    parser.add_argument("--interface", default="eth0", help="the network card that tensors use (eth0)")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what runs meanwhile, after --")
    options = parser.parse_args()
    ray.init()
    with Cluster(options.nodes, options.interface) as cluster:
        environment = os.environ | {"CROSSMESH_CONTROLLER": cluster.address}
        return subprocess.run(options.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
