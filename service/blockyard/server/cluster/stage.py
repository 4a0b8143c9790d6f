"""Where a node is with a pool.

loading -> following -> owning -> suspended     no lease: nobody is told anything, the journal goes on
   ^          ^  |         |  ^------'          a lease again, and no other owner since
   |          |  '-take over
   |          '--hand over-'
   '---- lost: another owns it; or what was read cannot be gone on with
"""

from enum import Enum


class Stage(Enum):
    """Of one pool, on one node."""

    MAKING = "making"
    """It makes the pool."""
    LOADING = "loading"
    """It reads what there is; there is no state yet."""
    FOLLOWING = "following"
    """It applies what the owner publishes."""
    TAKING_OVER = "taking over"
    """It follows, and asks to be the next owner."""
    OWNING = "owning"
    """It answers for the pool."""
    SUSPENDED = "suspended"
    """It owned the pool when its lease ended."""
    LEAVING = "leaving"
    """It owned the pool until now, and writes down that it hands it over, or deletes it."""

    @property
    def is_waiting(self) -> bool:
        """Whether the node is nothing to the pool that others rely on: it may stop to be anything."""
        return self in (Stage.LOADING, Stage.FOLLOWING)
