"""Requests with a fault: each must be refused with the error that belongs to it, and change nothing."""

from dataclasses import replace
from typing import Any, TypeAlias

from blockyard.core.commands import (
    Admission,
    Allocate,
    AllocateBlocks,
    Command,
    Commit,
    CreateLease,
    Fork,
    FreeBlocks,
    RenewLease,
    ResetPrefixCache,
    Step,
    StepCommit,
    StepExtend,
)
from blockyard.core.config import PoolConfig
from blockyard.core.errors import (
    BlockyardError,
    DoubleFree,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
    NotOwner,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
)
from blockyard.core.ids import NULL_BLOCK, LeaseId, SequenceHandle, SequenceId
from core.naive_kinds import num_new_blocks, num_required
from core.naive_pool import NaiveLease, NaivePool
from core.naive_sequence import NaiveSequence

Fault: TypeAlias = tuple[Command, type[BlockyardError]]
"""A request that must be refused, and the error it must be refused with."""

NO_SEQUENCE = SequenceId("nobody's")
NO_HANDLE = SequenceHandle(999_999)

OTHER = Admission(sequence_id=SequenceId("another"), num_tokens=1)
"""An admission without fault, to stand beside one with a fault."""


def faulty_requests(naive: NaivePool, lease: NaiveLease) -> dict[str, Fault]:
    """Every faulty request of ``lease`` that the pool's present state allows to make, by name."""
    own = naive.sequences.held_by(lease.lease_id)
    foreign = [
        known
        for known in naive.sequences.live.values()
        if known.lease_id != lease.lease_id and known.tenant == lease.tenant
    ]
    made = _lease_faults(naive, lease) | _admission_faults(naive, lease) | _raw_block_faults(naive, lease)
    made |= _step_faults(lease)
    if own:
        made |= _own_sequence_faults(lease, own[-1]) | _own_step_faults(naive, lease, own[-1])
    if foreign:
        made |= _foreign_sequence_faults(lease, foreign[0])
    return made


def _lease_faults(naive: NaivePool, lease: NaiveLease) -> dict[str, Fault]:
    made: dict[str, Fault] = {
        "lease unknown": (RenewLease(lease_id=LeaseId("nobody's")), LeaseExpired),
        "lease created twice": (CreateLease(lease_id=lease.lease_id, holder="", ttl_ms=5), InvalidRequest),
        "lease without time": (CreateLease(lease_id=LeaseId("new"), holder="", ttl_ms=0), InvalidRequest),
        "epoch stale": (ResetPrefixCache(epoch=naive.epoch + 1), StaleEpoch),
        "epoch stale with a lease": (RenewLease(lease_id=lease.lease_id, epoch=naive.epoch - 1), StaleEpoch),
    }
    for other in naive.leases.values():
        if other.expires_at_ms <= naive.now_ms:
            made["lease run out"] = AllocateBlocks(lease_id=other.lease_id, num_blocks=1), LeaseExpired
    return made


def _admission_faults(naive: NaivePool, lease: NaiveLease) -> dict[str, Fault]:
    new = Admission(sequence_id=NO_SEQUENCE, num_tokens=3)
    limit = naive.config.max_model_len or 0
    in_all = _num_tokens_beyond(naive.config)
    bad = {
        "no tokens": replace(new, num_tokens=0),
        "no new tokens allowed": replace(new, max_new_tokens=0),
        "negative lookahead": replace(new, num_lookahead_tokens=-1),
        "no prompt": replace(new, num_prompt_tokens=0),
        "negative encoder input": replace(new, num_encoder_tokens=-1),
        "hashes and tokens": replace(new, block_hashes=[b"x"], token_ids=[1]),
        "negative token": replace(new, token_ids=[-1]),
    }
    if limit:
        bad["too long"] = replace(new, num_tokens=limit + 1)
    made: dict[str, Fault] = {
        name: (Allocate(lease_id=lease.lease_id, admission=admission), InvalidRequest)
        for name, admission in bad.items()
    }
    made |= {
        f"{name}, in a step": (Step(lease_id=lease.lease_id, admit=[OTHER, admission]), InvalidRequest)
        for name, admission in bad.items()
    }
    made["computed tokens of a new sequence"] = (
        Allocate(lease_id=lease.lease_id, admission=new, num_computed_tokens=0),
        InvalidRequest,
    )
    if not limit and in_all:
        too_long = replace(new, num_tokens=in_all)
        made["more than the pool"] = Allocate(lease_id=lease.lease_id, admission=too_long), InsufficientBlocks
    return made


def _raw_block_faults(naive: NaivePool, lease: NaiveLease) -> dict[str, Fault]:
    def free(*block_ids: int) -> FreeBlocks:
        return FreeBlocks(lease_id=lease.lease_id, block_ids=[*lease.raw_blocks[:1], *block_ids])

    made: dict[str, Fault] = {
        "no raw blocks": (AllocateBlocks(lease_id=lease.lease_id, num_blocks=0), InvalidRequest),
        "too many raw blocks": (
            AllocateBlocks(lease_id=lease.lease_id, num_blocks=naive.config.num_blocks),
            InsufficientBlocks,
        ),
        "null block freed": (free(NULL_BLOCK), NotOwner),
        "block freed that is none": (free(naive.config.num_blocks), NotOwner),
        "negative block freed": (free(-1), NotOwner),
    }
    if naive.device.free:
        made["free block freed"] = free(naive.device.free[0]), DoubleFree
    if lease.raw_blocks:
        made["block named twice"] = free(lease.raw_blocks[0]), DoubleFree
    for other in naive.leases.values():
        if other is not lease and other.raw_blocks:
            made["another lease's block freed"] = free(other.raw_blocks[0]), NotOwner
    for sequence in naive.sequences.live.values():
        for group, table in zip(naive.config.groups, sequence.tables, strict=True):
            if not group.is_host_resident and table and table[-1] != NULL_BLOCK:
                made["a sequence's block freed"] = free(table[-1]), NotOwner
    return made


def _num_tokens_beyond(config: PoolConfig) -> int:
    """Tokens of which no sequence can have as many; 0 if none of its blocks are one for some tokens."""
    growing = [
        group.block_size
        for group in config.groups
        if num_new_blocks(group, [], num_required(group, 800, 800, 0), is_first=True) > 9
    ]
    return max(growing, default=0) * max(config.num_blocks, config.num_host_blocks or 0)


def _own_sequence_faults(lease: NaiveLease, sequence: NaiveSequence) -> dict[str, Fault]:
    known = Admission(sequence_id=sequence.sequence_id, num_tokens=sequence.num_computed)

    def allocate(admission: Admission, num_computed: int | None = None) -> Allocate:
        return Allocate(lease_id=lease.lease_id, admission=admission, num_computed_tokens=num_computed)

    def commit(num_computed: int, **content: Any) -> Commit:
        return Commit(
            lease_id=lease.lease_id,
            sequence_id=sequence.sequence_id,
            num_computed_tokens=num_computed,
            **content,
        )

    def fork(*new_ids: SequenceId) -> Fork:
        return Fork(lease_id=lease.lease_id, sequence_id=sequence.sequence_id, new_sequence_ids=new_ids)

    bad: dict[str, Command] = {
        "fewer tokens than computed": allocate(replace(known, num_tokens=sequence.num_computed - 1)),
        "more computed than granted": allocate(known, sequence.num_computed + 1),
        "less computed than committed": allocate(known, sequence.num_committed - 1),
        "commit of more than granted": commit(sequence.num_computed + 1),
        "commit of less than nothing": commit(-1),
        "fork of no id": fork(),
        "fork of one id twice": fork(NO_SEQUENCE, NO_SEQUENCE),
        "fork of its own id": fork(sequence.sequence_id),
        "too many forks": fork(*(SequenceId(f"fork {number}") for number in range(129))),
    }
    if sequence.num_forked > sequence.num_committed:
        bad["less computed than forked"] = allocate(known, sequence.num_forked - 1)
    if sequence.num_committed == 0:
        bad["extension to no tokens"] = allocate(replace(known, num_tokens=0), 0)
    if sequence.content.token_ids:
        bad["hashes after tokens"] = allocate(replace(known, block_hashes=[b"x"]))
        bad["commit with hashes after tokens"] = commit(sequence.num_computed, block_hashes=[b"x"])
    elif sequence.content.hashes:
        bad["tokens after hashes"] = allocate(replace(known, token_ids=[1]))
        bad["commit with tokens after hashes"] = commit(sequence.num_computed, token_ids=[1])
    return {name: (command, InvalidRequest) for name, command in bad.items()}


def _foreign_sequence_faults(lease: NaiveLease, foreign: NaiveSequence) -> dict[str, Fault]:
    name, handle = foreign.sequence_id, foreign.handle
    return {
        "id of another lease": (
            Allocate(lease_id=lease.lease_id, admission=Admission(sequence_id=name, num_tokens=1)),
            SequenceExistsElsewhere,
        ),
        "fork of another lease's sequence": (
            Fork(lease_id=lease.lease_id, sequence_id=name, new_sequence_ids=[NO_SEQUENCE]),
            SequenceNotFound,
        ),
        "commit of another lease's sequence": (
            Commit(lease_id=lease.lease_id, sequence_id=name, num_computed_tokens=0),
            SequenceNotFound,
        ),
        "step frees another lease's sequence": (
            Step(lease_id=lease.lease_id, free=[handle], admit=[OTHER]),
            SequenceNotFound,
        ),
    }


def _step_faults(lease: NaiveLease) -> dict[str, Fault]:
    def step(**parts: Any) -> Step:
        return Step(lease_id=lease.lease_id, **{"admit": [OTHER], **parts})

    made: dict[str, Fault] = {
        "commit of unknown sequence": (
            Commit(lease_id=lease.lease_id, sequence_id=NO_SEQUENCE, num_computed_tokens=0),
            SequenceNotFound,
        ),
        "step commits unknown handle": (
            step(commit=StepCommit(sequences=[NO_HANDLE], num_computed_tokens=[0])),
            SequenceNotFound,
        ),
        "step frees unknown handle": (step(free=[NO_HANDLE]), SequenceNotFound),
        "step extends unknown handle": (
            step(extend=StepExtend(sequences=[NO_HANDLE], num_tokens=[1])),
            SequenceNotFound,
        ),
        "step admits an id twice": (step(admit=[OTHER, OTHER]), InvalidRequest),
        "step with negative lookahead": (step(extend=StepExtend(num_lookahead_tokens=-1)), InvalidRequest),
    }
    if lease.last_step is not None and lease.last_step.step_id is not None:
        made["step_id falls"] = step(step_id=lease.last_step.step_id - 1), InvalidRequest
    return made


def _own_step_faults(naive: NaivePool, lease: NaiveLease, sequence: NaiveSequence) -> dict[str, Fault]:
    """Steps that do much that is right before their fault: none of it may stay."""
    handle, num_computed = sequence.handle, sequence.num_computed
    commit = StepCommit(sequences=[handle], num_computed_tokens=[num_computed])
    limit = naive.config.max_model_len or num_computed + 9

    def step(**parts: Any) -> Step:
        return Step(lease_id=lease.lease_id, **{"commit": commit, "admit": [OTHER], **parts})

    def extend(**parts: Any) -> Step:
        columns = {"sequences": [handle], "num_tokens": [min(num_computed + 3, limit)], **parts}
        return step(extend=StepExtend(**columns))

    again = Admission(sequence_id=sequence.sequence_id, num_tokens=1)
    bad = {
        "step commits too much": step(
            commit=StepCommit(sequences=[handle], num_computed_tokens=[num_computed + 1]), free=[handle]
        ),
        "step commits twice": step(
            commit=StepCommit(sequences=[handle] * 2, num_computed_tokens=[num_computed] * 2)
        ),
        "step commits a ragged column": step(commit=StepCommit(sequences=[handle], num_computed_tokens=[])),
        "step frees twice": step(free=[handle, handle]),
        "step frees and extends": step(
            free=[handle], extend=StepExtend(sequences=[handle], num_tokens=[num_computed])
        ),
        "step extends twice": extend(sequences=[handle] * 2, num_tokens=[num_computed] * 2),
        "step extends a ragged column": extend(num_tokens=[]),
        "step computes a ragged column": extend(num_computed_tokens=[]),
        "step extends to less": extend(num_tokens=[num_computed - 1]),
        "step takes back what it commits": extend(num_computed_tokens=[num_computed - 1]),
        "step hashes what it does not extend": extend(block_hashes={NO_HANDLE: [b"x"]}),
        "step admits what is admitted": step(admit=[OTHER, again]),
        "step frees, then admits badly": step(free=[handle], admit=[OTHER, replace(again, num_tokens=0)]),
    }
    if sequence.num_committed == 0:
        no_tokens = StepExtend(sequences=[handle], num_tokens=[0], num_computed_tokens=[0])
        bad["step extends to no tokens"] = step(commit=StepCommit(), extend=no_tokens)
    if naive.config.max_model_len is not None:
        bad["step extends too far"] = extend(num_tokens=[limit + 1])
    return {name: (command, InvalidRequest) for name, command in bad.items()}
