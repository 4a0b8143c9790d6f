"""What deploy/*.md tell people: sections that alerts name, commands that the programs take."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from blockyard.server.commands.root import blockyard
from deploy.programs import DEPLOY, ROOT, built, composed, read_yaml

RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text()
DOCUMENTS = {path.name: path.read_text() for path in DEPLOY.glob("*.md")}
COMPOSE = "docker compose --file deploy/compose.yaml "
PLACEHOLDERS = {"...", "$node"}


def anchors(text: str) -> list[str]:
    """Of its headings, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def alerts() -> dict[str, dict[str, str]]:
    """Annotations of each."""
    groups = read_yaml("prometheus/alerts.yml")["groups"]
    return {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}


def commands(text: str) -> list[str]:
    """Lines in fences, those that go on on the next one put together."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def those_of(program: str) -> list[list[str]]:
    """The words of each command of ``program`` in any of the documents."""
    lines = [line for text in DOCUMENTS.values() for line in commands(text)]
    found = [re.split(r" (?:>|&&|&|\|)(?= |$)", line)[0] for line in lines if line.startswith(f"{program} ")]
    return [shlex.split(line)[1:] for line in found]


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The one of ours that ``words`` begin with, and the rest of them."""
    command: click.Command = blockyard
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        command, context = found, click.Context(found, parent=context)
    return command, words


@pytest.mark.parametrize("alert", alerts())
def test_an_alert_names_a_section_that_is_there(alert: str) -> None:
    path, _, anchor = alerts()[alert]["runbook"].partition("#")
    assert (ROOT / path) == DEPLOY / "RUNBOOK.md"
    assert anchor in anchors(RUNBOOK)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", DOCUMENTS[name]):
        path, _, anchor = target.partition("#")
        file = DEPLOY / path if path else DEPLOY / name
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text()), target


def test_no_section_has_another_ones_name() -> None:
    assert len(anchors(RUNBOOK)) == len(set(anchors(RUNBOOK)))


def test_alerts_that_documents_name_are_ours() -> None:
    named = {name for text in DOCUMENTS.values() for name in re.findall(r"`(Blockyard[A-Z]\w+)`", text)}
    assert len(named) > 3
    assert named <= set(alerts())


@pytest.mark.parametrize("words", those_of("blockyard"), ids=" ".join)
def test_a_command_of_ours_is_one_that_we_have(words: list[str]) -> None:
    command, words = command_of(words)
    options = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {word for word in words if word.startswith("--")} <= options


def test_what_compose_is_told_of_is_in_its_file() -> None:
    told = [line for text in DOCUMENTS.values() for line in commands(text) if line.startswith(COMPOSE)]
    assert len(told) > 10
    known = {*composed()["services"], "nats-box"}
    named = {word for line in told for word in re.findall(r"(?<![\w/-])((?:node|nats)-\w+)\b", line)}
    assert len(named) > 3
    assert named <= known
    volumes = {found for text in DOCUMENTS.values() for found in re.findall(r"volume rm (\S+)", text)}
    assert volumes
    assert volumes <= {each["name"] for each in composed()["volumes"].values()}


def test_what_kubectl_is_told_of_is_there() -> None:
    words = those_of("kubectl")
    assert len(words) > 10
    objects = {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in built("watched")}
    of_the_chart = {"statefulset/nats", "deployment/nats-box"}
    named = {word for line in words for word in line if re.match(r"(statefulset|deployment|service)/", word)}
    assert named <= objects | of_the_chart
    paths = {path for line in words for path in line if path.startswith("deploy/")}
    assert len(paths) == 2
    assert all((ROOT / path).exists() for path in paths)
    assert {line[line.index("--namespace") + 1] for line in words if "--namespace" in line} == {"blockyard"}


def test_options_that_documents_name_in_passing_are_ours() -> None:
    command, _ = command_of(["serve"])
    known = {option for parameter in command.params for option in parameter.opts}
    passages = re.sub(r"```.*?```", "", RUNBOOK, flags=re.DOTALL)
    named = set(re.findall(r"`(--[a-z-]+)`", passages))
    assert len(named) > 2
    assert named <= known


def test_tool_containers_are_started_on_demand_alone() -> None:
    told = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["nats-box"]
    assert told["profiles"] == ["tools"]
    assert Path(told["volumes"][0].partition(":")[2]) == Path("/backups")
