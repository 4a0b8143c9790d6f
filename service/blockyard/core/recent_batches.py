"""The last batches of a pool's events, for whoever missed some of them."""

from collections import deque

from blockyard.core.kv_batch import Batch, BlocksStored

MAX_BATCHES = 10_000
MAX_HASHES = 1_000_000
"""Of all batches that are kept together."""


class RecentBatches:
    """The last batches, as many as may be kept: when there is no room, the oldest go.

    Args:
        max_batches: At most so many.
        max_hashes: With so many hashes together, but always the last one.
    """

    __slots__ = ("_batches", "_max_batches", "_max_hashes", "_num_hashes", "_sizes")

    def __init__(self, max_batches: int = MAX_BATCHES, max_hashes: int = MAX_HASHES) -> None:
        self._max_batches = max_batches
        self._max_hashes = max_hashes
        self._num_hashes = 0
        self._batches: deque[Batch] = deque()
        self._sizes: deque[int] = deque()

    def append(self, batch: Batch) -> None:
        """Keep ``batch``, which follows the one before."""
        batches, sizes = self._batches, self._sizes
        num_hashes = len(batch.events)
        for event in batch.events:
            if isinstance(event, BlocksStored):
                num_hashes += len(event.blocks) - 1
        batches.append(batch)
        sizes.append(num_hashes)
        self._num_hashes += num_hashes
        while len(batches) > self._max_batches or (self._num_hashes > self._max_hashes and len(batches) > 1):
            batches.popleft()
            self._num_hashes -= sizes.popleft()

    def since(self, number: int, at_most: int, max_hashes: int | None = None) -> list[Batch]:
        """Those from ``number`` on, or from the oldest that is kept.

        With ``max_hashes``, as many as have no more together, but one at least, if there is one.
        """
        batches = self._batches
        first = max(number - batches[0].number, 0) if batches else 0
        # By index from the end, where those lie that are asked for most: cheap there in a deque.
        places = range(first - len(batches), min(first + at_most - len(batches), 0))
        if max_hashes is None:
            return [batches[place] for place in places]
        found: list[Batch] = []
        num_hashes = 0
        for place in places:
            num_hashes += self._sizes[place]
            if found and num_hashes > max_hashes:
                break
            found.append(batches[place])
        return found

    @property
    def first_number(self) -> int | None:
        """Of the oldest that is kept; None where there is none."""
        return self._batches[0].number if self._batches else None

    def take(self) -> list[Batch]:
        """All of them, which are kept no longer."""
        taken = list(self._batches)
        self._batches.clear()
        self._sizes.clear()
        self._num_hashes = 0
        return taken
