"""What a sequence does when one caller calls at a time: the model that histories are held to.

Its pool has one group of full attention; the content of a sequence is its own, always the same, and known by
its block hashes, or not known at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cluster.linearizability import Model
from crash.calls import Answer, Call, Verb
from crash.drawn_pools import BLOCK_SIZE

Blocks = tuple[int | None, ...]
"""Of a table; None for one that nobody was told of yet."""

OK, NOT_FOUND, CONFLICT, INVALID = 200, 404, 409, 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A sequence that was begun. ``num_committed`` is None where nobody was told how much was cached."""

    handle: int | None
    num_tokens: int
    num_committed: int | None
    num_hashes: int
    blocks: Blocks


@dataclass(frozen=True, slots=True)
class SequenceState:
    """``num_published``: tokens of its content that were ever computed, and may be found until evicted."""

    standing: Standing | None = None
    num_published: int = 0


class SequenceModel(Model[SequenceState, Call, Answer]):
    """Of one sequence. What an unknown outcome would have told stays open, to be bound by a later call."""

    @property
    def initial(self) -> SequenceState:
        """Not begun, and nothing of it cached."""
        return SequenceState()

    def step(self, state: SequenceState, asked: Call, told: Answer | None) -> SequenceState | None:
        """As `Model.step`."""
        if told is not None and told.code == "insufficient_blocks" and asked.verb is Verb.ALLOCATE:
            return state
        return _STEPS[asked.verb](state, asked.body, told)


def num_blocks(num_tokens: int) -> int:
    """That so many tokens take."""
    return -(-num_tokens // BLOCK_SIZE)


def _full(num_tokens: int) -> int:
    return num_tokens // BLOCK_SIZE * BLOCK_SIZE


def _refused(state: SequenceState, told: Answer | None, status: int) -> SequenceState | None:
    return state if told is None or told.status == status else None


def _allocated(state: SequenceState, asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    if state.standing is None:
        return _begun(state, asked, told)
    return _extended(state, state.standing, asked, told)


def _begun(state: SequenceState, asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    num_tokens, num_hashes = asked["num_tokens"], len(asked["block_hashes"])
    if told is None:
        blocks: Blocks = (None,) * num_blocks(num_tokens)
        standing = Standing(
            handle=None,
            num_tokens=num_tokens,
            num_committed=None if num_hashes and state.num_published else 0,
            num_hashes=num_hashes,
            blocks=blocks,
        )
        return replace(state, standing=standing)
    if told.status != OK:
        return None
    (block_ids,) = told.body["block_ids"]
    num_cached = told.body.get("num_cached_tokens")  # there is none where it was taken for an extension
    most = min(state.num_published, _full(num_tokens - 1), num_hashes * BLOCK_SIZE)
    is_possible = (
        num_cached is not None
        and 0 <= num_cached <= most
        and told.body["num_new_tokens"] == num_tokens - num_cached
        and len(block_ids) == num_blocks(num_tokens)
    )
    if not is_possible:
        return None
    standing = Standing(
        handle=told.body["sequence"],
        num_tokens=num_tokens,
        num_committed=num_cached,
        num_hashes=num_hashes,
        blocks=tuple(block_ids),
    )
    return replace(state, standing=standing)


def _extended(
    state: SequenceState, standing: Standing, asked: Mapping[str, Any], told: Answer | None
) -> SequenceState | None:
    num_tokens, num_hashes = asked["num_tokens"], len(asked["block_hashes"])
    if num_tokens < standing.num_tokens:
        return _refused(state, told, INVALID)
    num_more = num_blocks(num_tokens) - len(standing.blocks)
    handle, more = standing.handle, (None,) * num_more
    if told is not None:
        if told.status != OK:
            return None
        (block_ids,) = told.body["block_ids"]
        if handle not in (None, told.body["sequence"]) or len(block_ids) != num_more:
            return None
        if told.body.get("num_cached_tokens") is not None:
            return None  # it was taken for a new one
        if told.body["num_new_tokens"] != num_tokens - standing.num_tokens:
            return None
        handle, more = told.body["sequence"], tuple(block_ids)
    grown = replace(
        standing,
        handle=handle,
        num_tokens=num_tokens,
        num_hashes=standing.num_hashes + num_hashes,
        blocks=standing.blocks + more,
    )
    return _published(state, grown)


def _committed(state: SequenceState, asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    standing, count = state.standing, asked["num_computed_tokens"]
    if standing is None:
        return _refused(state, told, NOT_FOUND)
    if count > standing.num_tokens:
        return _refused(state, told, INVALID)
    if told is not None and told.status != OK:
        return None
    if standing.num_committed is not None:
        standing = replace(standing, num_committed=max(standing.num_committed, count))
    return _published(state, standing, count)


def _published(state: SequenceState, standing: Standing, at_least: int = 0) -> SequenceState:
    computed = min(max(standing.num_committed or 0, at_least), standing.num_hashes * BLOCK_SIZE)
    return SequenceState(standing, max(state.num_published, _full(computed)))


def _freed(state: SequenceState, _asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    if told is not None:
        is_known = state.standing is not None
        if told.status != OK or bool(told.body["unknown"]) is is_known:
            return None
    return replace(state, standing=None)


def _read(state: SequenceState, _asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    standing = state.standing
    if standing is None or told is None:
        return _refused(state, told, NOT_FOUND)
    if told.status != OK:
        return None
    (block_ids,) = told.body["block_ids"]
    seen = Standing(
        handle=told.body["sequence"],
        num_tokens=told.body["num_tokens"],
        num_committed=told.body["num_committed_tokens"],
        num_hashes=standing.num_hashes,
        blocks=tuple(block_ids),
    )
    is_so = (
        seen.num_tokens == standing.num_tokens
        and standing.handle in (None, seen.handle)
        and standing.num_committed in (None, seen.num_committed)
        and len(seen.blocks) == len(standing.blocks)
        and all(known in (None, found) for known, found in zip(standing.blocks, seen.blocks, strict=True))
    )
    return _published(state, seen) if is_so else None


def _looked_up(state: SequenceState, asked: Mapping[str, Any], told: Answer | None) -> SequenceState | None:
    """Blocks of a sequence that stands are not evicted: what it has published is found."""
    if told is None:
        return state
    if told.status != OK:
        return None
    longest = min(_full(asked["num_tokens"] - 1), len(asked["block_hashes"]) * BLOCK_SIZE)
    standing = state.standing
    sure = 0
    if standing is not None:
        sure = _full(min(standing.num_committed or 0, standing.num_hashes * BLOCK_SIZE))
    is_so = min(sure, longest) <= told.body["num_cached_tokens"] <= min(state.num_published, longest)
    return state if is_so else None


_STEPS = {
    Verb.ALLOCATE: _allocated,
    Verb.COMMIT: _committed,
    Verb.FREE: _freed,
    Verb.READ: _read,
    Verb.LOOKUP: _looked_up,
}
