"""Holds the container file and the compose file to the programs, to each other, and to Prometheus and Grafana.

    containers_test.py <repository root> <build folder>
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import deployed
from deployed import CONTAINERFILE, DEPLOY, ROOT

COMPOSE_FILE = DEPLOY / "compose/compose.yaml"
COMPOSE = deployed.load_yaml(COMPOSE_FILE)
SERVICES = COMPOSE["services"]
PROMETHEUS_FILE = DEPLOY / "compose/prometheus.yml"


def built() -> dict[str, dict]:
    """The services of images that are built here."""
    return {name: service for name, service in SERVICES.items() if "build" in service}


def daemons() -> dict[str, list[str]]:
    """The whole command lines of the services that are daemons."""
    commands = {}
    for name, service in built().items():
        if "command" in service:
            entrypoint = deployed.stages()[service["build"]["target"]]["ENTRYPOINT"][0]
            commands[name] = json.loads(entrypoint) + service["command"]
    return commands


def mounts(service: dict) -> dict[str, str]:
    """Targets of a service's volumes, with their sources."""
    return {target: source for source, target, *_ in (volume.split(":") for volume in service.get("volumes", []))}


def targets_of_prometheus() -> set[str]:
    jobs = deployed.load_yaml(PROMETHEUS_FILE)["scrape_configs"]
    return {target for job in jobs for config in job["static_configs"] for target in config["targets"]}


class ContainerfileTest(unittest.TestCase):
    def test_every_stage_begins_with_another_or_with_a_version_of_an_image(self):
        images = dict(re.findall(r"^ARG (\w+)=(\S+)$", CONTAINERFILE.read_text(), re.MULTILINE))
        names = list(deployed.stages())
        for line in re.findall(r"^FROM (\S+) AS \S+$", CONTAINERFILE.read_text(), re.MULTILINE):
            if line not in names:
                self.assertRegex(images[line.strip("${}")], r"^\S+/\S+:\d+\.\d+\S*$")

    def test_everything_that_is_copied_is_there(self):
        for stage, instructions in deployed.stages().items():
            for copy in instructions.get("COPY", []):
                *sources, _ = copy.split()
                for source in sources:
                    self.assertTrue((ROOT / source).exists(), f"{stage}: {source}")

    def test_what_is_left_out_of_the_context_is_not_tracked(self):
        for pattern in (ROOT / ".dockerignore").read_text().splitlines():
            if pattern.startswith("/"):
                tracked = subprocess.run(["git", "-C", ROOT, "ls-files", pattern[1:]], capture_output=True, check=True)
                self.assertEqual(tracked.stdout, b"", pattern)

    def test_only_packages_that_exist_are_installed(self):
        installed = set(re.findall(r"/packages/([a-z-]+)_\*\.deb", CONTAINERFILE.read_text()))
        config = (deployed.BUILD / "CPackConfig.cmake").read_text()
        packages = set(re.findall(r'CPACK_DEBIAN_\w+_PACKAGE_NAME "([a-z-]+)"', config))
        self.assertEqual(installed, packages)

    def test_images_end_as_one_user_without_privileges(self):
        users = {stage: instructions["USER"][-1] for stage, instructions in deployed.stages().items()
                 if "ENTRYPOINT" in instructions}
        self.assertEqual(set(users), {"client", "controller", "worker"})
        made = re.search(r"useradd --system --uid (\d+) --user-group .* crossmesh\b", CONTAINERFILE.read_text())[1]
        self.assertEqual(set(users.values()), {f"{made}:{made}"})

    def test_a_daemon_is_asked_by_the_ready_file_that_it_writes(self):
        for stage in ("controller", "worker"):
            instructions = deployed.stages()[stage]
            entrypoint = json.loads(instructions["ENTRYPOINT"][0])
            check = json.loads(instructions["HEALTHCHECK"][0].partition("CMD ")[2])
            self.assertEqual(check, ["crossmesh", "health", deployed.flag(entrypoint, "--ready-file")])


class ComposeTest(unittest.TestCase):
    def test_images_are_built_of_stages_that_exist(self):
        for name, service in built().items():
            build = service["build"]
            context = COMPOSE_FILE.parent / build["context"]
            self.assertEqual(context.resolve(), ROOT, name)
            self.assertEqual((context / build["dockerfile"]).resolve(), CONTAINERFILE, name)
            self.assertIn(build["target"], deployed.stages(), name)
            self.assertEqual(service["image"], f"crossmesh-{build['target']}:{deployed.project_version()}", name)

    def test_other_images_have_a_version(self):
        for name, service in SERVICES.items():
            if name not in built():
                self.assertRegex(service["image"], r"^\S+/\S+/\S+:v?\d+\.\d+\.\d+$", name)

    def test_daemons_understand_their_flags(self):
        self.assertEqual(set(daemons()), {"controller", "worker-a", "worker-b"})
        for name, command in daemons().items():
            with self.subTest(name):
                self.assertEqual(deployed.refusal(command), "")
                self.assertEqual(deployed.exposed_without_consent(command), [])

    def test_services_name_each_other_with_the_ports_that_they_listen_on(self):
        commands = daemons()
        listens = {f"{name}:{deployed.port(deployed.flag(command, '--listen'))}" for name, command in commands.items()}
        scraped = {f"{name}:{deployed.port(deployed.flag(command, '--metrics-listen'))}"
                   for name, command in commands.items()}
        for name, command in commands.items():
            if controller := deployed.flag(command, "--controller"):
                self.assertIn(controller, listens, name)
                self.assertEqual(deployed.flag(command, "--name"), name)
                self.assertEqual(deployed.flag(command, "--listen").partition(":")[0], name)
        self.assertIn(SERVICES["client"]["environment"]["CROSSMESH_CONTROLLER"], listens)
        self.assertEqual(targets_of_prometheus(), scraped)
        for name, service in SERVICES.items():
            for other in service.get("depends_on", []):
                self.assertIn(other, SERVICES, name)

    def test_only_this_machine_reaches_what_is_published(self):
        for name, service in SERVICES.items():
            for published in service.get("ports", []):
                self.assertTrue(published.startswith("127.0.0.1:"), f"{name}: {published}")

    def test_what_is_mounted_is_there(self):
        for name, service in SERVICES.items():
            for source in mounts(service).values():
                if source.startswith("."):
                    self.assertTrue((COMPOSE_FILE.parent / source).exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, COMPOSE["volumes"], name)

    def test_daemons_may_write_where_their_flags_lead(self):
        for name, command in daemons().items():
            writable = [*mounts(SERVICES[name]), *(entry.partition(":")[0] for entry in SERVICES[name]["tmpfs"])]
            for path in filter(None, (deployed.flag(command, flag)
                                      for flag in ("--ready-file", "--memory-socket", "--state-dir"))):
                self.assertTrue(any(pathlib.PurePath(path).is_relative_to(folder) for folder in writable), path)

    def test_what_daemons_know_is_on_volumes(self):
        for name, command in daemons().items():
            [folder] = [target for target, source in mounts(SERVICES[name]).items() if source in COMPOSE["volumes"]]
            self.assertTrue(pathlib.PurePath(deployed.flag(command, "--state-dir")).is_relative_to(folder), name)

    @unittest.skipUnless(shutil.which("docker") and subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False).returncode == 0, "no docker compose")
    def test_compose_takes_it(self):
        subprocess.run(["docker", "compose", "--file", COMPOSE_FILE, "config", "--quiet"], check=True)


class ObservationTest(unittest.TestCase):
    def test_prometheus_takes_its_configuration(self):
        subprocess.run(["promtool", "check", "config", PROMETHEUS_FILE], check=True, capture_output=True)

    def test_grafana_finds_the_dashboards(self):
        mounted = mounts(SERVICES["grafana"])
        provisioned = {pathlib.Path(target).name: COMPOSE_FILE.parent / source for target, source in mounted.items()
                       if target.startswith("/etc/grafana/provisioning/")}
        self.assertEqual(set(provisioned), {"dashboards", "datasources"})
        [provider] = deployed.load_yaml(provisioned["dashboards"] / "crossmesh.yaml")["providers"]
        source = COMPOSE_FILE.parent / mounted[provider["options"]["path"]]
        self.assertEqual(source.resolve(), ROOT / "dashboards")

    def test_dashboards_find_the_data(self):
        [source] = deployed.load_yaml(DEPLOY / "compose/grafana/datasources/prometheus.yaml")["datasources"]
        # Dashboards have a variable for the source; Grafana sets it to the default one of its type.
        self.assertTrue(source["isDefault"])
        self.assertEqual(source["url"], "http://prometheus:9090")
        self.assertIn("prometheus", SERVICES["grafana"]["depends_on"])
        for dashboard in (ROOT / "dashboards").glob("*.json"):
            variables = json.loads(dashboard.read_text())["templating"]["list"]
            [variable] = (variable for variable in variables if variable["name"] == "datasource")
            self.assertEqual((variable["type"], variable["query"]), ("datasource", source["type"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
