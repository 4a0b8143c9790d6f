"""Tenants as clients see them: their quotas, their hashes, and what a scheduler makes of a quota."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from access.token_files import add_token
from blockyard.client import (
    Client,
    Extras,
    Forbidden,
    InvalidRequest,
    KvMirror,
    Pool,
    QuotaExceeded,
    Scheduler,
    TenantId,
    TenantNotFound,
    external_int64,
    tenant_hashes,
)
from server_process import running_server

BLOCK = 4
PROMPT = range(4 * BLOCK + 1)


@dataclass(frozen=True, slots=True)
class Callers:
    """A server's URL, and tokens: an operator's, and one of each of two teams."""

    url: str
    operator: str
    team_a: str
    team_b: str

    @contextmanager
    def pool(self, token: str, name: str) -> Iterator[Pool]:
        """The pool of this name as the bearer of ``token`` has it."""
        with Client(self.url, token=token) as client:
            yield client.pool(name)


@pytest.fixture(scope="module")
def callers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callers]:
    """One server for all tests; each makes pools of its own."""
    tokens = Path(tmp_path_factory.mktemp("tokens")) / "tokens"
    operator = add_token(tokens, "admin")
    teams = [add_token(tokens, "allocate", tenant=team) for team in ("team-a", "team-b")]
    with running_server("--token-file", str(tokens), "--log-level", "warning") as server:
        yield Callers(server.url, operator, *teams)


@contextmanager
def made_pool(callers: Callers, name: str, **options: Any) -> Iterator[Pool]:
    """A pool of 63 usable blocks, as the operator has it."""
    with Client(callers.url, token=callers.operator) as client:
        yield client.create_pool(name, num_blocks=64, block_size=BLOCK, **options)


def num_cached(callers: Callers, token: str, name: str, extras: Extras | None = None) -> int | None:
    """Tokens of the prompt that a scheduler with ``token`` finds; it is committed, and given back."""
    with callers.pool(token, name) as pool, pool.lease("me") as lease:
        scheduler = Scheduler(lease, pool.hasher())
        scheduler.add("prompt", PROMPT, extras)
        found = scheduler.step().scheduled["prompt"].num_cached_tokens
        scheduler.computed("prompt", len(PROMPT))
        scheduler.finish("prompt")
        scheduler.step()
        return found


def test_a_quota_is_set_told_and_taken_back(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name) as pool:
        given = pool.set_quota("team-a", guaranteed_blocks=10, max_blocks=20, weight=3)
        assert (given.guaranteed_blocks, given.max_blocks, given.weight) == (10, 20, 3)
        assert pool.tenant("team-a") == given
        assert given in pool.tenants()
        assert pool.set_quota("team-a", max_blocks=5).guaranteed_blocks == 0
        bare = pool.remove_quota("team-a")
        assert (bare.guaranteed_blocks, bare.max_blocks, bare.weight) == (0, None, 1)


def test_more_than_the_pool_can_promise_is_refused(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name) as pool:
        pool.set_quota("team-a", guaranteed_blocks=60)
        with pytest.raises(InvalidRequest, match="guaranteed_blocks"):
            pool.set_quota("team-b", guaranteed_blocks=4)


def test_a_tenant_sees_itself_alone_and_sets_nothing(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name) as pool, callers.pool(callers.team_b, pool_name) as own:
        pool.set_quota("team-a", max_blocks=20)
        assert [tenant.tenant for tenant in own.tenants()] == ["team-b"]
        with pytest.raises(TenantNotFound):
            own.tenant("team-a")
        with pytest.raises(Forbidden):
            own.set_quota("team-b", guaranteed_blocks=63)


def test_a_description_says_whether_tenants_share(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name, share_across_tenants=True, max_replies=7) as pool:
        described = pool.describe()
        assert (described.share_across_tenants, described.max_replies) == (True, 7)


def test_a_sequence_over_the_quota_waits_until_its_tenant_frees(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name) as pool, callers.pool(callers.team_a, pool_name) as own:
        pool.set_quota("team-a", max_blocks=4)
        with own.lease("me") as lease:
            scheduler = Scheduler(lease, None)
            for name in ("first", "second"):
                scheduler.add(name, range(3 * BLOCK))
            result = scheduler.step()
            assert (list(result.scheduled), result.insufficient, result.refused) == (
                ["first"],
                ["second"],
                {},
            )
            assert (scheduler.running, scheduler.waiting) == (["first"], ["second"])
            scheduler.finish("first")
            assert list(scheduler.step().scheduled) == ["second"]


def test_a_running_sequence_at_the_quota_stays_as_it_was(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name) as pool, callers.pool(callers.team_a, pool_name) as own:
        pool.set_quota("team-a", max_blocks=2)
        with own.lease("me") as lease:
            scheduler = Scheduler(lease, None)
            scheduler.add("one", range(2 * BLOCK))
            scheduler.step()
            scheduler.append("one", [1])
            assert scheduler.step().insufficient == ["one"]
            assert len(scheduler.block_ids("one")[0]) == 2
            pool.set_quota("team-a", max_blocks=3)
            assert list(scheduler.step().scheduled) == ["one"]


def test_more_than_the_quota_at_once_is_refused_as_waiting_does_not_help(
    callers: Callers, pool_name: str
) -> None:
    with made_pool(callers, pool_name) as pool, callers.pool(callers.team_a, pool_name) as own:
        pool.set_quota("team-a", max_blocks=4)
        with own.lease("me") as lease:
            scheduler = Scheduler(lease, None)
            scheduler.add("large", range(5 * BLOCK))
            refused = scheduler.step().refused["large"]
            assert (refused.code, refused.num_required_blocks, refused.num_quota_blocks) == (
                "quota_exceeded",
                5,
                4,
            )
            with pytest.raises(QuotaExceeded):
                lease.allocate_blocks(5, wait_ms=10_000)


def test_in_a_pool_that_shares_a_salted_prompt_is_found_by_its_tenant_alone(
    callers: Callers, pool_name: str
) -> None:
    salt = Extras(cache_salt="a secret that both know")
    with made_pool(callers, pool_name, share_across_tenants=True):
        assert num_cached(callers, callers.team_a, pool_name) == 0
        assert num_cached(callers, callers.team_b, pool_name) == 16
        assert num_cached(callers, callers.team_a, pool_name, salt) == 0
        assert num_cached(callers, callers.team_b, pool_name, salt) == 0
        assert num_cached(callers, callers.team_a, pool_name, salt) == 16


def test_a_lookup_finds_what_is_its_tenants_alone_if_it_says_so(callers: Callers, pool_name: str) -> None:
    salt = Extras(cache_salt="pepper")
    with made_pool(callers, pool_name, share_across_tenants=True) as pool:
        num_cached(callers, callers.team_a, pool_name, salt)
        _, hashes = pool.hasher().start(salt).append(PROMPT)
        with callers.pool(callers.team_a, pool_name) as own:
            assert own.lookup(17, block_hashes=hashes, tenant_only=True).num_cached_tokens == 16
            assert own.lookup(17, block_hashes=hashes).num_cached_tokens == 0
            assert own.lookup(17, token_ids=list(PROMPT), extras=salt).num_cached_tokens == 16


def test_a_preempted_sequence_stays_its_tenants_alone(callers: Callers, pool_name: str) -> None:
    salt = Extras(cache_salt="pepper")
    with (
        made_pool(callers, pool_name, share_across_tenants=True),
        callers.pool(callers.team_a, pool_name) as own,
        own.lease("me") as lease,
    ):
        scheduler = Scheduler(lease, own.hasher())
        scheduler.add("preempted", PROMPT, salt)
        scheduler.step()
        scheduler.preempt("preempted")
        scheduler.step()
        scheduler.computed("preempted", len(PROMPT))
        scheduler.step()
        assert num_cached(callers, callers.team_b, pool_name, salt) == 0
        assert num_cached(callers, callers.team_a, pool_name, salt) == 16


def test_a_follower_of_events_finds_a_tenants_prompt_by_its_hashes(callers: Callers, pool_name: str) -> None:
    with made_pool(callers, pool_name, events=True) as pool:
        num_cached(callers, callers.team_a, pool_name)
        mirror = KvMirror(pool.event_snapshot, lambda _: [])
        mirror.catch_up()
        _, hashes = pool.hasher().start().append(PROMPT)

        def num_found(tenant: str) -> int:
            names = [external_int64(each) for each in tenant_hashes(hashes, TenantId(tenant))]
            return len(list(takewhile(mirror.has, names)))

        assert (num_found("team-a"), num_found("team-b"), num_found("")) == (4, 0, 0)
