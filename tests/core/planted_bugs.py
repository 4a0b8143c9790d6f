"""Bugs planted in the pool, each of which the machine must find: a part of it swapped for a broken one."""

from collections.abc import Callable
from typing import Any

from blockyard.core.config import Eviction, PoolConfig
from blockyard.core.pool import Pool
from core.drawn_pools import STATE_POOLS, pool_configs
from core.planted_block_bugs import (
    CopiesNotCounted,
    DropsForgotten,
    HashesOfPartsKept,
    HashKeptOnEviction,
    HeadFirst,
    LookaheadPublished,
    NewestDuplicateFirst,
    NewestEvictedFirst,
    NullTouched,
    PublishedALittleLate,
    PublishedBlocksWrittenAnew,
    RefusalTakesBackTokens,
    RetentionForgetsReplays,
    RetentionKeepsTooLittle,
    SharedBlockReleasedTwice,
    SlotsForOneMore,
    StateHashesNotMoved,
    StatesOfOtherLengthsPublished,
    TouchedBlockStaysFree,
    UncommittedTokensDropped,
    UnsettledStatesShared,
    WatermarkForgotten,
    WindowDroppedEarly,
    break_retention,
    end_chunks_anywhere,
    hit_unripe_states,
    publish_before_commit,
    take_host_blocks_from_device,
)
from core.planted_event_bugs import EVENT_BUGS, ClearingUntold
from core.planted_eviction_bugs import (
    EVICTION_BUGS,
    CountsLostInSnapshot,
    HeadEvictedBeforeTail,
    HitsKnownWorse,
    HitsUncounted,
)
from core.planted_fork_bugs import FORK_BUGS, FreedForksStillShare, OpenForksLostInSnapshot
from core.planted_kind_bugs import KIND_BUGS, POOLS_OF_KIND_BUGS, SlidingDraftsDropNothing
from core.planted_pin_bugs import PIN_BUGS, HardPinsLostInSnapshot, PinnedEvictedFirst, PinnedLaterNotKept
from core.planted_pool_bugs import (
    CopiesHeldTooLong,
    CopiesLostInSnapshot,
    CopiesNotHeld,
    DuplicatesUnorderedInSnapshot,
    FurtherHashesLostInSnapshot,
    RawBlocksLost,
    RepeatsDone,
    ResetWhileHeld,
    StepHalfDone,
)
from core.planted_worker_bugs import WORKER_BUGS

WITH_WORKERS = {bug.__name__ for bug in WORKER_BUGS}
"""Those that show only where workers register."""

WITH_PINS = {bug.__name__ for bug in PIN_BUGS}
"""Those that show only where somebody pins."""


def swap(part: Callable[[Pool], Any], *broken: type) -> dict[str, Callable[[Pool], None]]:
    """By the name of each ``broken`` subclass, what makes a part of a pool an instance of it."""

    def planter(bug: type) -> Callable[[Pool], None]:
        def plant(pool: Pool) -> None:
            part(pool).__class__ = bug

        return plant

    return {bug.__name__: planter(bug) for bug in broken}


def has_events(config: PoolConfig) -> bool:
    """Whether a pool of ``config`` tells what it does."""
    return config.events is not None


PLANTED_BUGS = {
    **KIND_BUGS,
    **EVENT_BUGS,
    end_chunks_anywhere.__name__: end_chunks_anywhere,
    publish_before_commit.__name__: publish_before_commit,
    hit_unripe_states.__name__: hit_unripe_states,
    take_host_blocks_from_device.__name__: take_host_blocks_from_device,
    RetentionKeepsTooLittle.__name__: break_retention(RetentionKeepsTooLittle),
    RetentionForgetsReplays.__name__: break_retention(RetentionForgetsReplays),
    **swap(
        lambda pool: pool.sequences._allocator,
        HeadFirst,
        LookaheadPublished,
        WindowDroppedEarly,
        RefusalTakesBackTokens,
        PublishedBlocksWrittenAnew,
        WatermarkForgotten,
        CopiesNotCounted,
        UncommittedTokensDropped,
        StatesOfOtherLengthsPublished,
    ),
    **swap(
        lambda pool: pool.store,
        HashKeptOnEviction,
        SharedBlockReleasedTwice,
        NullTouched,
        TouchedBlockStaysFree,
        NewestEvictedFirst,
        StateHashesNotMoved,
        HashesOfPartsKept,
        UnsettledStatesShared,
        PinnedEvictedFirst,
        PinnedLaterNotKept,
    ),
    **swap(lambda pool: pool.store.index, NewestDuplicateFirst),
    **swap(lambda pool: pool.store.queue, HitsUncounted, HitsKnownWorse, HeadEvictedBeforeTail),
    **swap(lambda pool: pool.sequences._allocator.forks, *FORK_BUGS),
    **swap(
        lambda pool: pool.sequences._allocator.headroom,
        SlotsForOneMore,
        DropsForgotten,
        PublishedALittleLate,
    ),
    **swap(
        lambda pool: pool,
        RawBlocksLost,
        RepeatsDone,
        StepHalfDone,
        ResetWhileHeld,
        DuplicatesUnorderedInSnapshot,
        FurtherHashesLostInSnapshot,
        CopiesLostInSnapshot,
        CopiesNotHeld,
        CopiesHeldTooLong,
        OpenForksLostInSnapshot,
        HardPinsLostInSnapshot,
        CountsLostInSnapshot,
        *WORKER_BUGS,
    ),
}

CORRUPTING_BUGS = [
    bug.__name__
    for bug in (
        NullTouched,
        TouchedBlockStaysFree,
        RawBlocksLost,
        CopiesLostInSnapshot,
        FreedForksStillShare,
        OpenForksLostInSnapshot,
        HardPinsLostInSnapshot,
        take_host_blocks_from_device,
    )
]
"""Those that leave books which do not add up."""

POOLS_OF_BUGS = {
    **POOLS_OF_KIND_BUGS,
    **{
        bug.__name__: pool_configs(STATE_POOLS, caching=True)
        for bug in (
            end_chunks_anywhere,
            hit_unripe_states,
            CopiesNotCounted,
            StateHashesNotMoved,
            StatesOfOtherLengthsPublished,
            HashesOfPartsKept,
            FurtherHashesLostInSnapshot,
            CopiesLostInSnapshot,
            CopiesNotHeld,
            CopiesHeldTooLong,
            UnsettledStatesShared,
        )
    },
    **{
        bug.__name__: pool_configs(("sliding_window",), caching=True)
        for bug in (RetentionKeepsTooLittle, RetentionForgetsReplays)
    },
    **{
        bug.__name__: pool_configs(("full_attention",), caching=True)
        for bug in (PublishedALittleLate, RefusalTakesBackTokens, SlotsForOneMore, *FORK_BUGS, *PIN_BUGS)
    },
    OpenForksLostInSnapshot.__name__: pool_configs(("full_attention",), caching=True),
    **{
        bug.__name__: pool_configs(("full_attention",), caching=True, eviction=Eviction.ADAPTIVE)
        for bug in EVICTION_BUGS
    },
    ClearingUntold.__name__: pool_configs(("full_attention",), caching=True).filter(has_events),
    DropsForgotten.__name__: pool_configs(("sliding_window",)),
    take_host_blocks_from_device.__name__: pool_configs(host=True),
}
"""Where bugs are looked for that few of all pools would show."""

SEEDS_OF_BUGS = {
    **{bug.__name__: 1 for bug in (CopiesHeldTooLong, SlidingDraftsDropNothing)},
    CopiesLostInSnapshot.__name__: 2,
    DuplicatesUnorderedInSnapshot.__name__: 3,
    **{bug.__name__: 4 for bug in (CopiesNotCounted, RefusalTakesBackTokens)},
    **{bug.__name__: 5 for bug in (ClearingUntold, PublishedALittleLate)},
    **{bug.__name__: 6 for bug in (SlotsForOneMore, UnsettledStatesShared)},
    DropsForgotten.__name__: 8,
    OpenForksLostInSnapshot.__name__: 5,
    HardPinsLostInSnapshot.__name__: 2,
    HitsUncounted.__name__: 1,
    hit_unripe_states.__name__: 6,
}
"""Of draws that come upon a bug within a few runs, where most take hundreds."""
