"""What a client asks of registers: drawn. It may be out of date about those that others write too."""

import random
from collections.abc import Mapping
from typing import Any

from cluster.registers import MAX_BLOCKS, Register, registers
from crash.calls import READS, Answer, Call, Verb
from crash.drawn_pools import BLOCK_SIZE

WEIGHTS = {Verb.ALLOCATE: 24, Verb.COMMIT: 16, Verb.FREE: 4, Verb.READ: 44, Verb.LOOKUP: 12}
NOTHING = 0


class RegisterCalls:
    """Of the client of this ``number`` among ``num_clients``, with a lease of each pool."""

    def __init__(self, number: int, num_clients: int, seed: int, leases: Mapping[str, str]) -> None:
        self._number = number
        self._leases = leases
        self._draw = random.Random(seed)
        everything = registers(num_clients)
        self._read = everything
        self._written = [each for each in everything if each.writer in (None, number)]
        self._hashed = [each for each in everything if each.writer is not None]
        self._num_tokens: dict[str, int] = {}
        self._num_calls = 0

    def next(self) -> Call:
        (verb,) = self._draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        choices = {Verb.READ: self._read, Verb.LOOKUP: self._hashed}.get(verb, self._written)
        register = self._draw.choice(choices)
        known = self._num_tokens.get(register.sequence_id, NOTHING)
        if verb not in READS and known > MAX_BLOCKS * BLOCK_SIZE:
            verb = Verb.FREE
        self._num_calls += 1
        return Call(
            number=self._num_calls,
            verb=verb,
            pool=register.pool,
            key=f"register-client-{self._number}-{self._num_calls}",
            body=self._body(verb, register, known),
        )

    def note(self, call: Call, answer: Answer) -> None:
        """What is known of the register from now on."""
        body = call.body
        if answer.is_success and call.verb in (Verb.ALLOCATE, Verb.READ):
            told = answer.body if call.verb is Verb.READ else body
            self._num_tokens[body["sequence_id"]] = told["num_tokens"]
        elif answer.is_success and call.verb is Verb.FREE:
            for sequence_id in body["sequence_ids"]:
                self._num_tokens[sequence_id] = NOTHING
        elif answer.status == 404:
            self._num_tokens[body["sequence_id"]] = NOTHING

    def _body(self, verb: Verb, register: Register, known: int) -> dict[str, Any]:
        draw = self._draw
        named = {"sequence_id": register.sequence_id}
        leased = {"lease_id": self._leases[register.pool]}
        match verb:
            case Verb.ALLOCATE:
                num_tokens = known + draw.randint(known == NOTHING, 2 * BLOCK_SIZE)
                hashes = register.block_hashes(known // BLOCK_SIZE, num_tokens // BLOCK_SIZE)
                return {**leased, **named, "num_tokens": num_tokens, "block_hashes": hashes}
            case Verb.COMMIT:
                return {**leased, **named, "num_computed_tokens": draw.randint(0, known)}
            case Verb.FREE:
                return {**leased, "sequence_ids": [register.sequence_id]}
            case Verb.LOOKUP:
                num_tokens = draw.randint(1, MAX_BLOCKS * BLOCK_SIZE)
                hashes = register.block_hashes(0, num_tokens // BLOCK_SIZE)
                return {"num_tokens": num_tokens, "block_hashes": hashes}
        return named
