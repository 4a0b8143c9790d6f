"""Workloads that are hard on one policy or another: each shows what a clever one may lose."""

from collections.abc import Iterator
from itertools import count

from benchmarks.laboratory.draw import Draw
from benchmarks.laboratory.prompt import NOTHING, Prompt, Writer
from benchmarks.laboratory.sessions import Session, Turn, interleave

LOOP_DOCUMENTS = 100
MAX_RECENT = 20_000


def loop(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """The same documents in the same order, over and over: 2,000 blocks of 64 tokens in all.

    Where they do not fit, least recently used is the worst that can be done.
    """
    documents = [writer.say(NOTHING, draw.around(1_280)) for _ in range(LOOP_DOCUMENTS)]
    while True:
        for document in documents:
            yield writer.say(document, draw.around(40))


def recency(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """What was read last is read again: least recently used is the best that can be done without foresight.

    The text is the one that was read so many texts ago, a heavy-tailed number, or a new one; how often it was
    read before says nothing.
    """
    recent: list[Prompt] = []
    while True:
        depth = int(draw.heavy(25.0, MAX_RECENT))
        if draw.chance(0.12) or depth >= len(recent):
            text = writer.say(NOTHING, draw.around(1_200))
            del recent[:-MAX_RECENT]
        else:
            text = recent.pop(-1 - depth)
        recent.append(text)
        yield writer.say(text, draw.around(40))


def bursts(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Each document is asked about several times within a minute or two, and then never again.

    Who counts how often a block was hit keeps what is of no more use.
    """

    def ask() -> Session:
        document = writer.say(NOTHING, draw.tokens(500, 2_000, 12_000))
        yield Turn(0.0, writer.say(document, draw.around(60)))
        for _ in range(draw.count(2, 9)):
            yield Turn(draw.between(1.0, 20.0), writer.say(document, draw.around(60)))

    yield from interleave((draw.between(0.0, 1.5), ask()) for _ in count())


def one_shot(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Every text is new: there is nothing to be found, whatever is kept."""
    while True:
        yield writer.say(NOTHING, draw.tokens(100, 1_000, 16_000))
