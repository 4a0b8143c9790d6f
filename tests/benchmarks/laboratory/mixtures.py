"""Workloads of several kinds at a time, in the manner of published traces."""

from collections.abc import Iterator
from itertools import count

from benchmarks.laboratory.draw import Draw, Popularity
from benchmarks.laboratory.prompt import NOTHING, Prompt, Writer
from benchmarks.laboratory.sessions import Session, Turn, alone, interleave

NUM_TOOLS = 200
MAX_AGENT_TOKENS = 100_000


def tool_agents(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """An hour of a service for agents: most requests are a long prompt of a tool and little else.

    Half of the sessions call one of many tools once. The others are longer conversations, which a person goes
    on with minutes later, or long texts that are read once. On an input of 9,500 tokens somewhat more than
    half of all blocks are found by a cache without bounds.

    Source: what the Mooncake paper (FAST '25) tells of its tool & agent trace; nothing of the trace itself.
    """
    tools = [writer.say(NOTHING, draw.tokens(1_500, 5_500, 9_000)) for _ in range(NUM_TOOLS)]
    used = Popularity(NUM_TOOLS)

    def converse() -> Session:
        start = tools[draw.rank(used)] if draw.chance(0.5) else NOTHING
        prompt = writer.say(start, draw.tokens(500, 2_500, 30_000))
        yield Turn(0.0, prompt)
        while draw.chance(0.6) and prompt.num_tokens < MAX_AGENT_TOKENS:
            prompt = writer.say(prompt, draw.around(180) + draw.tokens(20, 500, 16_000))
            yield Turn(10.0 + draw.heavy(300.0, 3_400.0), prompt)

    def session() -> Session:
        if draw.chance(0.5):
            return alone(writer.say(tools[draw.rank(used)], draw.tokens(50, 700, 8_000)))
        if draw.chance(0.5):
            return alone(writer.say(NOTHING, draw.tokens(1_000, 3_500, 80_000)))
        return converse()

    yield from interleave((draw.between(0.0, 0.4), session()) for _ in count())


def synthetic_mix(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Public sets of conversations and of questions about long documents, mixed.

    Two sessions in five are conversations, the others ask about a document of some ten thousand tokens, in no
    hurry. On an input of 13,500 tokens two thirds of all blocks are found by a cache without bounds.

    Source: what the Mooncake paper (FAST '25) tells of its synthetic trace; nothing of the trace itself.
    """

    def converse() -> Session:
        prompt = writer.say(NOTHING, draw.tokens(20, 250, 6_000))
        yield Turn(0.0, prompt)
        while draw.chance(0.75):
            prompt = writer.say(prompt, draw.around(250) + draw.tokens(10, 80, 2_000))
            yield Turn(draw.between(1.0, 120.0), prompt)

    def ask() -> Session:
        document = writer.say(NOTHING, draw.tokens(3_000, 14_000, 80_000))
        for _ in range(draw.count(1, 6)):
            yield Turn(draw.heavy(300.0, 3_600.0), writer.say(document, draw.around(60)))

    yield from interleave(
        (draw.between(0.0, 7.0), converse() if draw.chance(0.4) else ask()) for _ in count()
    )
