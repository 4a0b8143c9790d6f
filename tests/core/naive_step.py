"""A step without shortcuts: single calls, one after the other."""

from blockyard.core.commands import Admission, Step
from blockyard.core.errors import InsufficientBlocks, InvalidRequest, SequenceExistsElsewhere
from blockyard.core.ids import LeaseId, TenantId
from blockyard.core.replies import Admitted, Refused, StepExtended
from core.naive_sequences import NaiveSequences
from core.naive_tables import Copies


def run_step(
    step: Step,
    lease_id: LeaseId,
    tenant: TenantId,
    sequences: NaiveSequences,
    copies: Copies,
    replaced: list[list[int]],
) -> tuple[StepExtended, list[Admitted | Refused]]:
    """Commit, free, extend, admit. Where a call is not valid those before it are done: put back what was."""
    _check_columns(step)
    for handle, num_tokens in zip(step.commit.sequences, step.commit.num_computed_tokens, strict=True):
        sequence = sequences.held(lease_id, handle)
        sequences.commit(sequence, num_tokens, sequences.check_commit(sequence, num_tokens))
    for handle in step.free:
        sequences.free(sequences.held(lease_id, handle))
    extended = _extend(step, lease_id, sequences, copies, replaced)
    return extended, [_admit(admission, lease_id, tenant, sequences, copies) for admission in step.admit]


def _check_columns(step: Step) -> None:
    """What a step may not say of itself, whatever the pool holds."""
    extends = step.extend
    columns = (step.commit.sequences, step.free, extends.sequences)
    lengths = [(step.commit.sequences, step.commit.num_computed_tokens)]
    lengths.append((extends.sequences, extends.num_tokens))
    if extends.num_computed_tokens is not None:
        lengths.append((extends.sequences, extends.num_computed_tokens))
    admitted = [admission.sequence_id for admission in step.admit]
    if (
        extends.num_lookahead_tokens < 0
        or any(len(set(column)) < len(column) for column in columns)
        or any(len(handles) != len(column) for handles, column in lengths)
        or set(step.free) & set(extends.sequences)
        or {*extends.block_hashes, *extends.token_ids} - set(extends.sequences)
        or len(set(admitted)) < len(admitted)
    ):
        raise InvalidRequest.of("step", "its columns contradict each other")


def _extend(
    step: Step,
    lease_id: LeaseId,
    sequences: NaiveSequences,
    copies: Copies,
    replaced: list[list[int]],
) -> StepExtended:
    columns = step.extend
    told = columns.num_computed_tokens
    computed = [None] * len(columns.sequences) if told is None else [*told]
    extended, block_ids, insufficient = [], [], []
    for handle, num_tokens, num_computed in zip(columns.sequences, columns.num_tokens, computed, strict=True):
        sequence = sequences.held(lease_id, handle)
        admission = Admission(
            sequence_id=sequence.sequence_id,
            num_tokens=num_tokens,
            num_lookahead_tokens=columns.num_lookahead_tokens,
            block_hashes=columns.block_hashes.get(handle, ()),
            token_ids=columns.token_ids.get(handle, ()),
        )
        num_known_tokens = max(num_tokens, sequence.num_tokens)
        content = sequences.check_extension(sequence, admission, num_computed, num_known_tokens)
        try:
            _, appended = sequences.extend(sequence, admission, num_computed, content, copies, replaced)
        except InsufficientBlocks:
            insufficient.append(handle)
        else:
            extended.append(handle)
            block_ids.append(appended)
    if not columns.only_changes:
        return StepExtended(sequences=extended, block_ids=block_ids, insufficient=insufficient)
    changed = [(handle, blocks) for handle, blocks in zip(extended, block_ids, strict=True) if any(blocks)]
    return StepExtended(
        sequences=[handle for handle, _ in changed],
        block_ids=[blocks for _, blocks in changed],
        insufficient=insufficient,
        unlisted=[[] for _ in sequences.config.groups],
    )


def _admit(
    admission: Admission, lease_id: LeaseId, tenant: TenantId, sequences: NaiveSequences, copies: Copies
) -> Admitted | Refused:
    content = sequences.check_admission(admission, tenant)
    known = sequences.live.get((tenant, admission.sequence_id))
    if known is not None and known.lease_id == lease_id:
        raise InvalidRequest.of("admit.sequence_id", "is admitted already")
    try:
        return sequences.admit(lease_id, tenant, admission, content, copies)
    except InsufficientBlocks as error:
        return Refused(code=error.code, detail=error.detail, **error.figures)
    except SequenceExistsElsewhere as error:
        return Refused(code=error.code, detail=error.detail)
