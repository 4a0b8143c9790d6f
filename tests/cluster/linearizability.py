"""Is there an order in which calls made at the same time can have been carried out, one after the other?

Each takes effect at one moment between its begin and its end; one without an answer at any moment after its
begin, or never. `check` looks for such an order: Wing and Gong's search, with Lowe's memory of what was seen.

    a   |-----write 1-----|                       linearizable: write 1, read 1, write 2, read 2
    b        |--read 1--|    |----write 2----|
    c                           |--read 2--|

Source: Wing and Gong, "Testing and Verifying Concurrent Objects" (1993); Lowe, "Testing for Linearizability"
(2017).
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Asked = TypeVar("Asked")
Told = TypeVar("Told")


class Model(ABC, Generic[State, Asked, Told]):
    """What an object does when it is called by one caller alone."""

    @property
    @abstractmethod
    def initial(self) -> State:
        """Its state before the first call."""

    @abstractmethod
    def step(self, state: State, asked: Asked, told: Told | None) -> State | None:
        """The state after a call that was told ``told`` (None: nobody knows what); None if it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Asked, Told]):
    """A call. Without an answer ``ended_ns`` and ``told`` are None."""

    began_ns: int
    ended_ns: int | None
    asked: Asked
    told: Told | None

    def __str__(self) -> str:
        took = "open" if self.ended_ns is None else f"{(self.ended_ns - self.began_ns) / 1e6:.1f} ms"
        return f"at {self.began_ns / 1e9:.4f} s ({took}): {self.asked} -> {self.told}"


@dataclass(frozen=True, slots=True)
class Stuck(Generic[State, Asked, Told]):
    """There is no order. The longest that was found came to ``state``, and ``next`` did not fit there."""

    num_ordered: int
    state: State
    next: tuple[Operation[Asked, Told], ...]

    def __str__(self) -> str:
        fits_not = "; ".join(map(str, self.next))
        return f"{self.num_ordered} calls lead to {self.state}, where no other goes on: {fits_not}"


class _Event:
    """The begin of a call, or its end, in a list of both by time, from which ordered calls are taken out."""

    __slots__ = ("after", "before", "end", "number")

    def __init__(self, number: int, end: "_Event | None" = None) -> None:
        self.number = number
        self.end = end
        self.before: _Event | None = None
        self.after: _Event | None = None

    @property
    def is_begin(self) -> bool:
        return self.end is not self

    def take_out(self) -> None:
        assert self.before is not None
        self.before.after = self.after
        if self.after is not None:
            self.after.before = self.before

    def put_back(self) -> None:
        assert self.before is not None
        self.before.after = self
        if self.after is not None:
            self.after.before = self


def check(
    model: Model[State, Asked, Told], history: Iterable[Operation[Asked, Told]]
) -> Stuck[State, Asked, Told] | None:
    """None if ``history`` is linearizable, or else where the search got stuck."""
    operations = sorted(history, key=lambda operation: operation.began_ns)
    return _Search(model, operations).run()


class _Search(Generic[State, Asked, Told]):
    """``operations`` in the order in which they began.

    What was ordered is known by ``low``, up to which all are, and the bits of ``high`` for those from there:
    so it stays small, however long the history.
    """

    def __init__(
        self, model: Model[State, Asked, Told], operations: Sequence[Operation[Asked, Told]]
    ) -> None:
        self._model = model
        self._operations = operations
        self._head = _events(operations)
        self._num_closed = sum(operation.ended_ns is not None for operation in operations)
        self._low, self._high = 0, 0
        self._seen: set[tuple[int, int, State]] = set()
        self._best: tuple[int, State, tuple[int, ...]] = (-1, model.initial, ())

    def run(self) -> Stuck[State, Asked, Told] | None:
        state, num_left = self._model.initial, self._num_closed
        taken: list[tuple[_Event, State, int, int, int]] = []
        event = self._head.after
        while num_left:
            assert event is not None, "the end of a call that is left is in the list"
            if event.is_begin:
                operation = self._operations[event.number]
                after = self._model.step(state, operation.asked, operation.told)
                if after is not None and self._is_new(event.number, after):
                    taken.append((event, state, self._low, self._high, num_left))
                    self._add(event.number)
                    state = after
                    self._lift(event)
                    num_left -= operation.ended_ns is not None
                    event = self._head.after
                else:
                    event = event.after
                continue
            self._note(len(taken), state)  # a call ends here that fits nowhere before
            if not taken:
                return self._stuck()
            event, state, self._low, self._high, num_left = taken.pop()
            self._unlift(event)
            event = event.after
        return None

    def _is_new(self, number: int, state: State) -> bool:
        low, high = _added(self._low, self._high, number)
        if (low, high, state) in self._seen:
            return False
        self._seen.add((low, high, state))
        return True

    def _add(self, number: int) -> None:
        self._low, self._high = _added(self._low, self._high, number)

    @staticmethod
    def _lift(event: _Event) -> None:
        event.take_out()
        if event.end is not None:
            event.end.take_out()

    @staticmethod
    def _unlift(event: _Event) -> None:
        if event.end is not None:
            event.end.put_back()
        event.put_back()

    def _note(self, num_ordered: int, state: State) -> None:
        if num_ordered > self._best[0]:
            begun: list[int] = []
            event = self._head.after
            while event is not None and event.is_begin:
                begun.append(event.number)
                event = event.after
            self._best = (num_ordered, state, tuple(begun))

    def _stuck(self) -> Stuck[State, Asked, Told]:
        num_ordered, state, begun = self._best
        return Stuck(num_ordered, state, tuple(self._operations[number] for number in begun))


def _added(low: int, high: int, number: int) -> tuple[int, int]:
    high |= 1 << (number - low)
    while high & 1:
        high >>= 1
        low += 1
    return low, high


def _events(operations: Sequence[Operation[Asked, Told]]) -> _Event:
    """What stands before the first. Where a begin and an end are at one time, the begin is first."""
    timed: list[tuple[int, bool, int, _Event]] = []
    for number, operation in enumerate(operations):
        end: _Event | None = None
        if operation.ended_ns is not None:
            end = _Event(number)
            end.end = end
            timed.append((operation.ended_ns, True, number, end))
        timed.append((operation.began_ns, False, number, _Event(number, end)))
    timed.sort(key=lambda each: each[:3])
    head = last = _Event(-1)
    for _, _, _, event in timed:
        last.after, event.before = event, last
        last = event
    return head
