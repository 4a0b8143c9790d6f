"""The scheduler process's connection to whichever worker process is alive."""

from multiprocessing.connection import Connection, Listener
from types import TracebackType
from typing import Self

from examples.two_processes.messages import Batch, Computed, Ready


class WorkerLost(Exception):
    """The worker process went away; whether it computed its last batch is unknown."""


class WorkerLink:
    """Listens at ``address``, where a worker process connects, and its successor after its death."""

    def __init__(self, address: str) -> None:
        self._listener = Listener(address, family="AF_UNIX")
        self._connection: Connection | None = None

    def wait_for_worker(self) -> None:
        """Hang up on the last one, if any, and wait for the first word of the next."""
        self._hang_up()
        while True:
            self._connection = self._listener.accept()
            try:
                ready = self._connection.recv()
            except (EOFError, OSError):  # it died again at once
                self._hang_up()
            else:
                assert isinstance(ready, Ready), "a worker's first word"
                return

    def compute(self, batch: Batch) -> Computed:
        """Have ``batch`` computed.

        Raises:
            WorkerLost: See `wait_for_worker`.
        """
        assert self._connection is not None, "a worker was waited for"
        try:
            self._connection.send(batch)
            computed: Computed = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerLost from error
        return computed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hang_up()
        self._listener.close()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
