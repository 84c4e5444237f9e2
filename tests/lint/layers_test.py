"""Fails on an include, a dependency or an idiom that the architecture forbids.

    layers_test.py <repository root> <layers.json, written by crossmesh_write_layers>

A file may include its own folder and the folders that its target declares in DEPENDS. Further rules, from the design:
common, planner, and then controller, worker and client stand above each other, and nothing points up; controller, worker
and client do not use each other; no arrows between folders run in a circle, at any level of the tree; all of planner is
pure; pure modules depend on pure modules, common/base and the API's messages; what a worker is made of does not reach
CUDA, which is for the processes of its GPUs. Every .h, .cc and .cu belongs to a target.
"""

import json
import pathlib
import re
import sys
from dataclasses import dataclass, field

import source_tree

# What is above may use what is below, never the reverse; of what stands side by side nothing uses another.
HEIGHTS = {"common": 0, "planner": 1, "client": 2, "controller": 2, "worker": 2}
# Generated headers are included as "crossmesh/v1/mesh.pb.h"; their folder in the table is this one.
GENERATED = ("crossmesh/stored/v1/", "crossmesh/v1/", "etcd/", "google/rpc/")
PROTO_FOLDER = "proto"
# The worker, which outlives what CUDA does to a process, and what loads CUDA.
WITHOUT_CUDA = ("worker", "worker/gpu/process")
CUDA_FOLDER = "worker/gpu/libraries"

COMMENT = re.compile(r"//.*")


@dataclass(frozen=True)
class Ban:
    """An idiom that must not occur, what to write instead, and the only files that may have it."""

    pattern: re.Pattern
    instead: str
    allowed: tuple[str, ...] = ()
    allowed_in_tests: bool = False


BANS = (
    Ban(
        re.compile(r"\bstd::(recursive_|shared_|timed_)*mutex\b|\bstd::(lock_guard|unique_lock|scoped_lock)\b"
                   r"|\bstd::condition_variable|\babsl::(Mutex|CondVar)|#include <(mutex|condition_variable)>"),
        "Mutex, MutexLock and CondVar of common/base/mutex.h",
        ("common/base/mutex.h", "common/rpc/library_hold_test.cc"),
    ),
    Ban(re.compile(r"absl/synchronization/"), "common/base/mutex.h",
        ("common/rpc/library_hold.cc", "common/rpc/library_hold_test.cc")),
    Ban(re.compile(r"\bstd::string_view\b|#include <string_view>"), "absl::string_view"),
    Ban(re.compile(r"\babsl::(optional|variant|Span)\b"), "std::optional, std::variant, std::span"),
    Ban(re.compile(r"\bsleep_(for|until)\b|\babsl::SleepFor\b|\bu?sleep\("),
        "CondVar::WaitFor or EventFd; in tests, FakeClock"),
    # Wall time jumps. gRPC's deadlines, stamps of logs and of what is loaded are by it.
    Ban(re.compile(r"\bsystem_clock\b|\babsl::Now\(\)"), "Clock::Monotonic, or Clock::Now for people",
        ("common/base/clock.h", "common/base/log.cc", "common/daemon/daemon_main.cc", "common/rpc/channel.cc"),
        allowed_in_tests=True),
    Ban(re.compile(r"\bstd::j?thread\b(?!::)"), "Thread of common/base/thread.h",
        ("common/base/thread.h",), allowed_in_tests=True),
    Ban(re.compile(r"\.detach\(\)"), "a Thread that is joined"),
    Ban(re.compile(r"^\s*#\s*(el)?if.*(UCX|NCCL|CUDA)"), "one target per backend, chosen in CMake"),
    Ban(re.compile(r"^\s*#\s*ifndef \w+_H_?\b"), "#pragma once"),
)


@dataclass
class Layers:
    """What the build declares."""

    folder_of_target: dict[str, str] = field(default_factory=dict)
    pure_folders: set[str] = field(default_factory=set)
    targets: list[dict] = field(default_factory=list)

    @staticmethod
    def read(path: pathlib.Path) -> "Layers":
        layers = Layers()
        layers.targets = [target for target in json.loads(path.read_text()) if target is not None]
        for target in layers.targets:
            if target["kind"] == "module":
                layers.folder_of_target["crossmesh::" + target["name"]] = target["folder"]
                if target["pure"]:
                    layers.pure_folders.add(target["folder"])
        for name in ("proto", "proto_messages"):
            layers.folder_of_target["crossmesh::" + name] = PROTO_FOLDER
        return layers

    def depends(self, target: dict) -> set[str]:
        return {self.folder_of_target[name] for name in target["depends"] if name in self.folder_of_target}


def top(folder: str) -> str:
    return folder.split("/")[0]


def is_testing(folder: str) -> bool:
    return "testing" in folder.split("/")


def forbidden_dependency(layers: Layers, target: dict, folder: str) -> str | None:
    """Why `target` must not depend on `folder`, if it must not. Layering binds tests as it binds modules."""
    own, other = top(target["folder"]), top(folder)
    if own != other and own in HEIGHTS and other in HEIGHTS and HEIGHTS[own] <= HEIGHTS[other]:
        return f"{own} does not use {other}: arrows point from controller, worker and client to planner, then to common"
    is_for_tests = target["kind"] != "module" or own == "tests" or is_testing(target["folder"])
    if not is_for_tests and (other == "tests" or is_testing(folder)):
        return "only tests and modules for tests use tests or modules for tests"
    is_messages = folder == PROTO_FOLDER and "crossmesh::proto" not in target["depends"]
    if target["pure"] and folder not in layers.pure_folders and folder != "common/base" and not is_messages:
        return "a pure module depends only on pure modules, common/base and crossmesh::proto_messages"
    return None


def dependency_problems(layers: Layers) -> list[str]:
    return [
        f"{target['folder']}/CMakeLists.txt: {target['name']} depends on {folder}: {reason}"
        for target in layers.targets
        for folder in sorted(layers.depends(target))
        if (reason := forbidden_dependency(layers, target, folder))
    ]


def purity_problems(layers: Layers) -> list[str]:
    return [
        f"{target['folder']}/CMakeLists.txt: a module of planner must be PURE"
        for target in layers.targets
        if target["kind"] == "module" and top(target["folder"]) == "planner"
        and not target["pure"] and not is_testing(target["folder"])
    ]


def rooms_of(layers: Layers) -> dict[str, dict[str, set[str]]]:
    """By folder, the arrows between its rooms: its folders, with all that is in them, and its own files, named "."."""
    rooms: dict[str, dict[str, set[str]]] = {}
    for target in layers.targets:
        if target["kind"] != "module" or is_testing(target["folder"]):
            continue
        own = target["folder"].split("/")
        for folder in layers.depends(target):
            other = folder.split("/")
            shared = 0
            while shared < min(len(own), len(other)) and own[shared] == other[shared]:
                shared += 1
            if own == other:
                continue
            start, end = ([*path, "."][shared] for path in (own, other))
            rooms.setdefault("/".join(own[:shared]), {}).setdefault(start, set()).add(end)
    return rooms


def circle_in(arrows: dict[str, set[str]]) -> list[str]:
    """Rooms of which each points to the next, from a room back to itself; empty without a circle."""
    done: set[str] = set()

    def walk(room: str, way: list[str]) -> list[str]:
        if room in way:
            return [*way[way.index(room):], room]
        if room in done:
            return []
        for following in sorted(arrows.get(room, ())):
            if circle := walk(following, [*way, room]):
                return circle
        done.add(room)
        return []

    return next((circle for room in sorted(arrows) if (circle := walk(room, []))), [])


def circle_problems(layers: Layers) -> list[str]:
    return [
        f"{folder or 'the repository'}: its folders use each other in a circle: {' -> '.join(circle)}"
        for folder, arrows in sorted(rooms_of(layers).items())
        if (circle := circle_in(arrows))
    ]


def way_to(layers: Layers, folder: str, goal: str) -> list[str]:
    """Modules from `folder` to `goal`, each of which depends on the next; empty without a way."""
    depends = {target["folder"]: layers.depends(target) for target in layers.targets if target["kind"] == "module"}
    ways, seen = [[folder]], {folder}
    while ways:
        way = ways.pop(0)
        if way[-1] == goal:
            return way
        for following in sorted(depends.get(way[-1], set()) - seen):
            seen.add(following)
            ways.append([*way, following])
    return []


def cuda_problems(layers: Layers) -> list[str]:
    return [
        f"{' -> '.join(way)}: {folder} must not reach CUDA"
        for folder in WITHOUT_CUDA
        if (way := way_to(layers, folder, CUDA_FOLDER))
    ]


def include_problem(path: str, include: str, quote: str, may_include: set[str]) -> str | None:
    folder = PROTO_FOLDER if include.startswith(GENERATED) else str(pathlib.PurePosixPath(include).parent)
    ours = folder == PROTO_FOLDER or top(folder) in source_tree.ROOTS
    if quote == "<":
        return f'include "{include}" with quotes: it is ours' if ours else None
    if not ours:
        return f"include <{include}>: quotes are for our files, named from the repository root"
    if folder not in may_include:
        return f"includes {include}, but its target does not declare {folder} in DEPENDS"
    return None


def text_problems(path: str, text: str, may_include: set[str]) -> list[str]:
    problems = []
    lines = text.splitlines()
    is_test = path.endswith("_test.cc") or path.startswith("tests/")
    for number, line in enumerate(lines, start=1):
        if match := source_tree.INCLUDE.match(line):
            if problem := include_problem(path, match[2], match[1], may_include):
                problems.append(f"{path}:{number}: {problem}")
        code = COMMENT.sub("", line)
        for ban in BANS:
            if path in ban.allowed or (is_test and ban.allowed_in_tests):
                continue
            if match := ban.pattern.search(code):
                problems.append(f"{path}:{number}: '{match[0].strip()}' is not used here; use {ban.instead}")
    return problems


def file_problems(root: pathlib.Path, layers: Layers) -> list[str]:
    may_include: dict[str, set[str]] = {}
    for target in layers.targets:
        for path in target["files"]:
            may_include.setdefault(path, {target["folder"]}).update(layers.depends(target))
    problems = []
    for path in source_tree.source_files(root):
        if path not in may_include:
            problems.append(f"{path}: belongs to no target, so nothing builds it")
            continue
        problems += text_problems(path, (root / path).read_text(), may_include[path])
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    layers = Layers.read(pathlib.Path(sys.argv[2]))
    problems = dependency_problems(layers) + purity_problems(layers) + circle_problems(layers)
    problems += cuda_problems(layers) + file_problems(root, layers)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {len(layers.targets)} targets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
