"""Holds the kustomize base, and the overlay with two controllers, to the programs, to the images and to themselves.

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
OVERLAY = DEPLOY / "kubernetes/high-availability"
KUSTOMIZATION = deployed.load_yaml(BASE / "kustomization.yaml")
RESOURCES = [document for path in KUSTOMIZATION["resources"]
             for document in yaml.safe_load_all((BASE / path).read_text())]
WORKLOADS = {resource["metadata"]["name"]: resource for resource in RESOURCES
             if resource["kind"] in ("DaemonSet", "Deployment")}
[SERVICE] = (resource for resource in RESOURCES if resource["kind"] == "Service")
CLAIMS = {resource["metadata"]["name"] for resource in RESOURCES if resource["kind"] == "PersistentVolumeClaim"}
# Volumes that pods may have which hold to the standard `restricted`.
RESTRICTED_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
# What the downward API puts in the place of variables.
VARIABLES = {"$(NODE)": "node-a.example.org", "$(ADDRESS)": "192.0.2.1", "$(NAME)": "crossmesh-etcd-1"}


def command_of(container: dict) -> list[str]:
    arguments = " ".join(container["args"])
    for variable, value in VARIABLES.items():
        arguments = arguments.replace(variable, value)
    if "command" in container:
        return container["command"] + arguments.split()
    stage = container["image"].removeprefix("crossmesh-")
    return json.loads(deployed.stages()[stage]["ENTRYPOINT"][0]) + arguments.split()


def flags_of(container: dict, name: str) -> list[str]:
    """The values of a flag that is given again and again."""
    return [argument.partition("=")[2] for argument in command_of(container) if argument.startswith(f"{name}=")]


def what_restricted_refuses(pod: dict) -> list[str]:
    """Of Kubernetes' pod security standard `restricted`, as far as anything here could be against it."""
    found = [field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field)]
    for volume in pod.get("volumes", []):
        found += [f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - RESTRICTED_VOLUMES]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        context = pod["securityContext"] | container["securityContext"]
        expected = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"}}
        found += [f"{container['name']}: {name}" for name, value in expected.items() if context.get(name) != value]
        found += [f"{container['name']}: {name}" for name in ("privileged", "procMount") if name in context]
        found += [f"{container['name']}: root"] if context.get("runAsUser") == 0 else []
        found += [f"{container['name']}: hostPort" for port in container.get("ports", []) if "hostPort" in port]
    return found


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
            claimed = {volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]
                       if "persistentVolumeClaim" in volume}
            self.assertLessEqual(claimed, CLAIMS)
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

    def test_a_volume_stays_its_users_alone(self):
        for _, template, _ in self.each():
            if "fsGroup" in template["spec"]["securityContext"]:
                # Otherwise Kubernetes opens the store's folder to the group, which the controller refuses.
                self.assertEqual(template["spec"]["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch")

    def test_the_controller_is_restricted_and_only_workers_need_more(self):
        refused = {name: what_restricted_refuses(workload["spec"]["template"]["spec"])
                   for name, workload in WORKLOADS.items()}
        self.assertEqual(refused["crossmesh-controller"], [])
        self.assertIn("volume state: hostPath", refused["crossmesh-worker"])
        [namespace] = (resource for resource in RESOURCES if resource["kind"] == "Namespace")
        self.assertEqual(namespace["metadata"]["labels"], {"pod-security.kubernetes.io/enforce": "privileged",
                                                           "pod-security.kubernetes.io/audit": "restricted"})

    @unittest.skipUnless(kustomize(), "neither kustomize nor kubectl")
    def test_kustomize_makes_one_document_of_it(self):
        made = subprocess.run([*kustomize(), BASE], capture_output=True, text=True, check=True)
        kinds = sorted(document["kind"] for document in yaml.safe_load_all(made.stdout))
        self.assertEqual(kinds, sorted(resource["kind"] for resource in RESOURCES))


@unittest.skipUnless(kustomize(), "neither kustomize nor kubectl")
class HighAvailabilityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run([*kustomize(), OVERLAY], capture_output=True, text=True, check=True)
        cls.resources = list(yaml.safe_load_all(made.stdout))
        cls.controller = cls.of("StatefulSet", "crossmesh-controller")
        cls.etcd = cls.of("StatefulSet", "crossmesh-etcd")

    @classmethod
    def of(cls, kind: str, name: str) -> dict:
        [found] = (resource for resource in cls.resources
                   if (resource["kind"], resource["metadata"]["name"]) == (kind, name))
        return found

    def test_every_file_is_used(self):
        kustomization = deployed.load_yaml(OVERLAY / "kustomization.yaml")
        used = {path for path in kustomization["resources"] if path != "../base"}
        used |= {patch["path"] for patch in kustomization["patches"]}
        self.assertEqual({path.name for path in OVERLAY.iterdir()} - {"kustomization.yaml"}, used)

    def test_controllers_keep_what_they_know_in_etcd_alone(self):
        [container] = deployed.containers_of(self.controller)
        command = command_of(container)
        self.assertEqual(deployed.refusal(command), "")
        self.assertEqual(deployed.exposed_without_consent(command), [])
        self.assertIsNone(deployed.flag(command, "--state-dir"))
        self.assertEqual(self.controller["spec"]["replicas"], 2)
        self.assertNotIn("PersistentVolumeClaim", {resource["kind"] for resource in self.resources})

    def test_what_each_controller_has_seen_of_etcd_outlives_its_pod(self):
        [container] = deployed.containers_of(self.controller)
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        [claim] = self.controller["spec"]["volumeClaimTemplates"]
        folder = mounts[claim["metadata"]["name"]]
        self.assertEqual(deployed.flag(command_of(container), "--etcd-watermark"), f"{folder}/etcd.watermark")
        pod = self.controller["spec"]["template"]["spec"]
        self.assertEqual(pod["securityContext"]["fsGroup"], pod["securityContext"]["runAsGroup"])
        self.assertEqual([volume["name"] for volume in pod["volumes"]], sorted(mounts.keys() - {claim["metadata"]["name"]}))

    def test_controllers_are_a_stateful_set_as_kubernetes_wants_one(self):
        [service] = (resource for resource in self.resources
                     if (resource["kind"], resource["metadata"]["name"]) == ("Service", self.controller["spec"]["serviceName"]))
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertNotIn("Deployment", {resource["kind"] for resource in self.resources})
        # Those of apps/v1, so that nothing of the deployment is left.
        self.assertLessEqual(set(self.controller["spec"]),
                             {"minReadySeconds", "podManagementPolicy", "replicas", "selector", "serviceName", "template",
                              "updateStrategy", "volumeClaimTemplates"})

    def test_a_controller_says_where_it_is_reached_when_it_leads(self):
        [container] = deployed.containers_of(self.controller)
        command = command_of(container)
        self.assertEqual(deployed.flag(command, "--advertise"), f"{VARIABLES['$(ADDRESS)']}:7400")
        self.assertEqual(deployed.port(deployed.flag(command, "--listen")), 7400)

    def test_controllers_and_members_find_all_members(self):
        [etcd] = deployed.containers_of(self.etcd)
        [controller] = deployed.containers_of(self.controller)
        service = self.of("Service", self.etcd["spec"]["serviceName"])
        self.assertEqual(service["spec"]["selector"], self.etcd["spec"]["template"]["metadata"]["labels"])
        ports = {entry["name"]: entry["port"] for entry in service["spec"]["ports"]}
        hosts = [f"crossmesh-etcd-{i}.{self.etcd['spec']['serviceName']}" for i in range(self.etcd["spec"]["replicas"])]
        self.assertEqual(flags_of(controller, "--etcd"), [f"{host}:{ports['client']}" for host in hosts])
        [cluster] = flags_of(etcd, "--initial-cluster")
        self.assertEqual(cluster.split(","), [f"{host.partition('.')[0]}=http://{host}:{ports['peer']}" for host in hosts])
        for flag, port in (("--advertise-client-urls", "client"), ("--initial-advertise-peer-urls", "peer")):
            self.assertEqual(flags_of(etcd, flag), [f"http://{hosts[1]}:{ports[port]}"])
        for flag, port in (("--listen-client-urls", "client"), ("--listen-peer-urls", "peer")):
            self.assertEqual(flags_of(etcd, flag), [f"http://0.0.0.0:{ports[port]}"])
        listening = {entry["name"]: entry["containerPort"] for entry in etcd["ports"]}
        self.assertEqual(listening, ports)

    def test_etcd_is_as_the_operations_page_wants_it(self):
        [etcd] = deployed.containers_of(self.etcd)
        page = (deployed.ROOT / "docs/operations.md").read_text()
        for argument in ("--auto-compaction-mode=periodic", "--auto-compaction-retention=1h", "--max-txn-ops=4096"):
            self.assertIn(argument, etcd["args"])
            self.assertIn(argument, " ".join(page.split()))
        self.assertRegex(etcd["image"], r":v3\.(5|6)\.\d+$")
        self.assertEqual(self.etcd["spec"]["replicas"] % 2, 1)

    @unittest.skipUnless(shutil.which("etcd"), "no etcd")
    def test_etcd_has_these_flags(self):
        usage = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=True)
        known = set(re.findall(r"^\s+(--[a-z-]+)\b", usage.stdout + usage.stderr, re.MULTILINE))
        [etcd] = deployed.containers_of(self.etcd)
        self.assertLessEqual({argument.partition("=")[0] for argument in etcd["args"]}, known)

    def test_one_of_the_controllers_and_a_majority_of_etcd_stay_when_nodes_are_emptied(self):
        for name, workload, left in (("crossmesh-controller", self.controller, 1), ("crossmesh-etcd", self.etcd, 2)):
            budget = self.of("PodDisruptionBudget", name)
            labels = workload["spec"]["template"]["metadata"]["labels"]
            self.assertEqual(budget["spec"], {"minAvailable": left, "selector": {"matchLabels": labels}})
            [term] = (workload["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
                      ["requiredDuringSchedulingIgnoredDuringExecution"])
            self.assertEqual(term, {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"})

    def test_a_controller_that_stands_by_is_not_restarted_for_it(self):
        # It listens to nothing, so no probe may ask it.
        [container] = deployed.containers_of(self.controller)
        self.assertEqual([name for name in container if name.endswith("Probe")], [])

    def test_all_but_workers_are_restricted(self):
        for workload in (self.controller, self.etcd):
            self.assertEqual(what_restricted_refuses(workload["spec"]["template"]["spec"]), [])
            [container] = deployed.containers_of(workload)
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(set(container["resources"]), {"requests", "limits"})

    def test_only_controllers_and_members_reach_etcd(self):
        [clients, peers] = self.of("NetworkPolicy", "crossmesh-etcd")["spec"]["ingress"]
        selected = [rule["from"][0]["podSelector"]["matchLabels"] for rule in (clients, peers)]
        self.assertEqual(selected, [workload["spec"]["template"]["metadata"]["labels"]
                                    for workload in (self.controller, self.etcd)])
        self.assertEqual(clients["ports"], [{"port": "client"}])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
