"""Holds the kustomize base to the programs, to the images and to itself.

    kubernetes_test.py <repository root> <build folder>
"""

import json
import re
import shutil
import subprocess
import sys
import unittest

import deployed
import yaml
from deployed import DEPLOY

BASE = DEPLOY / "kubernetes/base"
KUSTOMIZATION = deployed.load_yaml(BASE / "kustomization.yaml")
RESOURCES = [document for path in KUSTOMIZATION["resources"]
             for document in yaml.safe_load_all((BASE / path).read_text())]
WORKLOADS = {resource["metadata"]["name"]: resource for resource in RESOURCES
             if resource["kind"] in ("DaemonSet", "Deployment")}
[SERVICE] = (resource for resource in RESOURCES if resource["kind"] == "Service")
# What the downward API puts in the place of variables.
VARIABLES = {"$(NODE)": "node-a.example.org", "$(ADDRESS)": "192.0.2.1"}


def command_of(container: dict) -> list[str]:
    stage = container["image"].removeprefix("crossmesh-")
    arguments = " ".join(container["args"])
    for variable, value in VARIABLES.items():
        arguments = arguments.replace(variable, value)
    return json.loads(deployed.stages()[stage]["ENTRYPOINT"][0]) + arguments.split()


def kustomize() -> list[str] | None:
    """What makes one document of a base, if this machine has it."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") else None


class KubernetesTest(unittest.TestCase):
    def each(self):
        self.assertEqual(set(WORKLOADS), {"crossmesh-controller", "crossmesh-worker"})
        for name, workload in WORKLOADS.items():
            with self.subTest(name):
                [container] = deployed.containers_of(workload)
                yield workload, workload["spec"]["template"], container

    def test_every_file_is_a_resource(self):
        files = {path.name for path in BASE.iterdir()} - {"kustomization.yaml"}
        self.assertEqual(files, set(KUSTOMIZATION["resources"]))
        [namespace] = (resource for resource in RESOURCES if resource["kind"] == "Namespace")
        self.assertEqual(namespace["metadata"]["name"], KUSTOMIZATION["namespace"])

    def test_daemons_understand_their_flags(self):
        for _, _, container in self.each():
            self.assertEqual(deployed.refusal(command_of(container)), "")
            self.assertEqual(deployed.exposed_without_consent(command_of(container)), [])
            used = set(re.findall(r"\$\((\w+)\)", " ".join(container["args"])))
            self.assertEqual(used, {variable["name"] for variable in container.get("env", [])})

    def test_images_are_those_of_this_version(self):
        images = {image["name"]: image["newTag"] for image in KUSTOMIZATION["images"]}
        self.assertEqual(set(images), set(WORKLOADS))
        self.assertEqual(set(images.values()), {deployed.project_version()})
        for name, workload in WORKLOADS.items():
            pod = workload["spec"]["template"]["spec"]
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                self.assertEqual(container["image"], name)

    def test_selectors_select_their_pods(self):
        for workload, template, _ in self.each():
            self.assertEqual(workload["spec"]["selector"]["matchLabels"], template["metadata"]["labels"])
        pods = [workload["spec"]["template"]["metadata"]["labels"] for workload in WORKLOADS.values()]
        self.assertIn(SERVICE["spec"]["selector"], pods)
        [policy] = (resource for resource in RESOURCES if resource["kind"] == "NetworkPolicy")
        [expression] = policy["spec"]["podSelector"]["matchExpressions"]
        self.assertCountEqual([labels[expression["key"]] for labels in pods], expression["values"])

    def test_ports_and_probes_are_where_the_daemon_listens(self):
        for _, template, container in self.each():
            command = command_of(container)
            ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
            self.assertEqual(ports, {"grpc": deployed.port(deployed.flag(command, "--listen")),
                                     "metrics": deployed.port(deployed.flag(command, "--metrics-listen"))})
            self.assertEqual(container["readinessProbe"]["grpc"], {"port": ports["grpc"]})
            self.assertEqual(template["metadata"]["annotations"]["prometheus.io/port"], str(ports["metrics"]))

    def test_a_daemon_is_not_restarted_for_having_all_its_connections(self):
        for _, _, container in self.each():
            for probe in ("startupProbe", "livenessProbe"):
                self.assertEqual(container[probe]["httpGet"], {"path": "/metrics", "port": "metrics"})

    def test_workers_find_the_controller_by_its_service(self):
        [controller] = deployed.containers_of(WORKLOADS["crossmesh-controller"])
        names = {entry["name"] for entry in controller["ports"]}
        ports = {entry["name"]: entry for entry in SERVICE["spec"]["ports"]}
        self.assertEqual({entry["targetPort"] for entry in ports.values()}, names)
        [worker] = deployed.containers_of(WORKLOADS["crossmesh-worker"])
        self.assertEqual(deployed.flag(command_of(worker), "--controller"),
                         f"{SERVICE['metadata']['name']}:{ports['grpc']['port']}")

    def test_pods_have_no_privileges_and_write_only_to_volumes(self):
        user = int(deployed.stages()["client"]["USER"][-1].partition(":")[0])
        for _, template, container in self.each():
            pod = template["spec"]
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertEqual((pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]), (user, user))
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
            volumes = {volume["name"] for volume in pod["volumes"]}
            for one in [container, *pod.get("initContainers", [])]:
                self.assertLessEqual({mount["name"] for mount in one["volumeMounts"]}, volumes)
            folders = [mount["mountPath"] for mount in container["volumeMounts"]]
            for name in ("--ready-file", "--memory-socket", "--state-dir"):
                path = deployed.flag(command_of(container), name)
                self.assertTrue(path is None or any(path.startswith(f"{folder}") for folder in folders), path)

    def test_storages_are_not_lost_to_an_update_that_nobody_asked_for(self):
        self.assertEqual(WORKLOADS["crossmesh-worker"]["spec"]["updateStrategy"], {"type": "OnDelete"})
        self.assertEqual(WORKLOADS["crossmesh-controller"]["spec"]["strategy"], {"type": "Recreate"})
        self.assertEqual(WORKLOADS["crossmesh-controller"]["spec"]["replicas"], 1)

    @unittest.skipUnless(kustomize(), "neither kustomize nor kubectl")
    def test_kustomize_makes_one_document_of_it(self):
        made = subprocess.run([*kustomize(), BASE], capture_output=True, text=True, check=True)
        kinds = sorted(document["kind"] for document in yaml.safe_load_all(made.stdout))
        self.assertEqual(kinds, sorted(resource["kind"] for resource in RESOURCES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
