"""What a tenant may count on of a pool's blocks, and how far it may go."""

from dataclasses import dataclass

from blockyard.core.errors import InvalidRequest

MAX_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a tenant may count on, and how far it may go.

    Attributes:
        guaranteed_blocks: So many it can always hold, whatever the others do.
        max_blocks: More it never holds; None for no bound.
        weight: Its share, beside the others', of what comes free while several wait.
    """

    guaranteed_blocks: int = 0
    max_blocks: int | None = None
    weight: int = 1

    def check(self, num_promisable: int) -> None:
        """Refuse figures that no pool can keep.

        Args:
            num_promisable: Blocks that are promised to nobody else.

        Raises:
            InvalidRequest: One is out of range, or too much would be promised.
        """
        if not 0 <= self.guaranteed_blocks <= num_promisable:
            raise InvalidRequest.of(
                "guaranteed_blocks",
                f"must be 0 to {num_promisable}: the others' guarantees leave no more of the pool's blocks",
            )
        if self.max_blocks is not None and self.max_blocks < self.guaranteed_blocks:
            raise InvalidRequest.of("max_blocks", f"is below guaranteed_blocks, {self.guaranteed_blocks}")
        if not 1 <= self.weight <= MAX_WEIGHT:
            raise InvalidRequest.of("weight", f"must be 1 to {MAX_WEIGHT}")


NO_QUOTA = Quota()
