"""deploy/compose.yaml: Compose, promtool and nats-server take it, and its parts name each other."""

import json
import re
import shutil
import signal
import subprocess
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockyard.server.trial.nats_binary import find_nats_server
from blockyard.server.trial.nats_servers import MAX_PAYLOAD_BYTES
from deploy.image import NAMES, PREFIX, image_user, nats_hosts, node_of, url_of
from deploy.nats_in_compose import NATS_CONFIG, running_nats, told_by
from deploy.programs import DEPLOY, composed, program, read_yaml, run_program
from waiting import wait_for

TOOLS = "nats-box"
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


@cache
def services() -> dict[str, Any]:
    found: dict[str, Any] = composed()["services"]
    return found


def those(prefix: str) -> dict[str, Any]:
    return {
        name: service for name, service in services().items() if name.startswith(prefix) and name != TOOLS
    }


def seconds(duration: str) -> float:
    """As Compose writes it, such as 1m0s."""
    minutes, rest = re.fullmatch(r"(?:(\d+)m)?(\d+)s", duration).groups()  # type: ignore[union-attr]
    return timedelta(minutes=int(minutes or 0), seconds=int(rest)).total_seconds()


def mounted(service: dict[str, Any]) -> dict[str, Path]:
    """The files of ours that are in a container, by where."""
    configs = composed()["configs"]
    return {each["target"]: Path(configs[each["source"]]["file"]) for each in service.get("configs", ())}


def test_there_are_three_nodes_and_three_nats_servers() -> None:
    assert list(those("node-")) == ["node-a", "node-b", "node-c"]
    assert list(those("nats-")) == ["nats-a", "nats-b", "nats-c"]


def test_what_compose_does_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text((DEPLOY / "compose.yaml").read_text().replace("read_only:", "readonly:"))
    done = run_program("docker-compose", "--file", path, "config")
    assert done.returncode != 0
    assert "readonly" in done.stderr


def test_every_file_of_ours_that_is_mounted_is_there() -> None:
    files = [path for service in services().values() for path in mounted(service).values()]
    assert len(files) == 3 + 3 + 3
    assert all(path.is_file() for path in files)


@pytest.mark.parametrize("name", ["node-a", "node-b", "node-c"])
def test_a_node_is_told_what_a_server_knows(name: str) -> None:
    node = services()[name]
    told = {each for each in node["environment"] if each.startswith(PREFIX)}
    assert told == set(node["environment"]) <= NAMES
    assert node["environment"]["BLOCKYARD_NODE_NAME"] == name
    assert nats_hosts(node["environment"]) == list(those("nats-"))
    assert int(node["environment"]["BLOCKYARD_CLUSTER_REPLICAS"]) == len(those("nats-"))


def test_callers_are_sent_to_where_the_node_is_published() -> None:
    published = set()
    for node in those("node-").values():
        (port,) = node["ports"]
        assert port["target"] == 8484
        assert url_of(node["environment"]["BLOCKYARD_ADVERTISE_URL"], "http") == (
            port["host_ip"],
            int(port["published"]),
        )
        published.add(port["published"])
    assert len(published) == len(those("node-"))


def test_another_machines_callers_are_sent_to_the_name_that_they_know() -> None:
    told = composed(BLOCKYARD_PUBLIC_HOST="blocks.example", BLOCKYARD_BIND="0.0.0.0")["services"]  # noqa: S104
    assert told["node-b"]["environment"]["BLOCKYARD_ADVERTISE_URL"] == "http://blocks.example:8485"
    assert told["node-b"]["ports"][0]["host_ip"] == "0.0.0.0"  # noqa: S104


def test_callers_need_a_token_from_a_folder_in_which_it_can_be_replaced() -> None:
    for node in those("node-").values():
        assert "BLOCKYARD_INSECURE" not in node["environment"]
        (volume,) = node["volumes"]
        assert volume["source"] == str(DEPLOY / "secrets/tokens")
        assert volume["read_only"]
        file = Path(node["environment"]["BLOCKYARD_TOKEN_FILE"])
        assert str(file.parent) == volume["target"]


def test_no_other_machine_reaches_anything_unless_it_is_wanted() -> None:
    ports = [port for service in services().values() for port in service.get("ports", ())]
    assert len(ports) == 3 + 2
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_nobody_but_nodes_reaches_nats() -> None:
    assert composed()["networks"]["nats"]["internal"]
    on_it = {name for name, service in services().items() if "nats" in service["networks"]}
    assert on_it == {*those("node-"), *those("nats-")}
    assert [name for name in those("nats-") if services()[name].get("ports")] == []


@pytest.mark.parametrize("name", ["node-a", "nats-a"])
def test_a_container_may_little(name: str) -> None:
    service = services()[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_a_node_is_given_time_to_hand_over_and_to_end() -> None:
    for node in those("node-").values():
        shutdown_s = int(node["environment"]["BLOCKYARD_SHUTDOWN_TIMEOUT_S"])
        assert seconds(node["stop_grace_period"]) >= 2 * shutdown_s + 10


def test_a_nats_server_is_given_time_to_let_go() -> None:
    told = told_by(NATS_CONFIG.read_text())
    lame_s = sum(seconds(told[name]) for name in ("lame_duck_duration", "lame_duck_grace_period"))
    for server in those("nats-").values():
        assert server["stop_signal"] == "SIGUSR2"
        assert seconds(server["stop_grace_period"]) > lame_s


def test_each_nats_server_has_a_name_and_a_disk_of_its_own() -> None:
    for name, server in those("nats-").items():
        assert server["environment"] == {"NATS_NAME": name}
        (volume,) = server["volumes"]
        assert (volume["source"], volume["target"]) == (name, told_by(NATS_CONFIG.read_text())["store_dir"])
        *_, path = server["command"]
        assert mounted(server)[path] == NATS_CONFIG


def test_nats_servers_are_routed_to_each_other() -> None:
    routes = re.findall(r'"nats://([\w-]+):6222"', NATS_CONFIG.read_text())
    assert routes == list(those("nats-"))


def test_nats_server_finds_a_mistake_in_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "nats-server.conf"
    for text, status in ((NATS_CONFIG.read_text(), 0), (NATS_CONFIG.read_text() + "\nlame: 1s", 1)):
        path.write_text(text)
        done = subprocess.run(
            [find_nats_server(), "-t", "-c", path],
            env={"NATS_NAME": "nats-a"},
            check=False,
            capture_output=True,
        )
        assert done.returncode == status, done.stderr


def test_three_nats_servers_of_the_configuration_elect_a_leader_and_take_our_batches(tmp_path: Path) -> None:
    with running_nats(tmp_path, list(those("nats-"))) as servers:
        leader = servers[0].leader()
        assert leader in those("nats-")
        for server in servers:
            state = server.ask("/varz")
            assert state["server_name"] == server.name
            assert state["max_payload"] == MAX_PAYLOAD_BYTES
            assert state["jetstream"]["config"]["max_storage"] > 0
            check = services()[server.name]["healthcheck"]["test"][-1]
            assert server.ask(check.removeprefix("http://127.0.0.1:8222"))["status"] == "ok"


def test_a_nats_server_that_is_stopped_hands_over_what_it_leads_before_it_ends(tmp_path: Path) -> None:
    with running_nats(tmp_path, list(those("nats-"))) as servers:
        (leader,) = [server for server in servers if server.name == servers[0].leader()]
        others = [server for server in servers if server is not leader]
        leader.process.send_signal(signal.Signals[services()[leader.name]["stop_signal"]])
        wait_for(lambda: all(server.leader() in {each.name for each in others} for server in others))
        assert leader.process.poll() is None, "and not since it was gone"


def test_a_node_runs_with_what_it_is_told(tmp_path: Path) -> None:
    variables = services()["node-b"]["environment"]
    with node_of(variables, tmp_path) as (node, token):
        assert node.call("GET", "/v1/pools")[0] == 401
        status, cluster = node.call("GET", "/v1/cluster", Authorization=f"Bearer {token}")
    assert status == 200
    (known,) = cluster["nodes"]
    assert (cluster["node"], known["node"]) == ("node-b", "node-b")
    assert known["url"] == variables["BLOCKYARD_ADVERTISE_URL"]


def scrape_config() -> dict[str, Any]:
    found: dict[str, Any] = read_yaml("compose/prometheus.yml")
    return found


def test_prometheus_asks_each_node_as_the_job_that_alerts_go_by() -> None:
    (job,) = scrape_config()["scrape_configs"]
    (targets,) = job["static_configs"]
    assert targets["targets"] == [f"{name}:8484" for name in those("node-")]
    assert f'up{{job="{job["job_name"]}"}}' in (DEPLOY / "prometheus/alerts.yml").read_text()
    assert set(services()["prometheus"]["networks"]) & set(services()["node-a"]["networks"])


@needs_promtool
def test_promtool_reads_the_scrape_with_all_that_it_names(tmp_path: Path) -> None:
    prometheus = services()["prometheus"]
    here = {target: str(path) for target, path in mounted(prometheus).items()}
    for secret in prometheus["secrets"]:
        (tmp_path / secret["source"]).write_text("byd_x")
        here[secret["target"]] = str(tmp_path / secret["source"])
    config = next(
        word.removeprefix("--config.file=") for word in prometheus["command"] if "config.file" in word
    )
    text = Path(here.pop(config)).read_text()
    for inside, outside in here.items():
        assert inside in text, "mounted, and not read"
        text = text.replace(inside, outside)
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rules found") == 2


def test_grafana_has_our_dashboard_and_asks_our_prometheus() -> None:
    grafana = services()["grafana"]
    files = {path.relative_to(DEPLOY): target for target, path in mounted(grafana).items()}
    (provider,) = read_yaml("compose/grafana/dashboards.yml")["providers"]
    dashboard = files[Path("grafana/blockyard.json")]
    assert str(Path(dashboard).parent) == provider["options"]["path"]
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    for kind in ("datasources", "dashboards"):
        assert files[Path(f"compose/grafana/{kind}.yml")].startswith(f"/etc/grafana/provisioning/{kind}/")
    (source,) = read_yaml("compose/grafana/datasources.yml")["datasources"]
    (port,) = services()["prometheus"]["ports"]
    assert url_of(source["url"], "http") == ("prometheus", port["target"])
    (variable,) = [
        each
        for each in json.loads((DEPLOY / "grafana/blockyard.json").read_text())["templating"]["list"]
        if each["type"] == "datasource"
    ]
    assert variable["query"] == source["type"]


def test_what_grafana_reads_from_a_file_is_a_secret() -> None:
    secrets = {each["target"] for each in services()["grafana"]["secrets"]}
    read = {value for name, value in services()["grafana"]["environment"].items() if name.endswith("__FILE")}
    assert secrets == read


def test_instructions_make_every_secret_for_whoever_has_to_read_it() -> None:
    readme = (DEPLOY / "README.md").read_text()
    secrets = [Path(each["file"]) for each in composed()["secrets"].values()]
    assert len(secrets) == 2
    for path in (*secrets, DEPLOY / "secrets/tokens/tokens.json"):
        name = str(path.relative_to(DEPLOY.parent))
        assert re.search(rf"(>|--token-file) {re.escape(name)}", readme), f"nobody makes {name}"
        assert re.search(rf"chown \d+ {re.escape(name)}", readme), f"nobody may read {name}"
    assert f"chown {image_user()} deploy/secrets/tokens/tokens.json" in readme


def test_yaml_is_in_form() -> None:
    done = run_program("yamllint", "--strict", "--config-file", DEPLOY / ".yamllint.yaml", DEPLOY)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_fault_of_form_is_found(tmp_path: Path) -> None:
    (tmp_path / "twice.yaml").write_text("a: 1\na: 2\n")
    done = run_program("yamllint", "--strict", "--config-file", DEPLOY / ".yamllint.yaml", tmp_path)
    assert "duplication of key" in done.stdout


def test_programs_are_those_of_their_packages() -> None:
    assert all(Path(program(name)).name == name for name in ("docker-compose", "kubectl", "yamllint"))
    assert yaml.safe_load("a: 0440") == {"a": 0o440}
