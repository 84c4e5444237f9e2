#!/usr/bin/env python3
"""What 45,000 small tensors cost the Python package beyond C++: python_many_tensors.py --cluster-benchmark PROGRAM

Binds a storage to the tensors, and takes all their arrays. Then reshards them between the four workers of a cluster, by
client.reshard and by cluster_benchmark move, which have the same sides, in turns: the difference of the medians is what
the operation costs over C++. Needs the package crossmesh with its programs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import crossmesh

SOURCE = "fsdp=4 on node-0.0,node-1.0,node-2.0,node-3.0"
TARGET = "replica=2,model=2 on node-0.0,node-1.0,node-2.0,node-3.0"
LAYOUTS = ("* [fsdp, ...] nested_chunk", "* [-, model]")


def seconds_of(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster-benchmark", required=True, help="the program, of a build of preset release")
    parser.add_argument("--tensors", type=int, default=45_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    tensors = [{"name": f"layer.{i}.weight", "shape": [16, 4], "dtype": "F32"} for i in range(options.tensors)]
    with tempfile.TemporaryDirectory() as folder, crossmesh.local_cluster(workers=4) as cluster:
        path = pathlib.Path(folder) / "manifest.json"
        path.write_text(json.dumps({"tensors": tensors}))
        manifest = crossmesh.manifest(path)
        bound = []
        for rank in range(4):
            memory, device = cluster.memory(rank), f"node-{rank}.0"
            memory.storage("trained", device, manifest, SOURCE, LAYOUTS[0])

            def bind(memory=memory, device=device) -> None:
                storage = memory.storage("serving", device, manifest, TARGET, LAYOUTS[1])
                assert len([storage[name] for name in storage]) == options.tensors

            bound.append(seconds_of(bind))
        cluster.client.manifests.put("registered", manifest)
        sides = ((SOURCE, LAYOUTS[0], "trained"), (TARGET, LAYOUTS[1], "serving"))

        def reshard(what: crossmesh.Manifest | str) -> None:
            cluster.client.reshard(what, *sides, replica_axes=["replica"], binding="in_place", show_progress=False)

        def cpp() -> float:
            words = [options.cluster_benchmark, "move", path, "--repeats", "3"]
            found: float = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["seconds"]
            return found

        ways = {"cpp": cpp, "given": lambda: seconds_of(lambda: reshard(manifest)),
                "registered": lambda: seconds_of(lambda: reshard("registered"))}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(1 + options.rounds):  # the first one warms up
            for way, measure in ways.items():
                taken = measure()
                if turn:
                    found[way].append(taken)
    medians = {way: statistics.median(seconds) for way, seconds in found.items()}
    print(json.dumps({
        "tensors": options.tensors, "binding_seconds": statistics.median(bound),
        **{f"{way}_seconds": seconds for way, seconds in medians.items()},
        **{f"{way}_overhead_ms": 1e3 * (medians[way] - medians["cpp"]) for way in ("given", "registered")},
        "load": os.getloadavg()[0]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
