"""Workloads of texts that many requests share, each asked about once: system prompts, documents, scans."""

from collections.abc import Iterator
from itertools import count

from benchmarks.laboratory.draw import Draw, Popularity
from benchmarks.laboratory.prompt import NOTHING, Prompt, Writer
from benchmarks.laboratory.sessions import Session, Turn, interleave

NUM_SYSTEM_PROMPTS = 600
NUM_DOCUMENTS = 3_000
NUM_STABLE_DOCUMENTS = 400
SCAN_REQUESTS = 150
REQUESTS_BETWEEN_SCANS = 450


def system_prompts(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Applications that call an API: each with a long system prompt, and an input of its own a call.

    A few applications make most of the calls. Their prompts have 500 to 10,000 tokens.
    """
    applications = [writer.say(NOTHING, draw.tokens(500, 1_500, 10_000)) for _ in range(NUM_SYSTEM_PROMPTS)]
    popularity = Popularity(NUM_SYSTEM_PROMPTS)
    while True:
        yield writer.say(applications[draw.rank(popularity)], draw.tokens(30, 400, 4_000))


def retrieval(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Questions about documents that a search has found, the best first; a third has further questions.

    One to four documents stand behind one of four system prompts. Some are found much more often than others.
    """
    systems = [writer.say(NOTHING, draw.around(600)) for _ in range(4)]
    documents = [writer.piece(draw.tokens(200, 900, 6_000)) for _ in range(NUM_DOCUMENTS)]
    popularity, used = Popularity(NUM_DOCUMENTS), Popularity(len(systems))

    def ask() -> Session:
        found = {draw.rank(popularity): None for _ in range(draw.count(1, 4))}
        prompt = writer.join(systems[draw.rank(used)], *(documents[rank] for rank in found))
        prompt = writer.say(prompt, draw.around(60))
        yield Turn(0.0, prompt)
        while draw.chance(1 / 3):
            prompt = writer.say(prompt, draw.around(300) + draw.around(60))
            yield Turn(draw.heavy(45.0, 3_600.0), prompt)

    yield from interleave((draw.between(0.0, 2.0), ask()) for _ in count())


def scans(draw: Draw, writer: Writer) -> Iterator[Prompt]:
    """Questions about a stable set of documents, and now and then a batch job that reads long texts once."""
    stable = [writer.say(NOTHING, draw.tokens(300, 1_500, 8_000)) for _ in range(NUM_STABLE_DOCUMENTS)]
    popularity = Popularity(NUM_STABLE_DOCUMENTS, is_mild=True)
    instruction = writer.say(NOTHING, 200)
    while True:
        for _ in range(draw.around(REQUESTS_BETWEEN_SCANS)):
            yield writer.say(stable[draw.rank(popularity)], draw.around(80))
        for _ in range(draw.around(SCAN_REQUESTS)):
            yield writer.say(instruction, draw.tokens(1_000, 4_000, 16_000))
            if draw.chance(0.2):
                yield writer.say(stable[draw.rank(popularity)], draw.around(80))
