"""Is all that clients were answered still so? What their logs add up to, beside what a server says now.

It reads audits, figures and sequences, and repeats calls that were answered before. Nobody else may call the
server meanwhile. A call that was left open may have been done or not, and what it names may be either way.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from crash.calls import Answer, Call, Verb
from crash.drawn_pools import POOLS, TENANTS, DrawnPool
from crash.ledger import HeldSequence, LeaseBook, Ledger
from crash.sending import Sender

NULL_BLOCK = 0
OPERATOR = ""
"""Whose token it is that stands beside those of clients."""
NOT_FOUND = 404
NO_TOKENS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """What of a lease a call without an answer may have changed; ``is_any``: whether there is one.

    ``more``: sequences that it may have extended or committed; ``less``: those that it may have freed, and
    ``raw_blocks`` those given back.
    """

    is_any: bool = False
    is_release: bool = False
    is_step: bool = False
    more: frozenset[str] = frozenset()
    less: frozenset[str] = frozenset()
    raw_blocks: frozenset[int] = frozenset()


def tenant_of(client: str) -> str:
    """Whose the client of this name is, where there are tenants: in turns."""
    return TENANTS[int(client.rpartition("-")[2]) % len(TENANTS)]


def left_open(book: LeaseBook, call: Call | None) -> Open:
    """What ``call``, the one that a client was not answered, may have changed of ``book``."""
    if call is None or call.lease_id != book.lease_id:
        return Open()
    asked = call.body
    more: list[str] = []
    less: list[str] = []
    raw_blocks: list[int] = []
    match call.verb:
        case Verb.RELEASE:
            raw_blocks = list(book.raw_blocks)
        case Verb.ALLOCATE | Verb.COMMIT:
            more = [asked["sequence_id"]]
        case Verb.FREE:
            less = asked["sequence_ids"]
        case Verb.GIVE:
            raw_blocks = asked["block_ids"]
        case Verb.STEP:
            changed = [*asked["commit"]["sequences"], *asked["extend"]["sequences"]]
            more = [book.by_handle(handle).sequence_id for handle in changed]
            less = [book.by_handle(handle).sequence_id for handle in asked["free"]["sequences"]]
    return Open(
        is_any=True,
        is_release=call.verb is Verb.RELEASE,
        is_step=call.verb is Verb.STEP,
        more=frozenset(more),
        less=frozenset(less),
        raw_blocks=frozenset(raw_blocks),
    )


@dataclass(slots=True)
class PoolUse:
    """Who names which block of a pool: sequences by group and place in it, and leases without a sequence.

    ``tables``: beside a sequence whose it is, as far as content of one is not that of another.
    """

    tables: list[tuple[HeldSequence, str, list[list[int]]]] = field(default_factory=list)
    raw_blocks: list[tuple[str, list[int]]] = field(default_factory=list)


def two_owners(use: PoolUse) -> Iterator[str]:
    """Blocks that are named twice, and not for one content at one place."""
    owners: dict[int, dict[object, str]] = defaultdict(dict)
    for held, tenant, tables in use.tables:
        for group, table in enumerate(tables):
            for place, block in enumerate(table):
                is_full = place < len(held.block_hashes)
                content = held.block_hashes[place] if is_full else held.sequence_id
                owners[block][group, place, tenant, content] = held.sequence_id
    for lease_id, blocks in use.raw_blocks:
        for block in blocks:
            owners[block]["raw", lease_id] = f"lease {lease_id}"
    for block, named in owners.items():
        if block != NULL_BLOCK and len(named) > 1:
            yield f"block {block} has {len(named)} owners: {', '.join(named.values())}"


class Checker:
    """Compares a server with ``ledgers``, by the clients' names; likewise ``tokens``, if any.

    ``reach`` makes what reaches the server with a token; without one, for an empty text.
    """

    def __init__(
        self,
        reach: Callable[[str], Sender],
        ledgers: Mapping[str, Ledger],
        tokens: Mapping[str, str] = NO_TOKENS,
    ) -> None:
        self._operator = reach(tokens.get(OPERATOR, ""))
        self._senders = {name: reach(tokens.get(name, "")) for name in ledgers}
        self._tenants = {name: tenant_of(name) if tokens else "" for name in ledgers}
        self._has_tenants = bool(tokens)
        self._ledgers = ledgers
        self._num_repeats = 0

    def complaints(self) -> list[str]:
        """All that is not as it was answered; empty if nothing is."""
        found = [complaint for ledger in self._ledgers.values() for complaint in ledger.complaints]
        for pool in POOLS:
            found += self._pool_complaints(pool)
        for name, ledger in self._ledgers.items():
            found += self._repeat_complaints(self._senders[name], ledger)
        for pool in POOLS:
            found += self._audit(pool)["problems"]  # the repeats have done nothing
        return found

    def close(self) -> None:
        for sender in (self._operator, *self._senders.values()):
            sender.close()

    def _audit(self, pool: DrawnPool) -> dict[str, Any]:
        status, audit = self._operator.get(f"/v1/pools/{pool.name}/audit")
        assert status == 200, audit
        return audit

    def _pool_complaints(self, pool: DrawnPool) -> Iterator[str]:
        audit = self._audit(pool)
        for problem in audit["problems"]:
            yield f"pool {pool.name}: {problem}"
        if audit["num_free_blocks"] + audit["num_held_blocks"] + 1 != pool.num_blocks:
            yield f"pool {pool.name}: free, held and null are not all: {audit}"
        if self._has_tenants:
            yield from self._quota_complaints(pool, audit["num_held_blocks"])
        holders = {holder["lease_id"]: holder for holder in audit["holders"]}
        use = PoolUse()
        for name, ledger in self._ledgers.items():
            for book in ledger.leases.values():
                if book.pool == pool.name:
                    is_open = left_open(book, ledger.pending)
                    yield from self._lease_complaints(
                        name, pool, book, is_open, holders.pop(book.lease_id, None), use
                    )
            for book in ledger.released:
                if book.pool == pool.name:
                    yield from self._freed_complaints(name, book)
            yield from _unknown_leases(pool, name, ledger, holders)
        yield from (f"pool {pool.name}: {holder} holds a lease unasked" for holder in holders.values())
        yield from (f"pool {pool.name}: {complaint}" for complaint in two_owners(use))

    def _quota_complaints(self, pool: DrawnPool, num_held_blocks: int) -> Iterator[str]:
        status, told = self._operator.get(f"/v1/pools/{pool.name}/tenants")
        assert status == 200, told
        found = {each["tenant"]: each for each in told["tenants"]}
        if sum(each["num_held_blocks"] for each in found.values()) != num_held_blocks:
            yield f"pool {pool.name}: tenants hold other than the {num_held_blocks} blocks that are held"
        for tenant, quota in pool.quotas.items():
            if not quota.items() <= found[tenant].items():
                yield f"pool {pool.name}: {tenant} has the quota {quota}, and is told {found[tenant]}"

    def _lease_complaints(
        self,
        name: str,
        pool: DrawnPool,
        book: LeaseBook,
        is_open: Open,
        holder: dict[str, Any] | None,
        use: PoolUse,
    ) -> Iterator[str]:
        if holder is None:
            if not is_open.is_release:
                yield f"lease {book.lease_id} of pool {pool.name} is forgotten"
            return
        served: dict[str, dict[str, Any]] = {}
        for held in book.sequences.values():
            status, state = self._senders[name].get(f"/v1/pools/{pool.name}/sequences/{held.sequence_id}")
            if status == NOT_FOUND:
                if not (is_open.is_release or held.sequence_id in is_open.less):
                    yield f"sequence {held.sequence_id} of pool {pool.name} is forgotten"
                continue
            served[held.sequence_id] = state
            use.tables.append((held, self._tenants[name], state["block_ids"]))
            yield from _sequence_complaints(pool, book, held, state, is_open)
        raw_blocks = [block for block in book.raw_blocks if block not in is_open.raw_blocks]
        use.raw_blocks.append((book.lease_id, raw_blocks))
        yield from self._freed_complaints(name, book)
        if not is_open.is_any:
            tables = [table for state in served.values() for table in state["block_ids"]]
            blocks = {block for table in [*tables, raw_blocks] for block in table} - {NULL_BLOCK}
            if (holder["num_sequences"], holder["num_blocks"]) != (len(book.sequences), len(blocks)):
                given = f"{len(book.sequences)} sequences and {len(blocks)} blocks"
                yield f"lease {book.lease_id} of pool {pool.name} was given {given}, and has {holder}"

    def _freed_complaints(self, name: str, book: LeaseBook) -> Iterator[str]:
        for sequence_id in book.freed:
            status, state = self._senders[name].get(f"/v1/pools/{book.pool}/sequences/{sequence_id}")
            if status != NOT_FOUND:
                yield f"sequence {sequence_id} of pool {book.pool} was freed, and is there: {state}"

    def _repeat_complaints(self, sender: Sender, ledger: Ledger) -> Iterator[str]:
        for book in [*ledger.leases.values(), *ledger.released]:
            yield from self._repeated(sender, *book.granted)
        for book in ledger.leases.values():
            is_open = left_open(book, ledger.pending)
            if is_open.is_release:
                continue
            for call, answer in book.recent:
                yield from self._repeated(sender, call, answer)
            if book.last_step is not None and not is_open.is_step:
                call, answer = book.last_step
                self._num_repeats += 1  # under a new key: it is known by its step_id alone
                again = replace(call, key=f"{call.key} again {self._num_repeats}")
                yield from self._repeated(sender, again, answer)

    @staticmethod
    def _repeated(sender: Sender, call: Call, answer: Answer) -> Iterator[str]:
        again = sender.send(call)
        if again.told != answer.told:
            yield f"{call} was answered {answer.told}, and its repeat {again.told}"


def _unknown_leases(
    pool: DrawnPool, name: str, ledger: Ledger, holders: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """Takes the leases of the client of ``name``, which it was not told of, out of ``holders``."""
    own = [lease_id for lease_id, holder in holders.items() if holder["holder"] == name]
    call = ledger.pending
    may_have_one = call is not None and call.verb is Verb.LEASE and call.pool == pool.name
    for lease_id in own:
        holder = holders.pop(lease_id)
        if not may_have_one or holder["num_blocks"]:
            yield f"pool {pool.name}: {holder} was released, or never asked for"
        may_have_one = False


def _sequence_complaints(
    pool: DrawnPool, book: LeaseBook, held: HeldSequence, state: dict[str, Any], is_open: Open
) -> Iterator[str]:
    name = f"sequence {held.sequence_id} of pool {pool.name}"
    may_be_more = held.sequence_id in is_open.more
    if (state["lease_id"], state["sequence"]) != (book.lease_id, held.handle):
        yield f"{name} is another's or has another handle: {state}"
    for figure, ours in (
        ("num_tokens", held.num_tokens),
        ("num_computed_tokens", held.num_tokens),
        ("num_committed_tokens", held.num_committed_tokens),
    ):
        theirs = state[figure]
        if not (theirs == ours or (may_be_more and theirs > ours)):
            yield f"{name} has {figure} {theirs} in place of {ours}"
    for group, (given, found) in enumerate(zip(held.block_ids, state["block_ids"], strict=True)):
        if len(found) < len(given) or (len(found) > len(given) and not may_be_more):
            yield f"{name} has {len(found)} blocks in group {group}, and was given {len(given)}"
        for place, (ours, theirs) in enumerate(zip(given, found, strict=False)):
            is_dropped = pool.is_windowed[group] and theirs == NULL_BLOCK
            if theirs != ours and not is_dropped:
                yield f"{name} has block {theirs} at {place} of group {group}, and was given {ours}"
