"""Where pools are among nodes, and which of them move when one node goes or comes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from blockyard.server.cluster.rendezvous import candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Each pool's owner, and the node that follows it."""

    owners: dict[str, str]
    standbys: dict[str, str]

    @classmethod
    def of(cls, pools: Sequence[str], nodes: Sequence[str]) -> "Placement":
        """As the nodes find it by themselves."""
        orders = {pool: candidates(pool, nodes)[:2] for pool in pools}
        return cls(
            owners={pool: order[0] for pool, order in orders.items()},
            standbys={pool: order[1] for pool, order in orders.items()},
        )

    def num_held(self, node: str) -> int:
        """Pools whose state it has in memory: those it owns and those it follows."""
        return sum(held == node for table in (self.owners, self.standbys) for held in table.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What a change among nodes does.

    Attributes:
        num_owners: Pools that get another owner.
        num_standbys: Pools that get another standby, which reads their state.
        num_needless: Pools that get another owner though theirs is still there, and no new node is.
        num_warm: Pools whose new owner followed them before.
        most_at_one: Most pools that one node takes over.
    """

    num_owners: int
    num_standbys: int
    num_needless: int
    num_warm: int
    most_at_one: int

    @classmethod
    def between(cls, before: Placement, after: Placement, lost: str) -> "Moves":
        """From ``before`` to ``after``, where the node ``lost`` is not among the nodes any more."""
        moved = [pool for pool, owner in after.owners.items() if owner != before.owners[pool]]
        taken = Counter(after.owners[pool] for pool in moved)
        return cls(
            num_owners=len(moved),
            num_standbys=sum(after.standbys[pool] != standby for pool, standby in before.standbys.items()),
            num_needless=sum(before.owners[pool] != lost for pool in moved),
            num_warm=sum(before.standbys[pool] == after.owners[pool] for pool in moved),
            most_at_one=max(taken.values(), default=0),
        )


def figures_of_moves(num_nodes: int, num_pools: int) -> dict[str, float]:
    """Each node is lost once, out of ``num_nodes``."""
    nodes = [f"node-{number}" for number in range(num_nodes)]
    pools = [f"pool-{number}" for number in range(num_pools)]
    whole = Placement.of(pools, nodes)
    owned = Counter(whole.owners.values())
    held = [whole.num_held(node) for node in nodes]
    moves = [
        Moves.between(whole, Placement.of(pools, [node for node in nodes if node != lost]), lost)
        for lost in nodes
    ]
    return {
        "owned_mean": num_pools / num_nodes,
        "owned_most": max(owned.values()),
        "held_most": max(held),
        "moved_mean": mean(each.num_owners for each in moves),
        "moved_most": max(each.num_owners for each in moves),
        "moved_needlessly": sum(each.num_needless for each in moves),
        "moved_to_warm_share": sum(each.num_warm for each in moves) / sum(each.num_owners for each in moves),
        "taken_over_by_one_most": max(each.most_at_one for each in moves),
        "read_anew_mean": mean(each.num_standbys for each in moves),
        "read_anew_most": max(each.num_standbys for each in moves),
    }
