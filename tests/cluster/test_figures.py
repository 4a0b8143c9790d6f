"""How long nobody was served is told from what clients were answered, and when."""

import pytest

from cluster.faults import Fault, Struck
from cluster.figures import Acknowledged, Figures
from crash.calls import Answer, Call, Verb

MS = 1_000_000


def noted(*answers: tuple[int, int], pool: str = "pool", status: int = 200) -> Acknowledged:
    """Of answers at so many milliseconds, by the owner of that number."""
    acknowledged = Acknowledged()
    for number, (at_ms, ownership) in enumerate(answers):
        call = Call(number=number, verb=Verb.READ, pool=pool, key="", body={})
        acknowledged.note(
            call,
            Answer(
                number=number,
                status=status,
                num_tries=1,
                body={},
                tried_ns=(at_ms - 1) * MS,
                at_ns=at_ms * MS,
                ownership=ownership,
            ),
        )
    return acknowledged


def test_a_take_over_ends_with_the_first_answer_of_a_later_owner() -> None:
    acknowledged = noted((90, 1), (101, 1), (1_800, 2), (1_700, 2), (1_900, 2))
    assert acknowledged.taken_over_after_ms("pool", 100 * MS) == 1_600
    assert acknowledged.taken_over_after_ms("pool", 1_800 * MS) is None
    assert acknowledged.num_calls == 5


def test_the_longest_gap_reaches_over_both_ends() -> None:
    acknowledged = noted((10, 1), (100, 1), (250, 1), (300, 1), (700, 1), (5_000, 1))
    assert acknowledged.longest_gap_ms("pool", 150 * MS, 290 * MS) == 150
    assert acknowledged.longest_gap_ms("pool", 150 * MS, 310 * MS) == 400
    assert acknowledged.longest_gap_ms("pool", 0, 9_000 * MS) == 4_300


def test_pools_are_missed_until_a_call_is_answered_that_was_tried_since() -> None:
    acknowledged = noted((100, 1))
    assert acknowledged.not_since(50 * MS, ["pool", "other"]) == ["other"]
    assert acknowledged.not_since(99 * MS, ["pool"]) == ["pool"]


def test_refusals_are_not_acknowledged() -> None:
    assert noted((100, 1), status=409).num_calls == 0


def test_a_run_reports_what_its_faults_cost() -> None:
    acknowledged = noted((90, 1), (1_700, 2), (1_900, 2), (3_000, 3))
    figures = Figures(seed=7, network="relays")
    killed = Struck(fault=Fault.KILL_OWNER, whom="node-0", at_ns=100 * MS, pools=("pool",))
    figures.note(killed, 1_800 * MS, acknowledged, ["pool"])
    planned = ((1_850 * MS, 2_500 * MS, ("pool",)),)
    restarted = Struck(fault=Fault.ROLLING_RESTART, whom="every node", at_ns=1_850 * MS, planned=planned)
    figures.note(restarted, 2_900 * MS, acknowledged, ["pool"])
    told = figures.as_json()
    assert (told["forced_median_ms"], told["planned_median_ms"]) == (1_600, 1_100)
    assert told["num_faults"] == {"kill_owner": 1, "rolling_restart": 1}
    lines = "\n".join(figures.lines())
    assert "after 1,600 ms (median), 1,600 ms (most)" in lines
    assert "1 x all nodes are restarted in turn: nobody answered for at most 1,100 ms (median)" in lines


def test_a_dead_owner_whom_nobody_followed_is_no_figure_but_a_failure() -> None:
    struck = Struck(fault=Fault.KILL_OWNER, whom="node-0", at_ns=100 * MS, pools=("pool",))
    with pytest.raises(AssertionError, match="nobody has answered for pool since node-0 was killed"):
        Figures(seed=7).note(struck, 200 * MS, noted((90, 1), (150, 1)), ["pool"])
