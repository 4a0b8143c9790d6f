"""The synchronous client against a real server, over both transports."""

import inspect
import pydoc
import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from blockyard.client import (
    NO_RETRY,
    AsyncClient,
    AsyncLease,
    AsyncPool,
    AsyncScheduler,
    BodyTooLarge,
    Client,
    ConnectionLost,
    DoubleFree,
    Extras,
    Form,
    GroupConfig,
    HashAlgorithm,
    Hasher,
    InsufficientBlocks,
    InvalidRequest,
    Lease,
    LeaseExpired,
    LimitExceeded,
    NotOwner,
    Overloaded,
    Pool,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    RetryPolicy,
    Scheduler,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
    Statistics,
    UnexpectedReply,
)
from blockyard.client.protocol import PoolCalls
from client.peers import DROP, STATS, Received, forward, peer, problem, response, swallow

QUICK = RetryPolicy(max_attempts=4, first_pause_s=0.01, max_pause_s=0.01)


@pytest.fixture(params=["lean", "httpx"])
def transport(request: pytest.FixtureRequest) -> Literal["lean", "httpx"]:
    return "lean" if request.param == "lean" else "httpx"


@pytest.fixture
def client(server_url: str, transport: Literal["lean", "httpx"]) -> Iterator[Client]:
    with Client(server_url, transport=transport) as made:
        yield made


def test_a_running_server_is_healthy_and_ready(client: Client) -> None:
    assert client.health()
    assert client.ready()


def test_a_pool_is_described_as_it_was_created(client: Client, pool_name: str) -> None:
    groups = [
        GroupConfig(kind="full_attention", block_size=16),
        GroupConfig(kind="sliding_window", block_size=16, sliding_window=64),
    ]
    description = client.create_pool(
        pool_name, num_blocks=64, groups=groups, publish="on_allocate"
    ).describe()
    assert (description.pool, description.num_blocks, list(description.groups)) == (pool_name, 64, groups)
    assert (description.publish, description.epoch) == ("on_allocate", 1)


def test_a_pool_of_the_same_name_and_another_configuration_is_refused(client: Client, pool_name: str) -> None:
    client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pytest.raises(PoolExists):
        client.create_pool(pool_name, num_blocks=65, block_size=16)


def test_pools_are_listed(client: Client, pool_name: str) -> None:
    client.create_pool(pool_name, num_blocks=64, block_size=16)
    assert pool_name in [description.pool for description in client.pools()]


def test_a_deleted_pool_is_gone(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    pool.delete()
    with pytest.raises(PoolNotFound):
        pool.stats()


def test_a_pool_in_use_is_deleted_only_by_force(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    pool.lease("me", renew=False).allocate_blocks(1)
    with pytest.raises(PoolInUse):
        pool.delete()
    pool.delete(force=True)


def test_a_fresh_pool_has_no_hit_rate(client: Client, pool_name: str) -> None:
    stats = client.create_pool(pool_name, num_blocks=64, block_size=16).stats()
    assert (stats.num_blocks, stats.num_free_blocks, stats.hit_rate, stats.usage) == (64, 63, None, 0.0)


def test_an_allocation_a_commit_and_a_second_prompt_make_a_hit(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    _, hashes = pool.hasher().start().append(range(64))
    with pool.lease("me") as lease:
        first = lease.allocate("one", 64, block_hashes=hashes)
        assert lease.allocate("early", 64, block_hashes=hashes).num_cached_tokens == 0
        assert lease.commit("one", 64).num_published_blocks == 4
        assert list(pool.lookup(64, block_hashes=hashes).block_ids[0]) == list(first.block_ids[0])[:3]
        assert lease.allocate("two", 64, block_hashes=hashes).num_cached_tokens == 48


def test_the_server_hashes_tokens_as_the_client_does(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    extras = Extras(cache_salt="tenant")
    tokens = list(range(40))
    chain, hashes = pool.hasher().start(extras).append(tokens)
    hashed = client.hash(tokens, algorithm="blake2b", block_size=16, extras=extras)
    assert (hashed.none_hash, hashed.block_hashes) == (chain.hasher.none_hash, hashes)


def test_a_secret_seed_is_needed_where_hashes_can_collide(client: Client) -> None:
    with pytest.raises(InvalidRequest):
        client.hash([1, 2], algorithm="xxhash", block_size=2)
    hasher = Hasher(HashAlgorithm.XXHASH, 2, "secret")
    assert client.hash([1, 2], algorithm="xxhash", block_size=2, seed="secret").none_hash == hasher.none_hash


def test_a_sequence_is_told_block_by_block(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as lease:
        given = lease.allocate("one/of two", 20)
        state = pool.sequence("one/of two")
        assert (state.block_ids, state.lease_id) == (given.block_ids, lease.lease_id)


def test_freeing_names_what_the_lease_does_not_hold(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as lease:
        lease.allocate("one", 32)
        freed = lease.free(["one", "two"])
        assert (freed.num_freed_blocks, list(freed.unknown)) == (2, ["two"])


def test_raw_blocks_come_and_go(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as lease:
        blocks = lease.allocate_blocks(3).block_ids
        assert pool.stats().num_held_blocks == 3
        assert lease.free_blocks(blocks).num_freed_blocks == 3


def test_a_block_is_freed_by_its_owner_once(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as mine, pool.lease("you") as yours:
        block = mine.allocate_blocks(1).block_ids[0]
        with pytest.raises(NotOwner) as caught:
            yours.free_blocks([block])
        assert caught.value.figures == {"block_ids": [block]}
        with pytest.raises(DoubleFree):
            mine.free_blocks([block, block])


def test_too_few_blocks_are_told_and_not_retried(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=4, block_size=16)
    with pool.lease("me") as lease, pytest.raises(InsufficientBlocks) as caught:
        lease.allocate("one", 100)
    assert caught.value.figures == {"num_required_blocks": 7, "num_free_blocks": 3, "num_usable_blocks": 3}


def test_a_sequence_of_another_lease_is_refused(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as mine, pool.lease("you") as yours:
        mine.allocate("one", 10)
        with pytest.raises(SequenceExistsElsewhere):
            yours.allocate("one", 10)


def test_an_unknown_sequence_is_not_found(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pytest.raises(SequenceNotFound):
        pool.sequence("none")


def test_another_epoch_is_stale(client: Client, server_url: str, pool_name: str) -> None:
    client.create_pool(pool_name, num_blocks=64, block_size=16)

    def of_another_epoch(request: Received) -> bytes:
        return forward(server_url)(request).replace(b'"epoch":1', b'"epoch":9')

    with peer(of_another_epoch, forward(server_url)) as proxy, Client(proxy.url) as misled:
        with misled.pool(pool_name).lease("me", renew=False) as lease, pytest.raises(StaleEpoch) as caught:
            lease.allocate("one", 10)
        assert lease.epoch == 9
    assert caught.value.figures == {"epoch": 1}


def test_the_prefix_cache_is_reset_only_while_nothing_is_held(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as lease:
        lease.allocate("one", 10)
        assert not pool.reset_prefix_cache().ok
    assert pool.reset_prefix_cache().ok


def test_an_audit_names_the_holders(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pool.lease("me") as lease:
        lease.allocate("one", 40)
        audit = pool.audit()
        assert (audit.ok, list(audit.problems), audit.num_null_blocks) == (True, [], 1)
        assert [(holder.lease_id, holder.num_blocks) for holder in audit.holders] == [(lease.lease_id, 3)]


def test_a_released_lease_holds_nothing(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    lease = pool.lease("me")
    lease.allocate("one", 40)
    assert lease.release().num_freed_blocks == 3
    with pytest.raises(LeaseExpired):
        lease.allocate("two", 40)


def test_a_body_over_the_limit_is_told_so(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
    with pytest.raises(BodyTooLarge):
        pool.lookup(16, block_hashes=[bytes(64)] * 600_000)


def test_the_hot_routes_speak_json_as_well(server_url: str, pool_name: str) -> None:
    with Client(server_url, form=Form.JSON) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
        _, hashes = pool.hasher().start().append(range(64))
        with pool.lease("me") as lease:
            lease.allocate("one", 64, block_hashes=hashes)
            lease.commit("one", 64)
            assert pool.lookup(64, block_hashes=hashes).num_cached_tokens == 48


def test_both_transports_give_the_same_replies(server_url: str, pool_name: str) -> None:
    with Client(server_url, transport="lean") as lean, Client(server_url, transport="httpx") as general:
        pools = [lean.create_pool(pool_name, num_blocks=64, block_size=16), general.pool(pool_name)]
        with pools[0].lease("me") as lease:
            lease.allocate("one", 100)
            assert pools[0].describe() == pools[1].describe()
            assert pools[0].stats() == pools[1].stats()
            assert pools[0].audit() == pools[1].audit()
            assert pools[0].lookup(50) == pools[1].lookup(50)
            assert pools[0].sequence("one") == pools[1].sequence("one")


def test_threads_share_a_client(client: Client, pool_name: str) -> None:
    pool = client.create_pool(pool_name, num_blocks=1000, block_size=16)
    given: list[int] = []
    with pool.lease("me") as lease:

        def allocate(worker: int) -> None:
            for number in range(20):
                given.extend(lease.allocate(f"{worker}-{number}", 16).block_ids[0])

        threads = [threading.Thread(target=allocate, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(given)) == len(given) == 160


def test_a_lost_reply_allocates_once(
    server_url: str, pool_name: str, transport: Literal["lean", "httpx"]
) -> None:
    with peer(swallow(forward(server_url), "/allocate")) as proxy:
        with Client(proxy.url, transport=transport, retries=QUICK) as client:
            pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
            with pool.lease("me", renew=False) as lease:
                given = lease.allocate("one", 100)
                assert list(pool.sequence("one").block_ids[0]) == list(given.block_ids[0])
                assert pool.stats().num_held_blocks == 7
        tries = [request for request in proxy.received if request.target.endswith("/allocate")]
        assert len(tries) == 2
        assert len({request.headers["idempotency-key"] for request in tries}) == 1
        assert tries[0].body == tries[1].body


def test_raw_blocks_of_a_lost_reply_are_given_once(server_url: str, pool_name: str) -> None:
    with (
        peer(swallow(forward(server_url), "/blocks/allocate")) as proxy,
        Client(proxy.url, retries=QUICK) as client,
    ):
        pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
        with pool.lease("me", renew=False) as lease:
            assert len(lease.allocate_blocks(5).block_ids) == pool.stats().num_held_blocks == 5


def test_a_lost_reply_creates_one_lease(server_url: str, pool_name: str) -> None:
    with peer(swallow(forward(server_url), "/leases")) as proxy, Client(proxy.url, retries=QUICK) as client:
        pool = client.create_pool(pool_name, num_blocks=64, block_size=16)
        with pool.lease("me", renew=False):
            assert pool.stats().num_leases == 1


def test_a_server_that_drops_and_pauses_is_asked_again(transport: Literal["lean", "httpx"]) -> None:
    busy = problem(503, "overloaded", retry_after_ms=10)
    with peer(DROP, busy, problem(503, "not_ready"), response(200, STATS)) as server:
        with Client(server.url, transport=transport, retries=QUICK) as client:
            assert client.pool("p").stats().num_blocks == 8
        assert len(server.received) == 4


def test_what_stays_overloaded_is_told_after_the_last_try() -> None:
    with (
        peer(problem(503, "overloaded", retry_after_ms=1)) as server,
        Client(server.url, retries=QUICK) as client,
    ):
        with pytest.raises(Overloaded):
            client.pool("p").stats()
        assert len(server.received) == 4


def test_a_change_whose_answer_was_late_is_asked_for_again_under_its_key(
    server_url: str, pool_name: str
) -> None:
    late = problem(408, "request_timeout", limit="request_timeout_s", max=60)
    with (
        peer(forward(server_url), late, late, forward(server_url)) as proxy,
        Client(proxy.url, retries=QUICK) as client,
    ):
        lease = client.create_pool(pool_name, num_blocks=64, block_size=16).lease("me", renew=False)
        _, *tries = proxy.received
        assert len({request.headers["idempotency-key"] for request in tries}) == 1
        assert len(tries) == 3
        lease.release()


def test_a_limit_is_told_with_its_figures_and_not_asked_for_again() -> None:
    with (
        peer(problem(429, "limit_exceeded", limit="max_pools", max=1)) as server,
        Client(server.url, retries=QUICK) as client,
    ):
        with pytest.raises(LimitExceeded) as refused:
            client.create_pool("p", num_blocks=8, block_size=16)
        assert refused.value.figures == {"limit": "max_pools", "max": 1}
        assert len(server.received) == 1


def test_a_slow_server_is_given_up_by_the_timeout(transport: Literal["lean", "httpx"]) -> None:
    gate = threading.Event()

    def late(_: object) -> bytes:
        gate.wait(5)
        return response(200, STATS)

    with (
        peer(late) as server,
        Client(server.url, transport=transport, retries=NO_RETRY, timeout_s=0.1) as client,
    ):
        with pytest.raises(ConnectionLost):
            client.pool("p").stats()
        gate.set()


def test_a_delete_over_a_kept_connection_that_was_closed_has_succeeded(
    server_url: str, pool_name: str
) -> None:
    through = forward(server_url)

    def done_and_closed(request: Received) -> bytes:
        through(request)
        return b""

    with peer(through, done_and_closed, through) as proxy, Client(proxy.url, transport="lean") as client:
        client.create_pool(pool_name, num_blocks=8, block_size=16).delete()
        assert len(proxy.received) == 3


def test_no_retry_sends_each_call_once() -> None:
    with peer(response(200, STATS), DROP, response(200, STATS)) as server:
        with Client(server.url, transport="lean", retries=NO_RETRY) as client:
            client.pool("p").stats()
            with pytest.raises(ConnectionLost):
                client.pool("p").stats()
        assert len(server.received) == 2


def test_a_kept_connection_that_was_closed_is_replaced_without_a_pause() -> None:
    slow = RetryPolicy(first_pause_s=60.0, max_pause_s=60.0, max_total_s=600.0)
    with peer(response(200, STATS), DROP, response(200, STATS)) as server:
        with Client(server.url, transport="lean", retries=slow) as client:
            for _ in range(2):
                client.pool("p").stats()
        assert len(server.received) == 3


def test_a_reply_that_cannot_be_decoded_is_not_asked_for_again() -> None:
    broken = response(200, STATS, **{"content-encoding": "gzip"})
    with peer(broken) as server, Client(server.url, transport="httpx", retries=QUICK) as client:
        with pytest.raises(UnexpectedReply):
            client.pool("p").stats()
        assert len(server.received) == 1


def test_a_reply_that_breaks_off_is_asked_for_again(transport: Literal["lean", "httpx"]) -> None:
    whole = response(200, STATS, connection="close")
    with peer(whole[:-5], whole) as server, Client(server.url, transport=transport, retries=QUICK) as client:
        assert client.pool("p").stats().num_blocks == 8
        assert len(server.received) == 2


def test_a_dead_server_is_not_healthy_and_not_ready_after_one_try(
    transport: Literal["lean", "httpx"],
) -> None:
    with peer(DROP) as server, Client(server.url, transport=transport) as client:
        assert not client.health()
        assert not client.ready()
        assert len(server.received) == 2


METHODS = [
    (kind, name, method)
    for kind in (Client, Pool, Lease, Scheduler, AsyncClient, AsyncPool, AsyncLease, AsyncScheduler)
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize(
    ("kind", "name", "method"), METHODS, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_method_looks_like_its_classes_own(kind: type, name: str, method: Callable[..., Any]) -> None:
    assert method.__qualname__.rpartition(".")[2] == name
    assert method.__qualname__.partition(".")[0] in {base.__name__ for base in kind.__mro__}
    assert method.__module__.startswith("blockyard.client")
    assert not hasattr(method, "__wrapped__")
    assert "Call[" not in str(inspect.signature(method))
    assert method.__doc__


def test_a_methods_help_names_what_it_gives() -> None:
    assert Pool.stats.__qualname__ == "Pool.stats"
    assert inspect.signature(Pool.stats).return_annotation is Statistics
    assert "Statistics" in pydoc.render_doc(Pool.stats, renderer=pydoc.TextDoc())


def test_a_method_has_its_builders_parameters_and_docstring() -> None:
    assert Pool.lookup.__doc__ == PoolCalls.lookup.__doc__
    assert list(inspect.signature(Pool.lookup).parameters) == [
        "self",
        "num_tokens",
        "block_hashes",
        "token_ids",
        "extras",
        "tenant_only",
    ]


def test_clients_and_pools_show_what_they_reach(client: Client, server_url: str) -> None:
    assert repr(client) == f"<Client of {server_url}>"
    assert repr(client.pool("p")) == f"<Pool 'p' at {server_url}>"
    assert repr(AsyncClient(server_url).pool("p")) == f"<AsyncPool 'p' at {server_url}>"
    assert repr(AsyncClient(server_url)) == f"<AsyncClient of {server_url}>"


def test_groups_may_be_plain(client: Client, pool_name: str) -> None:
    group = {"kind": "sliding_window", "block_size": 16, "sliding_window": 64}
    pool = client.create_pool(pool_name, num_blocks=64, groups=[group])
    assert pool.describe().groups == [GroupConfig(kind="sliding_window", block_size=16, sliding_window=64)]
