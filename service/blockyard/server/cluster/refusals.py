"""What is said where no node answers for a pool now: all of it may be tried again."""

from blockyard.core.errors import NotReady

MOVING_MS = 50
"""When a pool on its way from one node to another may be asked for again."""
MAKING_MS = 100
"""When another try at making a pool may succeed."""


def moving() -> NotReady:
    """What is said of a pool that no node answers for now."""
    return NotReady(
        "no node answers for the pool now: it is being taken over, or NATS is out of reach. Whether this was "
        "done is not known; repeat it, under the same idempotency key",
        {"retry_after_ms": MOVING_MS},
    )


def made_by_another(name: str) -> NotReady:
    """What is said to whoever makes a pool of this name at the same time as another."""
    return NotReady(
        f"another has just made a pool of the name {name!r}: try again", {"retry_after_ms": MAKING_MS}
    )


def no_maker() -> NotReady:
    """What is said to whoever makes a pool while no node can."""
    return NotReady("no node makes pools now: try again", {"retry_after_ms": MAKING_MS})
