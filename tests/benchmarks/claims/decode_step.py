"""A step of 256 decoding sequences over HTTP with the default journal, beside the peer's in process."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench_step import FULL, admissions, decoding
from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from blockyard.client import Client, Lease, StepCommit
from blockyard.core.config import GroupConfig
from blockyard.core.replies import Admitted
from server_process import running_server

NAME, BOUND = "step", 0.4
NUM_SEQUENCES, PROMPT_TOKENS, NUM_BLOCKS, BLOCK_SIZE = 256, 2_000, 200_000, 16
SLIDING = GroupConfig(kind="sliding_window", block_size=BLOCK_SIZE, sliding_window=1024)
GROUPS = {1: (FULL,), 2: (FULL, SLIDING)}


@dataclass(frozen=True, slots=True)
class Manner:
    """A way to step: what for, whether it commits, and by how many tokens lengths differ at most."""

    what: str
    is_committing: bool
    spread: int


MANNERS = (
    Manner("extend", is_committing=False, spread=1),
    Manner("commit and extend", is_committing=True, spread=1),
    Manner("commit and extend, a 16th fills a block in each step", is_committing=True, spread=BLOCK_SIZE),
)


class Decoding:
    """256 sequences of a pool, a token longer with each step.

    As in the peer's, all of them fill a block in every 16th step, unless their lengths are spread. Without
    commits the pool publishes what it allocates, as the peer does; with them it is the default one.
    """

    def __init__(self, lease: Lease, manner: Manner) -> None:
        self._lease = lease
        self._manner = manner
        self._lengths = [PROMPT_TOKENS + number % manner.spread for number in range(NUM_SEQUENCES)]
        answers = lease.step(admit=admissions(self._lengths)).admit
        self._handles = [answer.sequence for answer in answers if isinstance(answer, Admitted)]
        assert len(self._handles) == NUM_SEQUENCES

    def step_ms(self) -> float:
        """From the call to its result."""
        asked = decoding(self._handles, self._lengths)
        commit = asked.commit if self._manner.is_committing else StepCommit()
        start = perf_counter()
        reply = self._lease.step(commit=commit, extend=asked.extend)
        taken = perf_counter() - start
        assert len(reply.extend.sequences) == NUM_SEQUENCES
        self._lengths = [length + 1 for length in self._lengths]
        return taken * 1e3


class DecodeStep:
    """Our side of the claim, in a server that is there as long as ``stack``."""

    name = NAME

    def __init__(self, setting: Setting, stack: ExitStack) -> None:
        self._num_steps = setting.pick(320, 4)
        server = stack.enter_context(running_server("--log-level", "error"))
        client = stack.enter_context(Client(server.url))
        self._decodings: dict[tuple[int, Manner], Decoding] = {}
        for num_groups, groups in GROUPS.items():
            for manner in MANNERS:
                pool = client.create_pool(
                    f"pool-{len(self._decodings)}",
                    num_blocks=NUM_BLOCKS,
                    eviction="lru",
                    groups=groups,
                    publish="on_commit" if manner.is_committing else "on_allocate",
                )
                lease = stack.enter_context(pool.lease("benchmark", 3_600_000))
                self._decodings[num_groups, manner] = Decoding(lease, manner)

    def measure(self) -> dict[str, float]:
        """The median step of each manner, the pools in turns."""
        times: dict[tuple[int, Manner], list[float]] = {key: [] for key in self._decodings}
        for _ in range(self._num_steps):
            for key, each in self._decodings.items():
                times[key].append(each.step_ms())
        return {key_of(*key): median(taken) for key, taken in times.items()}

    @staticmethod
    def figures(
        rounds: Mapping[str, list[float]], peer: list[Mapping[str, Any]], note: str
    ) -> Iterator[Figure]:
        """A row for each manner and number of groups."""
        for num_groups in GROUPS:
            beside = [each[f"groups_{num_groups}"]["decode_step_256_ms"] for each in peer]
            for manner in MANNERS:
                what = f"{num_groups} group{'s' * (num_groups > 1)}: {manner.what}"
                figure = Figure(claim=NAME, what=what, bound=BOUND, note=note)
                yield figure.measured(rounds[key_of(num_groups, manner)], beside)


def key_of(num_groups: int, manner: Manner) -> str:
    return f"{num_groups} {manner.what}"
