"""What the two processes send each other, over a connection of `multiprocessing`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some tokens of one sequence, to be computed.

        0        num_computed_tokens       num_tokens
        |-- in the cache --|-- token_ids --|

    Attributes:
        token_ids: At least one.
        num_computed_tokens: Tokens before them, whose keys, values and states are in the cache.
        block_tables: One a group.
        is_sampled: Whether the next token is to be chosen: these tokens are the last that are known.
    """

    token_ids: tuple[int, ...]
    num_computed_tokens: int
    block_tables: tuple[tuple[int, ...], ...]
    is_sampled: bool

    @property
    def num_tokens(self) -> int:
        """Tokens up to the last of these."""
        return self.num_computed_tokens + len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step.

    Attributes:
        epoch: In which the blocks were given.
        copies: Blocks (source, destination) to copy before anything is computed.
        chunks: Each of another sequence.
    """

    epoch: int
    copies: tuple[tuple[int, int], ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A sequence's next token, the likeliest one, and the logits that it was chosen by."""

    token_id: int
    logits: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The answer to a batch: one entry a chunk, None where nothing was to be sampled."""

    sampled: tuple[Sampled | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A worker's first word: it has registered, and its memory holds nothing yet."""
