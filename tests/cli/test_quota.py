"""What a pool's tenants are promised and hold, as the command line shows and sets it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from access.token_files import add_token
from blockyard.client import Client
from cli.command_line import invoke
from server_process import running_server

POOL = "llama"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A server with one pool of 99 usable blocks, an operator's token and a tenant's."""

    url: str
    operator: str
    tenant: str

    def quota(self, *arguments: str, token: str | None = None, **variables: str) -> Result:
        shown = self.operator if token is None else token
        return invoke("quota", POOL, *arguments, BLOCKYARD_URL=self.url, BLOCKYARD_TOKEN=shown, **variables)

    def told(self, *arguments: str) -> Any:
        return json.loads(self.quota(*arguments, "--json").stdout)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    tokens = tmp_path / "tokens"
    operator, tenant = add_token(tokens, "admin"), add_token(tokens, "allocate", tenant="acme")
    with running_server("--token-file", str(tokens), "--log-level", "warning") as server:
        with Client(server.url, token=operator) as client:
            client.create_pool(POOL, num_blocks=100, block_size=16)
        yield Fleet(server.url, operator, tenant)


def row_of(shown: str, name: str) -> list[str]:
    [line] = [line for line in shown.splitlines() if line.strip().startswith(name)]
    return line.split()


def test_a_quota_is_set_and_what_no_option_names_stays(fleet: Fleet) -> None:
    assert fleet.quota("acme", "--guaranteed", "20", "--max", "60", "--weight", "3").exit_code == 0
    told = fleet.told("acme", "--max", "70")
    assert (told["pool"], told["tenant"]) == (POOL, "acme")
    assert (told["guaranteed_blocks"], told["max_blocks"], told["weight"]) == (20, 70, 3)
    assert fleet.told("acme", "--max", "none", "--guaranteed", "0")["max_blocks"] is None
    assert fleet.told("acme")["weight"] == 3


def test_a_quota_is_taken_back(fleet: Fleet) -> None:
    fleet.quota("acme", "--guaranteed", "20", "--weight", "3")
    told = fleet.told("acme", "--remove")
    assert (told["guaranteed_blocks"], told["max_blocks"], told["weight"]) == (0, None, 1)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_all_tenants_are_a_table_with_those_of_none(fleet: Fleet, columns: str) -> None:
    fleet.quota("acme", "--guaranteed", "20", "--max", "60")
    with Client(fleet.url, token=fleet.operator) as client:
        client.pool(POOL).lease("operator's", ttl_ms=60_000, renew=False)
    with Client(fleet.url, token=fleet.tenant) as client, client.pool(POOL).lease("me") as lease:
        lease.allocate("one", 480)
        shown = fleet.quota(COLUMNS=columns)
    assert row_of(shown.stdout, "acme")[1:8] == ["20", "60", "1", "30", "1", "1", "0"]
    assert row_of(shown.stdout, "-")[1:8] == ["0", "none", "1", "0", "1", "0", "0"]
    assert ("held of max" in shown.stdout) == (columns == "120")


def test_all_tenants_are_one_object_for_programs(fleet: Fleet) -> None:
    fleet.quota("acme", "--max", "60")
    told = fleet.told()
    assert [tenant["tenant"] for tenant in told["tenants"]] == ["acme"]


def test_a_tenant_is_shown_by_itself(fleet: Fleet) -> None:
    fleet.quota("acme", "--max", "60")
    shown = fleet.quota("acme")
    assert f"tenant acme in pool {POOL}" in shown.stdout
    assert row_of(shown.stdout, "max") == ["max", "60"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--max", "60"], "name the TENANT"),
        (["--remove"], "name the TENANT"),
        (["acme", "--remove", "--weight", "2"], "give it alone"),
        (["acme", "--max", "much"], "--max"),
        (["acme", "--guaranteed", "-1"], "--guaranteed"),
    ],
)
def test_what_cannot_be_meant_is_a_mistake_in_the_arguments(arguments: list[str], why: str) -> None:
    done = invoke("quota", POOL, *arguments)
    assert done.exit_code == 2
    assert why in done.stderr


def test_a_promise_that_the_pool_cannot_keep_is_refused_with_what_it_can(fleet: Fleet) -> None:
    done = fleet.quota("acme", "--guaranteed", "100")
    assert done.exit_code == 1
    assert "must be 0 to 99" in done.stderr


def test_a_tenant_may_look_at_its_quota_and_not_set_it(fleet: Fleet) -> None:
    assert fleet.quota("acme", token=fleet.tenant).exit_code == 0
    done = fleet.quota("acme", "--guaranteed", "50", token=fleet.tenant)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: forbidden")


def test_a_tenant_that_nobody_has_heard_of_is_not_shown(fleet: Fleet) -> None:
    done = fleet.quota("nobody")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: tenant_not_found")


def test_an_audit_names_the_tenants_of_holders_where_there_are_any(fleet: Fleet) -> None:
    def audit() -> str:
        return invoke("audit", POOL, BLOCKYARD_URL=fleet.url, BLOCKYARD_TOKEN=fleet.operator).stdout

    with Client(fleet.url, token=fleet.operator) as client, client.pool(POOL).lease("operator"):
        assert "tenant" not in audit()
        with Client(fleet.url, token=fleet.tenant) as own, own.pool(POOL).lease("scheduler"):
            shown = audit()
    assert row_of(shown, "scheduler")[1] == "acme"
    assert row_of(shown, "operator")[1] == "-"
