"""Figures of a pool that people watch."""

from collections import deque
from dataclasses import dataclass

WINDOW_REQUESTS = 1_000
"""Requests that the hit rate looks back on."""


class HitWindow:
    """Tokens asked for and found by the last `WINDOW_REQUESTS` admissions that looked for a cached prefix."""

    __slots__ = ("_num_hit_tokens", "_num_queried_tokens", "_requests")

    def __init__(self) -> None:
        self._requests: deque[tuple[int, int]] = deque()
        self._num_queried_tokens = 0
        self._num_hit_tokens = 0

    def add(self, num_queried_tokens: int, num_hit_tokens: int) -> None:
        """Count one admission."""
        self._requests.append((num_queried_tokens, num_hit_tokens))
        self._num_queried_tokens += num_queried_tokens
        self._num_hit_tokens += num_hit_tokens
        if len(self._requests) > WINDOW_REQUESTS:
            queried, hit = self._requests.popleft()
            self._num_queried_tokens -= queried
            self._num_hit_tokens -= hit

    @property
    def hit_rate(self) -> float | None:
        """Share of the tokens that were found, 0 to 1; None while nothing was asked for."""
        return self._num_hit_tokens / self._num_queried_tokens if self._requests else None

    def clear(self) -> None:
        """Begin anew, as nothing is cached any more."""
        self._requests.clear()
        self._num_queried_tokens = self._num_hit_tokens = 0

    def to_state(self) -> list[list[int]]:
        """The window as plain data, the oldest request first."""
        return [list(request) for request in self._requests]

    @classmethod
    def from_state(cls, state: list[list[int]]) -> "HitWindow":
        """The window that ``state`` was taken from."""
        window = cls()
        for queried, hit in state:
            window.add(queried, hit)
        return window


@dataclass(slots=True)
class Counters:
    """What has happened in a pool's life. Each only ever rises."""

    num_admitted_sequences: int = 0
    num_freed_sequences: int = 0
    num_refused_allocations: int = 0
    num_queried_tokens: int = 0
    num_hit_tokens: int = 0
    num_granted_tokens: int = 0
    num_published_blocks: int = 0
    num_evicted_blocks: int = 0
    num_created_leases: int = 0
    num_expired_leases: int = 0
    num_steps: int = 0
    num_prefix_cache_resets: int = 0
    num_event_batches: int = 0
    num_forked_sequences: int = 0

    def to_state(self) -> dict[str, int]:
        """The counters as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A pool at one moment.

    Attributes:
        num_blocks: All blocks, the null block included.
        num_free_blocks: In the free queue, with or without content.
        num_held_blocks: Held by at least one sequence or lease.
        num_cached_blocks: With published content, held or free.
        num_pins: Live ones.
        num_soft_pinned_blocks: With content that soft pins keep, held or free.
        num_hard_pinned_blocks: Held by hard pins.
        num_host_blocks: Blocks in host memory, their null block included; None where no group lies there.
        num_free_host_blocks: Of these, those in the free queue.
        usage: Share of the blocks that are held, 0 to 1; the null block does not count.
        num_workers: Registered, lost ones included.
        num_lost_workers: Those that have been silent for too long.
        hit_rate: See `HitWindow.hit_rate`.
        eviction: One of `blockyard.core.config.Eviction`.
        eviction_weight: What use counts for against recency among the device's blocks, as the adaptive policy
            has found it: 0 is least recently used. None for `lru`.
        counters: See `Counters`.
    """

    epoch: int
    num_blocks: int
    num_free_blocks: int
    num_held_blocks: int
    num_cached_blocks: int
    num_host_blocks: int | None
    num_free_host_blocks: int | None
    usage: float
    hit_rate: float | None
    eviction: str
    eviction_weight: float | None
    num_sequences: int
    num_leases: int
    num_pins: int
    num_soft_pinned_blocks: int
    num_hard_pinned_blocks: int
    num_workers: int
    num_lost_workers: int
    counters: dict[str, int]
