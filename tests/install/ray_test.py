"""Runs the launcher for Ray on this machine, with the daemons that it starts.

    ray_test.py <repository root> <build folder>

Exits with 77, which means skipped, where Ray is not installed: it is not in Debian.
"""

import importlib.util
import json
import os
import subprocess
import sys

SKIPPED = 77
if importlib.util.find_spec("ray") is None:
    print("skipped: no ray (pip install 'ray')")
    sys.exit(SKIPPED)

import unittest

from deployed import BUILD, DEPLOY

os.environ["PATH"] = f"{BUILD / 'bin'}:{os.environ['PATH']}"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
sys.path.insert(0, str(DEPLOY / "ray"))
import crossmesh_ray
import ray
from ray.cluster_utils import Cluster as Nodes

NODES = 2


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1})
        cls.addClassCleanup(cls.nodes.shutdown)
        for _ in range(NODES - 1):
            cls.nodes.add_node(num_cpus=1)
        ray.init(address=cls.nodes.address, log_to_driver=False)
        cls.addClassCleanup(ray.shutdown)

    def workers(self, cluster) -> list[dict]:
        listed = subprocess.run(["crossmesh", "worker", "list", "--controller", cluster.address, "--insecure", "--json"],
                                capture_output=True, text=True, check=True)
        return json.loads(listed.stdout)["workers"]

    def test_every_node_has_a_worker_as_long_as_the_cluster_lives(self):
        with crossmesh_ray.Cluster(NODES, "lo") as cluster:
            listed = self.workers(cluster)
            self.assertEqual([worker["name"] for worker in listed], [f"worker-{i}" for i in range(NODES)])
            self.assertEqual({worker["state"] for worker in listed}, {"WORKER_STATE_READY"})
            processes = [worker["pid"] for worker in cluster.workers]
            places = {row["node_id"] for row in map(self.place_of, cluster.daemons)}
            self.assertEqual(len(places), NODES)
        for process in processes:
            self.assertFalse(os.path.exists(f"/proc/{process}"))

    @staticmethod
    def place_of(daemon) -> dict:
        return {"node_id": ray.get(daemon.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()))}

    def test_a_daemon_that_does_not_start_is_named_and_nothing_is_left(self):
        with self.assertRaisesRegex(ray.exceptions.RayTaskError, r"worker-\d does not serve"):
            crossmesh_ray.Cluster(NODES, "no-such-interface")
        with crossmesh_ray.Cluster(NODES, "lo") as cluster:
            self.assertEqual(len(self.workers(cluster)), NODES)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
