"""The server with a fault planted: a node that takes its lease to last for ever, once it has one.

It is there for one test, which holds that the checks find what such a node answers.
"""

from blockyard.server.cluster import node
from blockyard.server.cluster.lease import Lease
from blockyard.server.command_line import main


class EndlessLease(Lease):
    """Never over, whatever the clock says or another node has found."""

    __slots__ = ("_was_renewed",)

    def __init__(self, duration_ms: int) -> None:
        super().__init__(duration_ms)
        self._was_renewed = False

    def renew(self, sent_ns: int) -> None:
        """As `Lease.renew`."""
        super().renew(sent_ns)
        self._was_renewed = True

    def end(self) -> None:
        """It is not."""

    @property
    def holds(self) -> bool:
        """Once it was renewed."""
        return self._was_renewed


if __name__ == "__main__":
    vars(node)["Lease"] = EndlessLease
    main()
