"""The histories of registers, from what clients logged: one a sequence, held to the model."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from cluster.linearizability import Operation, check
from cluster.registers import Register
from cluster.sequence_model import SequenceModel
from crash.calls import READS, Answer, Call, Verb

Logged = tuple[Call, Answer | None]
"""A call with its answer, if it had one."""
Key = tuple[str, str]
"""Pool and sequence id."""


class RegisterHistories:
    """Of ``registers``; a lookup is known by the first hash that it asks for."""

    def __init__(self, registers: Iterable[Register]) -> None:
        known = list(registers)
        self._by_hash = {
            block_hash: each.sequence_id for each in known for block_hash in each.block_hashes(0, 1)
        }
        self._operations: dict[Key, list[Operation[Call, Answer]]] = defaultdict(list)

    def note(self, call: Call, answer: Answer | None) -> None:
        """One more of some client; a lookup of nothing tells nothing."""
        sequence_id = self._sequence_id(call)
        if sequence_id is None or call.verb is Verb.LEASE:
            return
        begin_ns = call.at_ns
        if answer is not None and call.verb in READS:
            begin_ns = answer.tried_ns  # tries before it have changed nothing
        self._operations[call.pool, sequence_id].append(
            Operation(
                began_ns=begin_ns, ended_ns=None if answer is None else answer.at_ns, asked=call, told=answer
            )
        )

    @property
    def num_operations(self) -> int:
        return sum(map(len, self._operations.values()))

    def complaints(self) -> Iterator[str]:
        """Of each register whose history has no order, where it ends."""
        for (pool, sequence_id), operations in self._operations.items():
            stuck = check(SequenceModel(), operations)
            if stuck is not None:
                yield f"the history of {sequence_id} of pool {pool} is not linearizable: {stuck}"

    def _sequence_id(self, call: Call) -> str | None:
        match call.verb:
            case Verb.LEASE:
                return None
            case Verb.FREE:
                (sequence_id,) = call.body["sequence_ids"]
                return str(sequence_id)
            case Verb.LOOKUP:
                hashes = call.body["block_hashes"]
                return self._by_hash[hashes[0]] if hashes else None
        return str(call.body["sequence_id"])
