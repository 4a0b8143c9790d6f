"""What one turn of the event loop takes in, told by the times at which its calls begin."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from blockyard.core.errors import Overloaded
from blockyard.server.turn import MAX_RETRY_AFTER_MS, Turn

MS = 1_000_000


def offer(turn: Turn, times_ms: Sequence[int]) -> list[int | None]:
    """Calls at these times: for each None where it is let in, else when it is to come back, in ms."""
    found: list[int | None] = []
    for time_ms in times_ms:
        try:
            turn.take(time_ms * MS)
        except Overloaded as refused:
            found.append(refused.figures["retry_after_ms"])
        else:
            found.append(None)
    return found


def offer_in_turns(max_turn_ms: int, *turns: Sequence[int]) -> list[list[int | None]]:
    """The same in several turns of a loop."""

    async def run() -> list[list[int | None]]:
        turn = Turn(max_turn_ms)
        found = []
        for times_ms in turns:
            found.append(offer(turn, times_ms))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return found

    return asyncio.run(run())


def test_a_turn_takes_calls_until_it_has_lasted_too_long() -> None:
    ((*first, last),) = offer_in_turns(100, [0, 30, 60, 90, 120, 150])
    assert first == [None] * 5  # of 120 ms one call, the longest, is not counted
    assert last is not None


def test_the_next_turn_begins_anew() -> None:
    _, second = offer_in_turns(100, [0, 60, 120, 180], [200, 260])
    assert second == [None, None]


def test_one_call_that_takes_long_refuses_nobody() -> None:
    (found,) = offer_in_turns(100, [0, 5_000, 5_050, 5_099])
    assert found == [None] * 4


def test_those_refused_are_told_to_come_back_one_after_the_other() -> None:
    (found,) = offer_in_turns(100, [0, 50, 100, 150, 200, *[200] * 10])
    refused = [pause for pause in found if pause is not None]
    assert len(refused) == 11
    assert refused[0] >= 100  # not before this turn is over
    pauses = [later - sooner for sooner, later in pairwise(refused)]
    assert set(pauses) == {50}  # as long as a call took


@pytest.mark.parametrize("num_refused", [10, 1_000])
def test_nobody_is_sent_away_for_longer_than_callers_wait(num_refused: int) -> None:
    (found,) = offer_in_turns(100, [0, 1_000, 2_000, *[2_000] * num_refused])
    assert max(pause for pause in found if pause is not None) <= MAX_RETRY_AFTER_MS
