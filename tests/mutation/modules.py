"""Which modules are held to it, and by which suites: a module's own first, then those of its users."""

import json
import os
import pathlib
from dataclasses import dataclass

from failure import Failure
from parsing import Parsed, options_of


@dataclass(frozen=True)
class Module:
    """A folder of the product. `is_held`: it is among those that are tried when none is named."""

    folder: str
    suites: tuple[str, ...]
    is_held: bool = True


MODULES = (
    Module("common/plan", ("common_plan_test", "planner_reshard_test", "worker_executor_test")),
    Module("controller/catalog", ("controller_catalog_test",)),
    Module("controller/operation", ("controller_operation_test", "controller_dispatch_test")),
    Module("controller/store", ("controller_store_test", "controller_catalog_test")),
    Module("planner/network", ("planner_network_test", "planner_reshard_test"), is_held=False),
    Module("planner/pipeline", ("planner_pipeline_test", "planner_pipeline_schedules_test",
                                "planner_pipeline_search_test")),
    Module("planner/reshard", ("planner_reshard_test", "tests_integration_test"), is_held=False),
    Module("worker/executor", ("worker_executor_test", "worker_gpu_compiler_test", "tests_integration_test")),
    Module("worker/memory", ("worker_memory_test", "worker_executor_test"), is_held=False),
    Module("worker/pipeline", ("worker_pipeline_test", "tests_integration_test"), is_held=False),
    Module("worker/tasks", ("worker_tasks_test", "worker_test")),
    Module("worker/transport/socket", ("worker_transport_socket_test", "worker_transport_striped_test")),
)


def named(folders: list[str]) -> list[Module]:
    """Of a folder that the table lacks, the suite of its name alone."""
    if not folders:
        return [module for module in MODULES if module.is_held]
    table = {module.folder: module for module in MODULES}
    names = [folder.rstrip("/") for folder in folders]
    return [table.get(name, Module(name, (name.replace("/", "_") + "_test",))) for name in names]


@dataclass(frozen=True)
class BuildFolder:
    """What a configured build says of itself."""

    root: pathlib.Path
    folder: pathlib.Path

    def layers(self) -> list[dict]:
        return [record for record in json.loads((self.folder / "layers.json").read_text()) if record]

    def programs(self) -> dict[str, pathlib.Path]:
        """Where test programs will be."""
        return {record["name"]: self.folder / record["folder"] / record["name"]
                for record in self.layers() if record["kind"] == "test"}

    def commands(self) -> dict[str, dict]:
        """How each source is compiled, by its path."""
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        return {os.path.relpath(entry["file"], self.root): entry for entry in entries}

    def objects(self) -> dict[str, pathlib.Path]:
        words = {path: entry["command"].split() for path, entry in self.commands().items()}
        return {path: self.folder / command[command.index("-o") + 1] for path, command in words.items()}

    def product(self, module: Module) -> list[Parsed]:
        """The module's own sources and headers. A header is parsed with the options of a source beside it."""
        declared = [record for record in self.layers()
                    if record["kind"] == "module" and record["folder"] == module.folder]
        if not declared:
            raise Failure(f"no module {module.folder}")
        commands = {path: entry for path, entry in self.commands().items()
                    if path.startswith((f"{module.folder}/", f"build/{self.folder.name}/{module.folder}/alone/"))}
        paths = sorted(path for path in declared[0]["files"] if path.endswith((".cc", ".h")))
        files = []
        for path in paths:
            source = path[:-2] + ".cc" if path.endswith(".h") else path
            entry = commands.get(source) or next(iter(commands.values()))
            files.append(Parsed(self.root, path, options_of(entry["command"])))
        return files
