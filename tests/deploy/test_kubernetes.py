"""deploy/kubernetes: each object is one to Kubernetes, and they name each other."""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from blockyard.server.access.principal import Scope
from blockyard.server.access.rules import OPEN, RULES
from blockyard.server.settings import Settings
from blockyard.server.trial.nats_servers import MAX_PAYLOAD_BYTES
from deploy.image import NAMES, PREFIX, image_user, nats_hosts, node_of, url_of
from deploy.nats_in_compose import NATS_CONFIG, told_by
from deploy.programs import DEPLOY, built, read_yaml
from waiting import wait_for

FOLDERS = ["cluster", "watched"]
VERSIONS = ["1.29", "1.33", "1.37"]
OF_OPERATORS = {"ServiceMonitor"}
"""Kinds that Kubernetes does not have of itself."""
POD, NAMESPACE = "blockyard-1", "blockyard"
NATS_LABELS = {"app.kubernetes.io/name": "nats", "app.kubernetes.io/component": "nats"}
"""Which the chart gives its servers' pods."""


@cache
def objects() -> dict[tuple[str, str], dict[str, Any]]:
    """All that `watched` has, which `cluster` is a part of, by kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in built("watched")}


def spec(kind: str, name: str = "blockyard") -> dict[str, Any]:
    found: dict[str, Any] = objects()[kind, name]["spec"]
    return found


def nodes() -> dict[str, Any]:
    """As `cluster` has them."""
    (found,) = [each for each in built("cluster") if each["kind"] == "StatefulSet"]
    made: dict[str, Any] = found["spec"]
    return made


def pod() -> dict[str, Any]:
    found: dict[str, Any] = spec("StatefulSet")["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    made: dict[str, Any] = found
    return made


def variables() -> dict[str, str]:
    """What the container of `POD` is told, as Kubernetes puts variables into those after them."""
    fields = {"metadata.name": POD, "metadata.namespace": NAMESPACE}
    told: dict[str, str] = {}
    for each in container()["env"]:
        if "value" in each:
            told[each["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: told.get(found[1], found[0]), each["value"]
            )
        else:
            told[each["name"]] = fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
    return told


def is_selected(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def pod_labels() -> dict[str, str]:
    found: dict[str, str] = spec("StatefulSet")["template"]["metadata"]["labels"]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_one_to_kubernetes(folder: str, version: str) -> None:
    checked = [each for each in built(folder) if each["kind"] not in OF_OPERATORS]
    assert len(checked) >= 7
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_that_kubernetes_does_not_know_is_found(version: str) -> None:
    wrong = deepcopy(objects()["StatefulSet", "blockyard"])
    wrong["spec"]["template"]["spec"]["gracePeriod"] = 60
    with pytest.raises(kubernetes_validate.ValidationError, match="gracePeriod"):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_all_is_in_one_namespace(folder: str) -> None:
    namespaces = {each["metadata"].get("namespace") for each in built(folder) if each["kind"] != "Namespace"}
    assert namespaces == {objects()["Namespace", NAMESPACE]["metadata"]["name"]}


def test_a_node_is_told_what_a_server_knows_and_its_own_name() -> None:
    told = variables()
    assert {name for name in told if name.startswith(PREFIX)} <= NAMES
    assert set(told) - NAMES == {"POD_NAMESPACE"}
    assert told["BLOCKYARD_NODE_NAME"] == POD
    assert "BLOCKYARD_INSECURE" not in told


def test_callers_are_sent_to_the_name_that_the_pod_has_at_the_headless_service() -> None:
    host, port = url_of(variables()["BLOCKYARD_ADVERTISE_URL"], "http")
    service = spec("StatefulSet")["serviceName"]
    assert host == f"{POD}.{service}.{NAMESPACE}.svc"
    headless = spec("Service", service)
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"]
    assert port == Settings().port


@pytest.mark.parametrize("name", ["blockyard", "blockyard-nodes"])
def test_a_service_leads_to_the_port_that_nodes_listen_at(name: str) -> None:
    assert is_selected(pod_labels(), spec("Service", name)["selector"])
    (at,) = spec("Service", name)["ports"]
    (port,) = container()["ports"]
    assert at["targetPort"] == port["name"]
    assert at["port"] == port["containerPort"] == Settings().port


def test_what_is_about_the_pods_selects_them() -> None:
    selectors = [
        spec("StatefulSet")["selector"],
        spec("PodDisruptionBudget")["selector"],
        spec("NetworkPolicy")["podSelector"],
        *(each["labelSelector"] for each in pod()["topologySpreadConstraints"]),
    ]
    assert len(selectors) == 5
    assert all(is_selected(pod_labels(), each["matchLabels"]) for each in selectors)


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_asks_what_is_open_to_everyone_at_a_port_of_the_container(probe: str) -> None:
    asked = container()[probe]["httpGet"]
    assert RULES["GET", asked["path"]] == OPEN
    assert asked["port"] in {port["name"] for port in container()["ports"]}
    assert (asked["path"] == "/readyz") == (probe == "readinessProbe")


def test_a_node_is_given_time_to_hand_over_and_to_end() -> None:
    *_, sleep_s = container()["lifecycle"]["preStop"]["exec"]["command"]
    shutdown_s = int(variables()["BLOCKYARD_SHUTDOWN_TIMEOUT_S"])
    assert pod()["terminationGracePeriodSeconds"] >= int(sleep_s) + 2 * shutdown_s + 10


def test_a_node_may_little() -> None:
    everywhere, here = pod()["securityContext"], container()["securityContext"]
    assert everywhere["runAsNonRoot"]
    assert everywhere["runAsUser"] == everywhere["fsGroup"] == image_user()
    assert everywhere["seccompProfile"]["type"] == "RuntimeDefault"
    assert here["readOnlyRootFilesystem"]
    assert not here["allowPrivilegeEscalation"]
    assert here["capabilities"] == {"drop": ["ALL"]}
    assert not pod()["automountServiceAccountToken"]


def test_a_node_is_never_held_back_and_its_memory_is_bounded() -> None:
    resources = container()["resources"]
    assert set(resources["limits"]) == {"memory"}
    assert set(resources["requests"]) == {"cpu", "memory"}


def test_tokens_come_from_a_secret_that_instructions_make() -> None:
    path = Path(variables()["BLOCKYARD_TOKEN_FILE"])
    (mount,) = [each for each in container()["volumeMounts"] if each["mountPath"] == str(path.parent)]
    (volume,) = [each for each in pod()["volumes"] if each["name"] == mount["name"]]
    assert mount["readOnly"]
    assert volume["secret"]["defaultMode"] == 0o440
    credentials = spec("ServiceMonitor")["endpoints"][0]["authorization"]["credentials"]
    readme = (DEPLOY / "README.md").read_text()
    for secret, key in (
        (volume["secret"]["secretName"], path.name),
        (credentials["name"], credentials["key"]),
    ):
        assert re.search(rf"create secret generic {secret} (\\\n +)?--from-file={key}\b", readme)


def test_every_mount_has_its_volume() -> None:
    assert {each["name"] for each in container()["volumeMounts"]} == {
        each["name"] for each in pod()["volumes"]
    }


def ports_of(rule: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {(each["protocol"], each["port"]) for each in rule["ports"]}


def peers(
    rules: list[dict[str, Any]], direction: str
) -> Iterator[tuple[dict[str, str], set[tuple[str, int]]]]:
    """Whom a policy names, by labels of their pods, and at which ports."""
    for rule in rules:
        for peer in rule[direction]:
            yield peer["podSelector"]["matchLabels"], ports_of(rule)


def test_nodes_are_reached_at_their_port_alone_and_reach_nats_each_other_and_names() -> None:
    policy = spec("NetworkPolicy")
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    at = {("TCP", Settings().port)}
    ingress = list(peers(policy["ingress"], "from"))
    assert [ports for _, ports in ingress] == [at] * 3
    assert any(is_selected(pod_labels(), labels) for labels, _ in ingress)
    egress = list(peers(policy["egress"], "to"))
    assert (NATS_LABELS, {("TCP", 4222)}) in egress
    assert (pod_labels(), at) in egress
    assert ({"k8s-app": "kube-dns"}, {("UDP", 53), ("TCP", 53)}) in egress
    assert len(egress) == 3


def test_nobody_but_nodes_and_its_tools_reaches_nats() -> None:
    policy = spec("NetworkPolicy", "nats")
    assert policy["podSelector"]["matchLabels"] == NATS_LABELS
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    clients = [labels for labels, ports in peers(policy["ingress"], "from") if ("TCP", 4222) in ports]
    assert clients == [pod_labels(), {**NATS_LABELS, "app.kubernetes.io/component": "nats-box"}]
    routes = [labels for labels, ports in peers(policy["ingress"], "from") if ("TCP", 6222) in ports]
    assert routes == [NATS_LABELS]


def test_nodes_know_the_nats_servers_that_the_chart_makes() -> None:
    config = read_yaml("kubernetes/nats-values.yaml")["config"]
    assert config["cluster"]["enabled"]
    names = [f"nats-{number}.nats-headless" for number in range(config["cluster"]["replicas"])]
    assert nats_hosts(variables()) == names
    assert int(variables()["BLOCKYARD_CLUSTER_REPLICAS"]) == len(names) == 3


def test_nats_keeps_streams_on_disks_and_takes_our_batches() -> None:
    values = read_yaml("kubernetes/nats-values.yaml")
    jetstream = values["config"]["jetstream"]
    assert jetstream["enabled"]
    assert jetstream["fileStore"]["pvc"]["enabled"]
    told = told_by(NATS_CONFIG.read_text())
    assert jetstream["merge"]["sync_interval"] == told["sync_interval"]
    payload = values["config"]["merge"]["max_payload"].strip("<> ")
    assert payload == told["max_payload"] == f"{MAX_PAYLOAD_BYTES // 2**20}MB"
    assert values["podDisruptionBudget"]["enabled"]


def test_nats_pods_may_run_in_the_namespace_too() -> None:
    labels = objects()["Namespace", NAMESPACE]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    values = read_yaml("kubernetes/nats-values.yaml")
    for template in (values["podTemplate"], values["natsBox"]["podTemplate"]):
        context = template["merge"]["spec"]["securityContext"]
        assert context["runAsNonRoot"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in ("container", "reloader", "promExporter"):
        assert values[each]["merge"]["securityContext"] == container()["securityContext"]
    box = values["natsBox"]["container"]["merge"]["securityContext"]
    assert (box["allowPrivilegeEscalation"], box["capabilities"]) == (False, {"drop": ["ALL"]})


def test_each_node_is_scraped_once_as_the_job_that_alerts_go_by() -> None:
    monitor = spec("ServiceMonitor")
    labels = {
        name: each["metadata"].get("labels", {})
        for (kind, name), each in objects().items()
        if kind == "Service"
    }
    watched = [name for name in labels if is_selected(labels[name], monitor["selector"]["matchLabels"])]
    assert watched == [spec("StatefulSet")["serviceName"]]
    job = labels[watched[0]][monitor["jobLabel"]]
    assert f'up{{job="{job}"}}' in (DEPLOY / "prometheus/alerts.yml").read_text()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in spec("Service", watched[0])["ports"]}
    assert RULES["GET", endpoint["path"]].scope is Scope.READ


def test_the_autoscaler_goes_by_pools_that_nodes_own() -> None:
    scaler = spec("HorizontalPodAutoscaler")
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) in objects()
    (metric,) = scaler["metrics"]
    (rule,) = read_yaml("kubernetes/prometheus-adapter-values.yaml")["rules"]["custom"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert rule["seriesQuery"].startswith("blockyard_cluster_owned_pools{")


def test_how_many_nodes_there_are_is_said_once() -> None:
    assert nodes()["replicas"] == 3 == spec("HorizontalPodAutoscaler")["minReplicas"]
    assert "replicas" not in spec("StatefulSet"), "and what the autoscaler says would be undone"


def test_one_node_at_a_time_is_taken_away() -> None:
    assert spec("PodDisruptionBudget")["maxUnavailable"] == 1
    assert spec("StatefulSet")["updateStrategy"] == {"type": "RollingUpdate"}
    assert all(
        policy["value"] == 1
        for policy in spec("HorizontalPodAutoscaler")["behavior"]["scaleDown"]["policies"]
    )


def test_a_node_runs_with_what_it_is_told(tmp_path: Path) -> None:
    with node_of(variables(), tmp_path) as (node, token):
        readiness = container()["readinessProbe"]["httpGet"]["path"]
        wait_for(lambda: node.call("GET", readiness)[0] == 200)  # again, if it has lost its lease meanwhile
        assert node.call("GET", "/v1/pools")[0] == 401
        status, cluster = node.call("GET", "/v1/cluster", Authorization=f"Bearer {token}")
    assert status == 200
    (known,) = cluster["nodes"]
    assert (known["node"], known["url"]) == (POD, variables()["BLOCKYARD_ADVERTISE_URL"])
