"""Entries of a step that the server has named as not valid, and the step without them.

A step is done whole or not at all. So one sequence that can never be admitted would hold back all others,
were it not left out:

    admit.1.num_tokens: 200 is above the pool's max_model_len, 100
    |----| whose entry  |--------- why, which is told to the caller
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import TypeVar

from blockyard.client.prepared_step import PreparedStep
from blockyard.client.tracked import Tracked
from blockyard.core.commands import StepExtend
from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.core.ids import SequenceHandle
from blockyard.core.replies import Refused

T = TypeVar("T")

_FIELD_OF_ENTRY = re.compile(r"(extend|admit)\.(\d+)\.(.+)")


def without_faults(
    step: PreparedStep, error: BlockyardError, next_step_id: Callable[[], int]
) -> PreparedStep | None:
    """What is left of a step that was refused with ``error``, under a number of its own.

    Each sequence that ``error`` names is marked with its refusal. None if it names none.
    """
    faults = _faults_of(step, error)
    for tracked, refusal in faults.items():
        tracked.refusal = refusal
    return _without(step, faults, next_step_id()) if faults else None


def _faults_of(step: PreparedStep, error: BlockyardError) -> dict[Tracked, Refused]:
    if not isinstance(error, InvalidRequest):
        return {}
    columns = {"extend": [extension.tracked for extension in step.extended], "admit": step.admitted}
    faults: dict[Tracked, Refused] = {}
    for found in error.figures.get("errors", ()):
        named = _FIELD_OF_ENTRY.fullmatch(found["field"])
        if named is not None and int(named[2]) < len(columns[named[1]]):
            tracked = columns[named[1]][int(named[2])]
            faults[tracked] = Refused(code=error.code, detail=f"{named[3]}: {found['message']}")
    return faults


def _without(step: PreparedStep, refused: Mapping[Tracked, Refused], step_id: int) -> PreparedStep:
    is_extended = [extension.tracked not in refused for extension in step.extended]
    is_admitted = [tracked not in refused for tracked in step.admitted]
    return replace(
        step,
        step_id=step_id,
        extend=_columns_of(step.extend, is_extended),
        admit=_kept(step.admit, is_admitted),
        extended=_kept(step.extended, is_extended),
        admitted=_kept(step.admitted, is_admitted),
        refused={**step.refused, **refused},
    )


def _columns_of(extend: StepExtend, is_kept: Sequence[bool]) -> StepExtend:
    computed, sequences = extend.num_computed_tokens, _kept(extend.sequences, is_kept)
    return StepExtend(
        sequences=sequences,
        num_tokens=_kept(extend.num_tokens, is_kept),
        num_computed_tokens=None if computed is None else _kept(computed, is_kept),
        num_lookahead_tokens=extend.num_lookahead_tokens,
        block_hashes=_entries_of(sequences, extend.block_hashes),
        event_token_ids=_entries_of(sequences, extend.event_token_ids),
    )


def _entries_of(
    sequences: Iterable[SequenceHandle], column: Mapping[SequenceHandle, T]
) -> dict[SequenceHandle, T]:
    return {handle: column[handle] for handle in sequences if handle in column}


def _kept(column: Iterable[T], is_kept: Sequence[bool]) -> list[T]:
    return list(compress(column, is_kept))
