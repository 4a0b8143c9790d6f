"""Sessions side by side: who asks when.

A session is what one user or agent does: it yields its turns, each with the seconds that it takes from the
turn before, or for the first from the session's start. They begin one after the other and go on beside each
other.
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchmarks.laboratory.prompt import Prompt


class Turn(NamedTuple):
    """A prompt, and the seconds after the turn before."""

    after_s: float
    prompt: Prompt


Session = Iterator[Turn]


def interleave(starts: Iterable[tuple[float, Session]]) -> Iterator[Prompt]:
    """All prompts in the order of their time.

    Args:
        starts: The seconds from each session's start to the next one's, and the session; without end.
    """
    waiting: list[tuple[float, int, Prompt, Session]] = []
    now_s = 0.0

    def wait(since_s: float, number: int, session: Session) -> None:
        turn = next(session, None)
        if turn is not None:
            heapq.heappush(waiting, (since_s + turn.after_s, number, turn.prompt, session))

    for number, (gap_s, session) in enumerate(starts):
        while waiting and waiting[0][0] <= now_s:
            then_s, earlier, prompt, going_on = heapq.heappop(waiting)
            yield prompt
            wait(then_s, earlier, going_on)
        wait(now_s, number, session)
        now_s += gap_s


def alone(prompt: Prompt) -> Session:
    """A session of one turn."""
    yield Turn(0.0, prompt)
