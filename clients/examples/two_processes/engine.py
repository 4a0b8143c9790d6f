"""The engine's decisions: who computes how many tokens next, and who gives up blocks when there are too few.

Running sequences come first, the oldest in front, then waiting ones: this is continuous batching, and chunked
prefill, as a prompt gets what is left of a step.

    budget of a step   [ decode 1 | decode 1 | rest of a prompt | first chunk of another prompt ]
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from blockyard.client import Lease, PoolDescription, Scheduled, Scheduler, StepResult
from examples.two_processes.faults import with_swapped_blocks
from examples.two_processes.messages import Batch, Chunk, Computed
from examples.two_processes.reports import Admission, Finished
from examples.two_processes.settings import Settings
from examples.two_processes.workload import Request


@dataclass(slots=True)
class Sequence:
    """A request on its way. ``num_computed_tokens``: in the cache, as long as it has blocks."""

    request: Request
    tokens: list[int]
    logits: list[tuple[float, ...]] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int | None = None
    num_preemptions: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether all its output is there."""
        return len(self.logits) == self.request.num_output_tokens

    def report(self) -> Finished:
        """What came of it."""
        return Finished(
            prompt=self.request.prompt,
            output=tuple(self.tokens[len(self.request.prompt) :]),
            logits=tuple(self.logits),
            num_cached_tokens=self.num_cached_tokens or 0,
            num_preemptions=self.num_preemptions,
        )


class Engine:
    """Sequences under one lease. It talks to the server in `step`, and nowhere else.

    Args:
        lease: Under which it holds blocks.
        pool: The lease's.
        settings: Its limits.
    """

    def __init__(self, lease: Lease, pool: PoolDescription, settings: Settings) -> None:
        self._scheduler = Scheduler(lease, pool.hasher())
        self._pool = pool
        self._settings = settings
        self._sequences: dict[str, Sequence] = {}
        self._may_admit = True
        self.finished: list[Finished] = []
        self.admissions: list[Admission] = []
        self.num_steps = 0
        self.num_copied_blocks = 0
        self.was_fault_planted = False

    @property
    def has_work(self) -> bool:
        """Whether a sequence is not finished."""
        return bool(self._sequences)

    def add(self, sequence_id: str, request: Request) -> None:
        """Queue a request."""
        self._sequences[sequence_id] = Sequence(request, list(request.prompt))
        self._scheduler.add(sequence_id, request.prompt)

    def step(self) -> StepResult:
        """Commit and free what the last step left, and get slots for the next tokens: one call.

        Raises:
            StaleEpoch: A worker lost its memory: see `restart`.
            RuntimeError: A sequence can never be served.
        """
        result = self._scheduler.step(self._budgets())
        if result.refused:
            raise RuntimeError(f"refused, and waiting does not help: {dict(result.refused)}")
        self.num_steps += 1
        self.num_copied_blocks += len(result.copies)
        for sequence_id, scheduled in result.scheduled.items():
            if scheduled.num_cached_tokens is not None:
                self._note_admitted(self._sequences[sequence_id], scheduled.num_cached_tokens, result.epoch)
        return result

    def batch(self, result: StepResult) -> Batch:
        """What the worker is to compute."""
        chunks = tuple(
            self._chunk(self._sequences[sequence_id], scheduled)
            for sequence_id, scheduled in result.scheduled.items()
        )
        if self._is_fault_due():
            group = [each.kind for each in self._pool.groups].index("full_attention")
            swapped = with_swapped_blocks(chunks, group, self._pool.groups[group].block_size)
            self.was_fault_planted = swapped is not None
            chunks = swapped or chunks
        copies = tuple((source, destination) for source, destination in result.copies)
        return Batch(epoch=result.epoch, copies=copies, chunks=chunks)

    def take_in(self, result: StepResult, computed: Computed) -> None:
        """Append what was sampled; make room where the step had too few blocks for somebody who runs."""
        for (sequence_id, scheduled), sampled in zip(result.scheduled.items(), computed.sampled, strict=True):
            sequence = self._sequences[sequence_id]
            sequence.num_computed_tokens += scheduled.num_new_tokens
            self._scheduler.computed(sequence_id, sequence.num_computed_tokens)
            if sampled is not None:
                sequence.tokens.append(sampled.token_id)
                sequence.logits.append(sampled.logits)
                self._scheduler.append(sequence_id, [sampled.token_id])
            if sequence.is_finished:
                self._scheduler.finish(sequence_id)
                self.finished.append(self._sequences.pop(sequence_id).report())
        running = self._scheduler.running
        lacks_blocks = not set(result.insufficient).isdisjoint(running)
        if lacks_blocks:
            self._preempt(running[-1])
        self._may_admit = not lacks_blocks  # else who waits would take what was given up

    def give_up_blocks(self) -> None:
        """The last batch is lost: what was not reported as computed is computed again."""
        for sequence_id in self._scheduler.running:
            self._scheduler.preempt(sequence_id)

    def restart(self, lease: Lease) -> None:
        """Go on under a new lease: every sequence is admitted again, with all the tokens it has by now."""
        self._scheduler.restart(lease)
        self._may_admit = True

    def _budgets(self) -> Mapping[str, int]:
        """Tokens that each sequence may compute in the next step."""
        left = self._settings.max_num_batched_tokens
        budgets = {}
        for sequence_id in self._scheduler.running:
            sequence = self._sequences[sequence_id]
            num_new = min(left, len(sequence.tokens) - sequence.num_computed_tokens)
            budgets[sequence_id], left = num_new, left - num_new
        for sequence_id in self._scheduler.waiting if self._may_admit else ():
            if left == 0 or len(budgets) == self._settings.max_num_sequences:
                break
            # A cached prefix is not computed, and how long it is turns out with the admission.
            budgets[sequence_id] = min(left, len(self._sequences[sequence_id].tokens))
            left -= budgets[sequence_id]
        return budgets

    def _note_admitted(self, sequence: Sequence, num_cached_tokens: int, epoch: int) -> None:
        sequence.num_computed_tokens = num_cached_tokens
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = num_cached_tokens
        self.admissions.append(
            Admission(step=self.num_steps, epoch=epoch, num_cached_tokens=num_cached_tokens)
        )

    def _chunk(self, sequence: Sequence, scheduled: Scheduled) -> Chunk:
        begin = sequence.num_computed_tokens
        end = begin + scheduled.num_new_tokens
        return Chunk(
            token_ids=tuple(sequence.tokens[begin:end]),
            num_computed_tokens=begin,
            block_tables=tuple(tuple(table) for table in scheduled.block_ids),
            is_sampled=end == len(sequence.tokens),
        )

    def _is_fault_due(self) -> bool:
        due = self._settings.swap_blocks_at_step
        return due is not None and self.num_steps >= due and not self.was_fault_planted

    def _preempt(self, sequence_id: str) -> None:
        self._scheduler.preempt(sequence_id)
        self._sequences[sequence_id].num_preemptions += 1
