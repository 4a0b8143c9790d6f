"""Remembered counts without shortcuts: a list of records, searched from its end."""

MARK_MASK = 2**57 - 1
"""So much of a mark a record keeps."""

MAX_CHAIN = 8
"""Records that are found of those in one slot: the newest ones."""


class NaiveCounts:
    """The latest ``max_records`` records, each of a mark and a count, the newest last."""

    def __init__(self, max_records: int) -> None:
        self.max_records = max_records
        self.num_slots = 1 << (max_records - 1).bit_length()
        self.records: list[tuple[int, int]] = []

    def keep(self, mark: int, count: int) -> None:
        self.records = [*self.records, (mark & MARK_MASK, count)][-self.max_records :]

    def recall(self, mark: int) -> int:
        """The newest count; 0 where none is found."""
        in_slot = [each for each in self.records if (each[0] - mark) % self.num_slots == 0]
        found = [count for own, count in in_slot[-MAX_CHAIN:] if own == mark & MARK_MASK]
        return found[-1] if found else 0
