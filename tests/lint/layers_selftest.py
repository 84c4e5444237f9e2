"""Does layers_test.py find what it should? Each rule with a case that breaks it and one that does not."""

import unittest

import layers_test
from layers_test import Layers


def target(kind: str, folder: str, depends: tuple[str, ...] = (), pure: bool = False) -> dict:
    name = folder.replace("/", "_")
    return {"kind": kind, "name": name, "folder": folder, "pure": pure, "files": [],
            "depends": ["crossmesh::" + other.replace("/", "_") for other in depends]}


def layers_of(*targets: dict) -> Layers:
    layers = Layers(targets=list(targets))
    for entry in targets:
        layers.folder_of_target["crossmesh::" + entry["name"]] = entry["folder"]
        if entry["pure"]:
            layers.pure_folders.add(entry["folder"])
    return layers


class DependencyTest(unittest.TestCase):
    def problems(self, *targets: dict) -> list[str]:
        return layers_test.dependency_problems(layers_of(*targets))

    def test_common_must_not_point_up(self):
        upper = target("module", "worker/memory", pure=True)
        self.assertEqual(len(self.problems(upper, target("module", "common/plan", ("worker/memory",)))), 1)

    def test_all_use_the_planner_and_it_uses_none_of_them(self):
        planner = target("module", "planner/reshard", pure=True)
        self.assertEqual(self.problems(planner, target("module", "client/cli", ("planner/reshard",))), [])
        catalog = target("module", "controller/catalog", pure=True)
        self.assertEqual(
            len(self.problems(catalog, target("module", "planner/reshard", ("controller/catalog",), pure=True))), 1)

    def test_controller_worker_and_client_do_not_use_each_other(self):
        client = target("module", "client/cli", pure=True)
        self.assertEqual(len(self.problems(client, target("module", "worker/service", ("client/cli",)))), 1)

    def test_the_planner_is_pure(self):
        self.assertEqual(len(layers_test.purity_problems(layers_of(target("module", "planner/reshard")))), 1)
        self.assertEqual(layers_test.purity_problems(layers_of(target("module", "planner/reshard/testing"),
                                                               target("module", "planner/reshard", pure=True))), [])

    def test_pure_modules_stay_pure(self):
        base = target("module", "common/base")
        wire = target("module", "common/wire")
        self.assertEqual(self.problems(base, target("module", "common/plan", ("common/base",), pure=True)), [])
        self.assertEqual(len(self.problems(wire, target("module", "common/plan", ("common/wire",), pure=True))), 1)

    def test_tests_may_use_testing_and_modules_may_not(self):
        testing = target("module", "common/testing")
        self.assertEqual(self.problems(testing, target("test", "common/plan", ("common/testing",))), [])
        self.assertEqual(len(self.problems(testing, target("module", "common/plan", ("common/testing",)))), 1)

    def test_only_modules_for_tests_use_tests(self):
        standin = target("module", "tests/standin")
        self.assertEqual(self.problems(standin, target("module", "worker/gpu/testing/cluster", ("tests/standin",))), [])
        self.assertEqual(len(self.problems(standin, target("module", "worker/gpu", ("tests/standin",)))), 1)


class CudaTest(unittest.TestCase):
    def problems(self, *targets: dict) -> list[str]:
        return layers_test.cuda_problems(layers_of(*targets))

    def test_a_worker_must_not_reach_cuda_by_any_way(self):
        libraries = target("module", "worker/gpu/libraries")
        device = target("module", "worker/gpu/device", ("worker/gpu/libraries",))
        memory = target("module", "worker/memory", ("worker/gpu/device",))
        worker = target("module", "worker", ("worker/memory",))
        self.assertEqual(self.problems(libraries, device, memory, worker),
                         ["worker -> worker/memory -> worker/gpu/device -> worker/gpu/libraries: "
                          "worker must not reach CUDA"])

    def test_its_program_for_gpus_may(self):
        loop = target("module", "worker/gpu/loop", ("worker/gpu/libraries",))
        worker = target("module", "worker", ("worker/gpu/process",))
        self.assertEqual(self.problems(target("module", "worker/gpu/libraries"), loop,
                                       target("module", "worker/gpu/process"), worker), [])


class CircleTest(unittest.TestCase):
    def problems(self, *targets: dict) -> list[str]:
        return layers_test.circle_problems(layers_of(*targets))

    def test_folders_must_not_use_each_other_even_by_different_modules(self):
        targets = [target("module", "worker/tasks"), target("module", "worker/service", ("worker/pipeline",)),
                   target("module", "worker/service/codec"), target("module", "worker/pipeline", ("worker/tasks",))]
        self.assertEqual(self.problems(*targets), [])
        targets[3]["depends"].append("crossmesh::worker_service_codec")
        self.assertEqual(self.problems(*targets),
                         ["worker: its folders use each other in a circle: pipeline -> service -> pipeline"])

    def test_a_folder_uses_its_own_folders_or_they_use_it(self):
        user, used = target("module", "worker/gpu", ("worker/gpu/loop",)), target("module", "worker/gpu/loop")
        self.assertEqual(self.problems(user, used), [])
        used["depends"].append("crossmesh::worker_gpu")
        self.assertEqual(len(self.problems(user, used)), 1)

    def test_what_tests_are_made_of_is_free(self):
        testing = target("module", "worker/memory/testing", ("worker/service",))
        self.assertEqual(self.problems(testing, target("module", "worker/memory"),
                                       target("module", "worker/service", ("worker/memory",))), [])


class TextTest(unittest.TestCase):
    def problems(self, text: str, path: str = "worker/memory/arena.cc") -> list[str]:
        return layers_test.text_problems(path, text, {"worker/memory", "common/base"})

    def test_includes_need_a_declared_dependency(self):
        self.assertEqual(self.problems('#include "common/base/check.h"'), [])
        self.assertEqual(len(self.problems('#include "common/plan/plan.h"')), 1)
        self.assertEqual(len(self.problems('#include "crossmesh/v1/mesh.pb.h"')), 1)

    def test_quotes_are_for_our_files(self):
        self.assertEqual(self.problems("#include <absl/status/status.h>"), [])
        self.assertEqual(len(self.problems('#include "absl/status/status.h"')), 1)
        self.assertEqual(len(self.problems("#include <common/base/check.h>")), 1)
        self.assertEqual(len(self.problems('#include "arena.h"')), 1)

    def test_banned_idioms(self):
        for line in ("std::mutex m;", "absl::MutexLock l(&m);", "#include <absl/synchronization/notification.h>",
                     "std::string_view s;", "std::this_thread::sleep_for(x);", "absl::SleepFor(x);",
                     "std::thread t;", "t.detach();", "#ifdef CROSSMESH_WITH_NCCL", "absl::optional<int> x;",
                     "auto end = absl::Now() + timeout;", "std::chrono::system_clock::now();"):
            self.assertEqual(len(self.problems(line)), 1, line)

    def test_what_resembles_a_banned_idiom(self):
        for line in ("absl::string_view s;", "// Unlike std::mutex.", "std::thread::hardware_concurrency();",
                     "std::this_thread::get_id();", "MutexLock lock(mutex_);"):
            self.assertEqual(self.problems(line), [], line)

    def test_only_tests_start_bare_threads(self):
        self.assertEqual(self.problems("std::thread t;", "worker/memory/arena_test.cc"), [])


if __name__ == "__main__":
    unittest.main()
