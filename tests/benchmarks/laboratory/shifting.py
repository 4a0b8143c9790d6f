"""A workload that shifts: what is done changes, and what is popular."""

from collections.abc import Iterator
from itertools import accumulate

from benchmarks.laboratory.draw import Draw, Popularity
from benchmarks.laboratory.prompt import NOTHING, Prompt, Writer
from benchmarks.laboratory.sessions import Session, Turn, alone, interleave

PHASE_SESSIONS = 600
DRIFT_SESSIONS = 50
NUM_TOPICS = 500


def shifting(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Popular texts, chats about them, scans and bursts, whose shares change abruptly from phase to phase.

    What is popular drifts within a phase: every few sessions the text that was asked for the most falls
    behind all others. With a phase, half of the texts are replaced by new ones.
    """
    yield from interleave(_Shifting(draw, writer).sessions())


class _Shifting:
    """The texts that are popular now, and the sessions that are about them or not."""

    def __init__(self, draw: Draw, writer: Writer) -> None:
        self._draw, self._writer = draw, writer
        self._popularity = Popularity(NUM_TOPICS)
        self._topics = [self._topic() for _ in range(NUM_TOPICS)]

    def sessions(self) -> Iterator[tuple[float, Session]]:
        """Without end, phase after phase, each with the seconds to the next one."""
        kinds = (self._chat, self._popular, self._popular, self._scan, self._burst)
        while True:
            self._topics[::2] = [self._topic() for _ in self._topics[::2]]
            shares = list(accumulate(self._draw.between(0.0, 1.0) for _ in kinds))
            for number in range(PHASE_SESSIONS):
                if number % DRIFT_SESSIONS == 0:
                    self._topics.append(self._topics.pop(0))
                drawn = self._draw.between(0.0, shares[-1])
                kind = next(kind for kind, share in zip(kinds, shares, strict=True) if drawn < share)
                yield self._draw.between(0.0, 2.0), kind()

    def _topic(self) -> Prompt:
        return self._writer.say(NOTHING, self._draw.tokens(300, 1_500, 8_000))

    def _drawn(self) -> Prompt:
        return self._topics[self._draw.rank(self._popularity)]

    def _popular(self) -> Session:
        return alone(self._writer.say(self._drawn(), self._draw.around(200)))

    def _chat(self) -> Session:
        prompt = self._writer.say(self._drawn(), self._draw.around(120))
        yield Turn(0.0, prompt)
        while self._draw.chance(0.7):
            prompt = self._writer.say(prompt, self._draw.around(350) + self._draw.around(120))
            yield Turn(5.0 + self._draw.heavy(50.0, 10_000.0), prompt)

    def _scan(self) -> Session:
        for _ in range(self._draw.count(1, 5)):
            yield Turn(0.2, self._writer.say(NOTHING, self._draw.tokens(500, 2_000, 12_000)))

    def _burst(self) -> Session:
        document = self._topic()
        for _ in range(self._draw.count(2, 8)):
            yield Turn(self._draw.between(1.0, 30.0), self._writer.say(document, self._draw.around(60)))
