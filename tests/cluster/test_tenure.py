"""What a node that has a pool warm is to do about it, by who owns the pool in its stream."""

from blockyard.server.cluster.entries import Holder, Session
from blockyard.server.cluster.figures import TakeOver
from blockyard.server.cluster.tenure import Errand, Tenure

ME = Holder("me", Session("now"))
OTHER = Holder("other", Session("its"))


def due(tenure: Tenure, *, is_first: bool, is_gone: bool = False) -> TakeOver | Errand | None:
    """What this node is to do; the other one is waited for, unless ``is_gone``."""
    return tenure.due(ME, is_first=is_first, is_gone=is_gone)


def test_a_dead_owners_pool_is_taken_over_by_the_first_candidate_alone() -> None:
    tenure = Tenure(holder=OTHER)
    assert due(tenure, is_first=True, is_gone=True) is TakeOver.FORCED
    assert due(tenure, is_first=False, is_gone=True) is None


def test_a_live_owner_is_asked_for_the_pool_by_the_first_candidate_alone() -> None:
    tenure = Tenure(holder=OTHER)
    assert due(tenure, is_first=True) is Errand.ASK
    assert due(tenure, is_first=False) is None


def test_the_heir_takes_over_whether_or_not_it_is_first() -> None:
    tenure = Tenure(heir="me")
    assert due(tenure, is_first=True) is TakeOver.PLANNED
    assert due(tenure, is_first=False) is TakeOver.PLANNED


def test_the_first_candidate_waits_for_a_live_heir_and_steps_in_for_a_dead_one() -> None:
    tenure = Tenure(heir="other")
    assert due(tenure, is_first=True) is None
    assert due(tenure, is_first=True, is_gone=True) is TakeOver.FORCED
    assert due(tenure, is_first=False, is_gone=True) is None


def test_a_pool_that_nobody_ever_owned_is_the_first_candidates() -> None:
    assert due(Tenure(), is_first=True, is_gone=True) is TakeOver.FORCED
    assert due(Tenure(), is_first=False, is_gone=True) is None


def test_what_this_node_owned_under_this_lease_it_regains_though_another_is_first() -> None:
    assert due(Tenure(holder=ME), is_first=False) is TakeOver.REGAINED


def test_what_it_owned_under_an_earlier_lease_it_regains_only_as_the_first() -> None:
    earlier = Tenure(holder=Holder("me", Session("before")))
    assert due(earlier, is_first=True) is TakeOver.REGAINED
    assert due(earlier, is_first=False) is None


def test_a_deleted_pool_is_buried_by_the_first_candidate_whoever_owned_it() -> None:
    for holder in (None, ME, OTHER):
        deleted = Tenure(holder=holder, is_deleted=True)
        assert due(deleted, is_first=True, is_gone=True) is Errand.BURY
        assert due(deleted, is_first=False, is_gone=True) is None
