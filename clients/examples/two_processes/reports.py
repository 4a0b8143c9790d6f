"""What the scheduler process tells of a run: while it goes on, and at its end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After a step. ``num_finished``: sequences of all rounds."""

    num_steps: int
    num_finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A sequence from its prompt to its end.

    Attributes:
        prompt: Token ids.
        output: Token ids.
        logits: That each token of the output was chosen by.
        num_cached_tokens: Of the prompt, found when the sequence was first admitted.
        num_preemptions: How often its blocks were given to others.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    logits: tuple[tuple[float, ...], ...]
    num_cached_tokens: int
    num_preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A sequence got its first blocks, or got blocks again.

    Attributes:
        step: Of the run, from 1.
        epoch: Of the pool.
        num_cached_tokens: Taken as computed.
    """

    step: int
    epoch: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All requests, sent once."""

    finished: tuple[Finished, ...]
    num_steps: int
    num_copied_blocks: int
    num_evicted_blocks: int

    @property
    def num_requests(self) -> int:
        """That were served."""
        return len(self.finished)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(finished.prompt) for finished in self.finished)

    @property
    def num_cached_tokens(self) -> int:
        """Of these, found when a sequence was first admitted."""
        return sum(finished.num_cached_tokens for finished in self.finished)

    @property
    def num_output_tokens(self) -> int:
        """Of all sequences."""
        return sum(len(finished.output) for finished in self.finished)

    @property
    def num_preemptions(self) -> int:
        """Of all sequences."""
        return sum(finished.num_preemptions for finished in self.finished)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run.

    Attributes:
        rounds: One after the other.
        admissions: In order.
        num_lost_workers: How often the worker process had to be waited for in the middle.
        was_fault_planted: See `Settings.swap_blocks_at_step`.
    """

    rounds: tuple[Round, ...]
    admissions: tuple[Admission, ...]
    num_lost_workers: int
    was_fault_planted: bool
