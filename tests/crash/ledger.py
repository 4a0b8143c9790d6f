"""What a client's log adds up to: the leases that it was given, what they hold, and the call left open.

Kept from calls and answers alone, so that it can be compared with a server that has been killed meanwhile.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crash.calls import Answer, Call, Verb

NUM_REPEATED = 16
"""Calls of a lease that are repeated after a restart: of the last 256, whose answers it remembers."""
NUM_MISSED = 12
"""Sequences of a lease, freed last, that are looked for after a restart. All others are counted."""

INSUFFICIENT, EXPIRED = ("insufficient_blocks", "quota_exceeded"), "lease_expired"


@dataclass(slots=True, kw_only=True)
class HeldSequence:
    """``block_ids``: per group, all that were ever appended. ``block_hashes``: of its full blocks."""

    sequence_id: str
    handle: int
    num_tokens: int
    num_committed_tokens: int
    block_hashes: list[str]
    block_ids: list[list[int]]

    def commit(self, num_tokens: int) -> None:
        self.num_committed_tokens = max(self.num_committed_tokens, num_tokens)

    def grow(self, num_tokens: int, block_hashes: Sequence[str], block_ids: list[list[int]]) -> None:
        self.num_tokens = num_tokens
        self.block_hashes += block_hashes
        for table, appended in zip(self.block_ids, block_ids, strict=True):
            table.extend(appended)


@dataclass(slots=True, kw_only=True)
class LeaseBook:
    """``granted``: the call that made it, and its answer. ``last_step``: likewise; the last with an id."""

    pool: str
    lease_id: str
    granted: tuple[Call, Answer]
    sequences: dict[str, HeldSequence] = field(default_factory=dict)
    raw_blocks: dict[int, None] = field(default_factory=dict)
    recent: deque[tuple[Call, Answer]] = field(default_factory=lambda: deque(maxlen=NUM_REPEATED))
    freed: deque[str] = field(default_factory=lambda: deque(maxlen=NUM_MISSED))
    last_step: tuple[Call, Answer] | None = None

    @property
    def next_step_id(self) -> int:
        return 1 if self.last_step is None else self.last_step[0].body["step_id"] + 1

    def allocate(self, asked: dict[str, Any], told: dict[str, Any]) -> None:
        """A sequence was given blocks: its first, or more."""
        known = self.sequences.get(asked["sequence_id"])
        if known is not None:
            known.grow(asked["num_tokens"], asked["block_hashes"], told["block_ids"])
            return
        self.sequences[asked["sequence_id"]] = HeldSequence(
            sequence_id=asked["sequence_id"],
            handle=told["sequence"],
            num_tokens=asked["num_tokens"],
            num_committed_tokens=told["num_cached_tokens"],
            block_hashes=list(asked["block_hashes"]),
            block_ids=[list(table) for table in told["block_ids"]],
        )

    def free(self, sequence_ids: Sequence[str]) -> None:
        for sequence_id in sequence_ids:
            del self.sequences[sequence_id]
            self.freed.append(sequence_id)

    def by_handle(self, handle: int) -> HeldSequence:
        return next(held for held in self.sequences.values() if held.handle == handle)


class Ledger:
    """Nothing at first.

    Attributes:
        leases: Those that stand, by their ids.
        released: The last of those that were given back.
        pending: Sent, and not answered: whether it was carried out is not known.
        complaints: Answers that no server may give.
        counts: What was done how often.
    """

    def __init__(self) -> None:
        self.leases: dict[str, LeaseBook] = {}
        self.released: deque[LeaseBook] = deque(maxlen=4)
        self.pending: Call | None = None
        self.complaints: list[str] = []
        self.counts: Counter[str] = Counter()

    def note(self, entry: Call | Answer) -> None:
        """The log's next line."""
        if isinstance(entry, Call):
            self.pending = entry
            return
        call, self.pending = self.pending, None
        assert call is not None
        assert call.number == entry.number
        self._note_answer(call, entry)

    def _note_answer(self, call: Call, answer: Answer) -> None:
        self.counts[f"{call.verb} answered"] += 1
        self.counts["answered in a later try"] += answer.num_tries > 1
        is_known_release = call.verb is Verb.RELEASE and answer.num_tries > 1 and _code(answer) == EXPIRED
        if not (answer.is_success or is_known_release):
            self._note_refusal(call, answer)
        elif call.verb is Verb.LEASE:
            lease_id = answer.body["lease_id"]
            self.leases[lease_id] = LeaseBook(pool=call.pool, lease_id=lease_id, granted=(call, answer))
        elif call.verb is Verb.RELEASE:
            book = self.leases.pop(str(call.lease_id))
            book.freed.extend(book.sequences)
            self.released.append(book)
        if call.verb not in (Verb.LEASE, Verb.RELEASE):
            book = self.leases[str(call.lease_id)]
            if answer.is_success or "wait_ms" not in call.body:  # else a repeat waits anew
                book.recent.append((call, answer))
            if answer.is_success:
                self._note_done(book, call, answer)

    def _note_refusal(self, call: Call, answer: Answer) -> None:
        if _code(answer) in INSUFFICIENT and call.verb in (Verb.ALLOCATE, Verb.TAKE):
            self.counts["refused for want of blocks"] += 1
            self.counts["refused after a wait"] += "wait_ms" in call.body
        else:
            self.complaints.append(f"{call} was answered {answer.status} {answer.body}")

    def _note_done(self, book: LeaseBook, call: Call, answer: Answer) -> None:
        asked, told = call.body, answer.body
        match call.verb:
            case Verb.ALLOCATE:
                book.allocate(asked, told)
            case Verb.COMMIT:
                book.sequences[asked["sequence_id"]].commit(asked["num_computed_tokens"])
            case Verb.FREE:
                if told["unknown"]:
                    self.complaints.append(f"{call}: the server did not know {told['unknown']}")
                book.free(asked["sequence_ids"])
            case Verb.STEP:
                self._note_step(book, call, answer)
            case Verb.TAKE:
                book.raw_blocks.update(dict.fromkeys(told["block_ids"]))
            case Verb.GIVE:
                given = asked["block_ids"]
                book.raw_blocks = {block: None for block in book.raw_blocks if block not in given}

    def _note_step(self, book: LeaseBook, call: Call, answer: Answer) -> None:
        asked, told = call.body, answer.body
        book.last_step = (call, answer)
        for handle, count in zip(*asked["commit"].values(), strict=True):
            book.by_handle(handle).commit(count)
        book.free([book.by_handle(handle).sequence_id for handle in asked["free"]["sequences"]])
        extend = asked["extend"]
        num_tokens = dict(zip(extend["sequences"], extend["num_tokens"], strict=True))
        extended = told["extend"]
        self.counts["refused for want of blocks"] += len(extended["insufficient"])
        for handle, block_ids in zip(extended["sequences"], extended["block_ids"], strict=True):
            book.by_handle(handle).grow(num_tokens[handle], extend["block_hashes"][str(handle)], block_ids)
        for admission, admitted in zip(asked["admit"], told["admit"], strict=True):
            if "code" not in admitted:
                book.allocate(admission, admitted)
            elif admitted["code"] in INSUFFICIENT:
                self.counts["refused for want of blocks"] += 1
            else:
                self.complaints.append(f"{call}: the server refused {admitted}")


def _code(answer: Answer) -> Any:
    return answer.body.get("code")
