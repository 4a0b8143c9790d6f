"""Workloads of turns that build on each other: chats, and agents that call tools."""

from collections.abc import Iterator
from itertools import count

from benchmarks.laboratory.draw import Draw, Popularity
from benchmarks.laboratory.prompt import NOTHING, Prompt, Writer
from benchmarks.laboratory.sessions import Session, Turn, interleave

NUM_USERS = 4_000
MAX_CHAT_TOKENS = 16_384
NUM_AGENTS = 6
MAX_AGENT_TOKENS = 32_768


def chat(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """People who talk: most conversations end with the first answer, others go on for long.

    Every prompt is one of four system prompts, what the user wants remembered, and the conversation so far,
    the answers included. One in eight begins with a long text. A turn follows within a minute half of the
    time, and after hours now and then. Some users talk much more than others.
    """
    systems = [writer.say(NOTHING, draw.around(900)) for _ in range(4)]
    used = Popularity(len(systems))
    users = [
        writer.say(systems[draw.rank(used)], draw.count(20, 500)) if draw.chance(0.5) else None
        for _ in range(NUM_USERS)
    ]
    activity = Popularity(NUM_USERS, is_mild=True)

    def talk() -> Session:
        prompt = users[draw.rank(activity)] or systems[draw.rank(used)]
        if draw.chance(0.125):
            prompt = writer.say(prompt, draw.tokens(1_000, 3_000, 12_000))
        prompt = writer.say(prompt, draw.around(120))
        yield Turn(0.0, prompt)
        if draw.chance(0.6):
            return
        while draw.chance(0.75) and prompt.num_tokens < MAX_CHAT_TOKENS:
            prompt = writer.say(prompt, draw.around(350) + draw.around(120))
            yield Turn(5.0 + draw.heavy(50.0, 10_000.0), prompt)

    yield from interleave((draw.between(0.0, 0.5), talk()) for _ in count())


def agents(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Agents at work side by side: each turn adds a call and what a tool replied, seconds after the last.

    An agent's instructions and tools are long, and shared by all of its tasks. One turn in thirty waits for a
    person.
    """
    preambles = [writer.say(NOTHING, draw.tokens(2_000, 5_000, 12_000)) for _ in range(NUM_AGENTS)]
    used = Popularity(NUM_AGENTS)

    def work() -> Session:
        prompt = writer.say(preambles[draw.rank(used)], draw.tokens(100, 500, 6_000))
        yield Turn(0.0, prompt)
        while draw.chance(0.93) and prompt.num_tokens < MAX_AGENT_TOKENS:
            prompt = writer.say(prompt, draw.around(120) + draw.tokens(20, 400, 8_000))
            wait_s = draw.heavy(300.0, 7_200.0) if draw.chance(1 / 30) else draw.between(2.0, 15.0)
            yield Turn(wait_s, prompt)

    yield from interleave((draw.between(0.0, 1.0), work()) for _ in count())
