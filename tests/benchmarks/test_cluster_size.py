"""What a large cluster comes to is calculated from what is really done and written."""

import ormsgpack
import pytest

from benchmarks.cluster_size.moves import Moves, Placement, figures_of_moves
from benchmarks.cluster_size.traffic import Cluster, Workload, batches, heartbeats, step_bytes

NODES = ["a", "b", "c", "d"]
POOLS = [f"pool-{number}" for number in range(200)]
SMALL = Cluster(num_nodes=4, num_pools=10, num_replicas=3, lease_ms=2_000)


def test_only_the_pools_of_a_lost_node_move_and_each_to_the_node_that_followed_it() -> None:
    before = Placement.of(POOLS, NODES)
    owned = sum(owner == "b" for owner in before.owners.values())
    moves = Moves.between(before, Placement.of(POOLS, ["a", "c", "d"]), "b")
    assert (moves.num_owners, moves.num_needless, moves.num_warm) == (owned, 0, owned)
    assert 0 < moves.most_at_one < owned


def test_a_pool_that_moves_though_its_owner_lives_is_counted() -> None:
    before = Placement(owners={"p": "a", "q": "b"}, standbys={"p": "b", "q": "a"})
    after = Placement(owners={"p": "c", "q": "a"}, standbys={"p": "a", "q": "c"})
    moves = Moves.between(before, after, "b")
    assert (moves.num_owners, moves.num_needless, moves.num_warm, moves.num_standbys) == (2, 1, 1, 2)


def test_every_pool_is_lost_once_where_every_node_is() -> None:
    figures = figures_of_moves(len(NODES), len(POOLS))
    assert figures["moved_mean"] * len(NODES) == len(POOLS)
    assert figures["moved_needlessly"] == 0
    assert figures["moved_to_warm_share"] == 1


def test_every_node_hears_every_heartbeat() -> None:
    rates = heartbeats(SMALL)
    assert rates["followed"].messages == 4 * 2 * 4  # nodes, beats a second, nodes
    assert rates["replicated"].messages == 4 * 2 * 2
    twice = heartbeats(Cluster(num_nodes=8, num_pools=10, num_replicas=3, lease_ms=2_000))
    assert twice["followed"].num_bytes == 4 * rates["followed"].num_bytes


def test_a_batch_is_stored_by_every_replica_and_followed_once() -> None:
    work = Workload(steps_a_second=5, num_sequences=16, admitted_a_step=0)
    rates = batches(SMALL, work)
    assert [rates[name].messages for name in ("written", "replicated", "followed")] == [100, 100, 50]
    assert rates["followed"].num_bytes > 50 * step_bytes(work)


def test_a_step_grows_with_its_sequences_and_with_what_it_admits() -> None:
    sizes = [
        step_bytes(Workload(steps_a_second=1, num_sequences=count, admitted_a_step=admitted))
        for count, admitted in ((16, 0), (64, 0), (64, 1))
    ]
    assert sizes == sorted(sizes)
    assert sizes[2] - sizes[1] > 125 * len(ormsgpack.packb(bytes(32)))


@pytest.mark.parametrize("num_nodes", [3, 50])
def test_no_node_owns_much_more_than_its_share(num_nodes: int) -> None:
    figures = figures_of_moves(num_nodes, 1_000)
    assert figures["owned_most"] < 3 * figures["owned_mean"]
