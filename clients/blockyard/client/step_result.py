"""What a scheduler's step came to, told by the caller's own sequence ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockyard.core.ids import BlockId
from blockyard.core.replies import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A sequence that got its slots.

    Attributes:
        num_cached_tokens: Tokens of the cached prefix, whose KV is there already; None unless admitted now.
        num_new_tokens: Tokens given slots by this step, speculated ones included: those to compute now.
        new_block_ids: Per group, the entries appended to the block table.
        block_ids: Per group, the whole table: the scheduler's own lists, which grow with later steps, and
            change in no other way but by ``replaced``. An entry that the server has dropped meanwhile still
            stands here, and is null there: behind a window, where no token looks any more, or of a recurrent
            group's earlier states. Such a group's states for speculated tokens are appended anew where they
            move on: their old entries say where the state lies that the running one goes on from. In this
            step only: the block may be another sequence's after the next.
        replaced: Group, position and block of those entries that became another block by this step, as forks
            shared the one before. Their copies are among the step's.
    """

    num_cached_tokens: int | None
    num_new_tokens: int
    new_block_ids: Sequence[Sequence[BlockId]]
    block_ids: Sequence[Sequence[BlockId]]
    replaced: Sequence[tuple[int, int, BlockId]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkResult:
    """What forks of a sequence begin with.

    Attributes:
        epoch: The pool's.
        block_ids: By their ids, their block tables: as `Scheduled.block_ids`.
        num_computed_tokens: Tokens with slots, which they and their parent have in common.
        copies: Block copies (source, destination) to make before the next step is sent, once what was
            scheduled before is computed.
        num_free_blocks: After the fork.
    """

    epoch: int
    block_ids: Mapping[str, Sequence[Sequence[BlockId]]]
    num_computed_tokens: int
    copies: Sequence[Sequence[BlockId]]
    num_free_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One step.

    Attributes:
        step_id: Its number under the lease.
        epoch: The pool's.
        scheduled: By sequence id, those that got their slots.
        insufficient: Those for which too few blocks were free, or with which the tenant would hold more than
            its quota; running ones stay as they were, others wait.
        refused: Those refused for another reason, which waiting alone does not mend: an id that another lease
            holds, more blocks at once than the pool has or the tenant's quota allows, or a sequence that the
            server names as not valid (``invalid_request``), as one longer than its ``max_model_len``. The
            last are left out of all steps, and told of by each that is to schedule them, until `finish` or
            `preempt`.
        copies: Block copies (source, destination) to make before this step's tokens are computed, in this
            order. Both blocks are kept until the lease's next call that changes the pool.
        num_free_blocks: After the step.
    """

    step_id: int
    epoch: int
    scheduled: Mapping[str, Scheduled]
    insufficient: Sequence[str]
    refused: Mapping[str, Refused]
    copies: Sequence[Sequence[BlockId]]
    num_free_blocks: int
