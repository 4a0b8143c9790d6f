"""Which nodes are to own and to follow a pool."""

from blockyard.server.cluster.placement import Placement


def test_the_second_candidate_follows_what_the_first_owns() -> None:
    placement = Placement(["a", "b", "c"], "a")
    assert (placement.first, placement.standby) == ("a", "b")
    assert [node for node in "abc" if placement.wants(node)] == ["a", "b"]


def test_the_first_candidate_follows_what_another_owns_and_no_third_node_is_wanted() -> None:
    placement = Placement(["a", "b", "c"], "c")
    assert (placement.first, placement.standby) == ("a", "a")
    assert [node for node in "abc" if placement.wants(node)] == ["a"]


def test_a_pool_without_an_owner_is_followed_by_the_one_to_own_it() -> None:
    assert Placement(["a", "b"], None).standby == "a"


def test_alone_a_node_has_nobody_to_follow_it() -> None:
    assert Placement(["a"], "a").standby is None


def test_without_candidates_nobody_is_wanted() -> None:
    placement = Placement([], "a")
    assert (placement.first, placement.standby) == (None, None)
    assert not placement.wants("a")
