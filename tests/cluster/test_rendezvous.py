"""Rendezvous hashing: pools are spread evenly, and move only where they have to."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from blockyard.server.cluster.rendezvous import candidates

POOLS = [f"pool-{number}" for number in range(1_000)]
NAMES = st.sets(st.text("abc-.0", min_size=1, max_size=6), min_size=2, max_size=12)


@given(NAMES, st.data())
def test_where_a_node_goes_all_others_keep_their_order(nodes: set[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(nodes)))
    for pool in POOLS[:50]:
        before = candidates(pool, nodes)
        assert candidates(pool, nodes - {gone}) == [node for node in before if node != gone]


@given(NAMES, st.randoms())
def test_every_node_finds_the_same_order_however_it_lists_the_others(nodes: set[str], random: object) -> None:
    shuffled = sorted(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert all(candidates(pool, nodes) == candidates(pool, shuffled) for pool in POOLS[:50])


def test_pools_are_spread_over_nodes_and_so_are_those_of_a_lost_one() -> None:
    nodes = [f"node-{number}" for number in range(10)]
    owned = Counter(candidates(pool, nodes)[0] for pool in POOLS)
    assert all(50 <= owned[node] <= 150 for node in nodes)
    heirs = Counter(candidates(pool, nodes)[1] for pool in POOLS if candidates(pool, nodes)[0] == nodes[0])
    assert set(heirs) == set(nodes[1:])
    assert max(heirs.values()) <= 30
