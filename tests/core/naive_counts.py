"""Remembered counts without shortcuts: a list of records, searched from its end."""

NUM_TAG_BITS = 32
"""Of a mark, those that are kept beside the ones that say which slot is its."""


class NaiveCounts:
    """The latest ``max_records`` records, each of a mark and a count, the newest last."""

    def __init__(self, max_records: int) -> None:
        self.max_records = max_records
        self.num_slot_bits = max_records.bit_length()
        self.records: list[tuple[int, int]] = []

    def keep(self, mark: int, count: int) -> None:
        self.records = [*self.records, (mark, count)][-self.max_records :]

    def recall(self, mark: int) -> int:
        """That of the newest record of its slot, if that is its own; else 0."""
        for own, count in reversed(self.records):
            if (own - mark) % 2**self.num_slot_bits == 0:
                is_own = (own - mark) % 2 ** (self.num_slot_bits + NUM_TAG_BITS) == 0
                return count if is_own else 0
        return 0
