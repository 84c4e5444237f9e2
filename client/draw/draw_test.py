"""Draws descriptions as the command line does, and looks for what has to be in the pictures."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = pathlib.Path(__file__).resolve().parent / "draw.py"
SVG = "{http://www.w3.org/2000/svg}"


def run(description: str, path: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-B", PROGRAM, path], input=description, capture_output=True, text=True,
                          check=False)


def chain(hosts: int, name: str = "host-{}", chunks: int = 8) -> dict:
    """A plan that passes bytes on from host to host."""
    ports = [{"name": f"{name.format(host)}/nic", "direction": direction, "host": host, "bytes_per_second": 100,
              "bytes": 100 * (host + 1 < hosts if direction == "out" else host > 0)}
             for host in range(hosts) for direction in ("out", "in")]
    routes = [{"sender": host, "receiver": host + 1, "root": 0, "ports": [2 * host, 2 * host + 3], "bytes": 100,
               "latency_seconds": 0, "bars": [[(host + i) / chunks, (host + i + 1) / chunks] for i in range(chunks)]}
              for host in range(hosts - 1)]
    return {"picture": "plan", "strategy": "relay", "seconds": (hosts + chunks - 2) / chunks, "bound_seconds": 1,
            "assumed_rates": True, "network_bytes": 100 * (hosts - 1), "relays": 1, "depth": hosts - 1,
            "chunk_bytes": 13, "ports": ports, "routes": routes,
            "hosts": [{"name": name.format(host), "rack": f"rack{host % 2}"} for host in range(hosts)],
            "critical": [[0, 0, 1 / chunks]] * (hosts > 1)}


def schedule(ranks: int, microbatches: int, measured: bool = False) -> dict:
    """All forward ops, then all backward ones, each a time unit long."""
    def ops(slower: float) -> list:
        return [[f"{rank}{kind}{m}", slower * (rank + m + shift), slower * (rank + m + shift + 1)]
                for kind, shift in (("F", 0), ("B", ranks + microbatches))
                for rank in range(ranks) for m in range(microbatches)]

    end = 2 * (ranks + microbatches)
    transfers = [["F", rank, rank + 1, rank + m + 1, rank + m + 1]
                 for rank in range(ranks - 1) for m in range(microbatches)]
    document = {"title": f"{ranks} ranks", "ranks": ranks, "microbatches": microbatches,
                "stage_ranks": list(range(ranks)), "planned": {"seconds": end, "ops": ops(1)}, "transfers": transfers}
    return document | ({"measured": {"seconds": 1.5 * end, "ops": ops(1.5)}} if measured else {})


def steps(*kinds: str) -> list[dict]:
    return [{"kind": kind, "axes": f"axis{number}", "type": f"[after {number}]", "seconds": 1e-6 * (number + 1),
             "received_bytes": 100 * (number + 1), "live_bytes": 1000 - number}
            for number, kind in enumerate(kinds)]


def redistribution(*kinds: str, **others) -> dict:
    return {"picture": "redistribution", "source": "[x, -]", "destination": "[-, x]", "steps": steps(*kinds),
            "bound_bytes": 100} | others


class DrawTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def draw(self, description: dict, name: str = "picture.svg") -> bytes:
        path = self.folder / name
        result = run(json.dumps(description), str(path))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return path.read_bytes()

    def pieces(self, description: dict) -> tuple[dict[str, int], set[str]]:
        """What an SVG file has: by name how many shapes of a line or a polygon, and all texts."""
        root = xml.etree.ElementTree.fromstring(self.draw(description))
        shapes = {group.get("id"): sum(path.get("d").count("M") for path in group.iter(f"{SVG}path"))
                  for group in root.iter(f"{SVG}g")}
        return shapes, {text.text for text in root.iter(f"{SVG}text")}

    def pipeline(self, *runs: dict) -> tuple[dict[str, int], set[str]]:
        return self.pieces({"picture": "pipeline", "has_unit": True, "runs": runs})

    def test_a_plan_has_every_host_route_and_port(self):
        for hosts in (2, 5, 40):
            shapes, texts = self.pieces(chain(hosts))
            for host in range(hosts):
                self.assertIn(f"host-{host}", shapes)
                self.assertIn(f"host-{host}", texts)
            self.assertEqual(sum(name.startswith("route-") for name in shapes), hosts - 1)
            self.assertEqual(sum(name.startswith("port-") for name in shapes), 2 * (hosts - 1))
            self.assertIn("critical-chain", shapes)
            self.assertIn("host-0/nic out", texts)
        self.assertIn("rack rack1", self.pieces(chain(2))[1])

    def test_a_plan_that_is_too_large_says_what_is_left_out(self):
        _, texts = self.pieces(chain(120))
        self.assertIn("Not drawn, since others have more to do: 24 hosts, 24 routes, 110 ports.", texts)

    def test_a_plan_without_routes_says_so(self):
        texts = " ".join(self.pieces(chain(1))[1])
        self.assertIn("Nothing crosses the network", texts)

    def test_names_of_any_characters_are_drawn(self):
        _, texts = self.pieces(chain(2, name="<$a_{}&\x01$>"))
        self.assertIn("<$a_0&?$>", texts)

    def test_a_pipeline_has_every_rank_and_op_and_transfer(self):
        shapes, texts = self.pipeline(schedule(3, 4), schedule(2, 12, measured=True))
        self.assertEqual(shapes["run-0-rank-2-planned-F0"], 4)
        self.assertEqual(shapes["run-0-transfers-F"], 2 * 4)
        for kind in "FB":
            for form in ("planned", "measured"):
                self.assertEqual(shapes[f"run-1-rank-1-{form}-{kind}0"], 12)
        self.assertLessEqual({"rank 0", "rank 1", "rank 2", "rank 0, planned", "measured"}, texts)
        self.assertLessEqual({str(m) for m in range(12)}, texts)
        self.assertIn("3 microbatches on rank 0: 1.00 s each", texts)
        self.assertIn("3 ranks: 14.00 s, bubble 42.9 %", texts)

    def test_ops_that_are_too_fine_are_merged_and_said_to_be(self):
        shapes, texts = self.pipeline(schedule(17, 800))
        self.assertLess(sum(shapes.values()), 2000)
        self.assertIn("Where ops are narrower than a pixel, the kind is drawn that takes most of it. "
                      "Transfers are left out: there are too many to be told apart.", texts)

    def test_a_step_has_a_row_for_each_rank_and_each_purpose(self):
        ranks = [{"ops": [["F", 0, 1], ["F", 1, 2], ["I", 3, 4], ["", 4, 4.5]],
                  "lanes": [{"name": "weights", "exposed": 1, "spans": [[0, 0.5], [2, 3]]}]},
                 {"ops": [["W", 2, 4]], "lanes": []}]
        step = {"title": "r=2,z=4", "seconds": 4.5, "exposed": 1, "ranks": ranks}
        shapes, texts = self.pieces({"picture": "layers", "steps": [step, step | {"title": "z=8", "ranks": ranks[1:]}]})
        self.assertEqual([shapes[f"step-0-row-0-{color}"] for color in ("4575b4", "3a8f66", "9aa5b1")], [2, 1, 1])
        self.assertEqual(shapes["step-0-row-1-8c510a"], 2)
        self.assertEqual(shapes["step-1-row-0-d98c21"], 1)
        self.assertLessEqual({"rank 0 computes", "weights, 1.00 s exposed", "rank 1 computes", "computes", "on its way",
                              "r=2,z=4: 4.50 s, 1.00 s of it exposed"}, texts)

    def test_a_redistribution_has_every_step_and_method(self):
        shapes, texts = self.pieces(redistribution(
            "all_to_all", "slice", cap_bytes=2000,
            baselines={"gather": {"steps": steps("all_gather", "slice", "permute")}, "greedy": {"refusal": "no axis"}}))
        for field in ("seconds", "received_bytes"):
            self.assertLessEqual({f"{field}-search-0", f"{field}-search-1", f"{field}-gather-2"}, set(shapes))
        self.assertIn("live_bytes-gather-0", shapes)
        self.assertNotIn("live_bytes-gather-1", shapes)
        self.assertLessEqual({"[x, -] to [-, x]", "all_to_all axis0", "[after 1]", "search", "gather", "300 B", "600 B",
                              "3.00 µs", "1.0 kB", "permute", "No answer: greedy.",
                              "least of any plan: 100 B; cap: 2.0 kB"}, texts)

    def test_memory_over_time_has_a_strip_for_devices_that_have_as_much(self):
        memory = [{"devices": 3, "live_bytes": [900, 700]}, {"devices": 1, "live_bytes": [800, 0]}]
        shapes, texts = self.pieces(redistribution("all_to_all", "slice", memory=memory))
        self.assertLessEqual({f"memory-{strip}-{step}" for strip in range(2) for step in range(2)}, set(shapes))
        self.assertLessEqual({"Live over time", "3 devices", "1 device", "900 B", "800 B"}, texts)

    def test_a_redistribution_that_needs_no_step_is_drawn(self):
        _, texts = self.pieces(redistribution())
        self.assertLessEqual({"[x, -] to [-, x]", "search", "0 B"}, texts)

    def test_the_ending_says_the_format_and_equal_descriptions_give_equal_files(self):
        for ending, begin in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), ("", b"<?xml")):
            first, second = (self.draw(chain(3), number + ending) for number in "12")
            self.assertTrue(first.startswith(begin))
            self.assertEqual(first, second)

    def test_what_cannot_be_drawn_is_one_line(self):
        good = json.dumps(chain(2))
        for description in ("", "[]", "{}", '{"picture": "map"}', good.replace('"routes"', '"roots"'),
                            good.replace('"root"', '"route"')):
            result = run(description, str(self.folder / "picture.svg"))
            self.assertEqual(result.returncode, 1, description)
            self.assertRegex(result.stderr, r"^expected the description of a picture, found .*\n$")
        missing = str(self.folder / "none" / "picture.svg")
        result = run(good, missing)
        self.assertEqual(result.stderr, f"writing {missing}: No such file or directory\n")


if __name__ == "__main__":
    unittest.main()
