"""Bugs planted in the pool itself, in what it remembers and in its snapshots."""

from typing import Any

from blockyard.core.commands import Command, Commit, Idempotent, PoolCommand, ResetPrefixCache, Step
from blockyard.core.lease import Lease
from blockyard.core.pool import Pool
from blockyard.core.replies import Reply


class RawBlocksLost(Pool):
    def _end(self, lease: Lease) -> tuple[int, int]:
        lease.raw_blocks.clear()
        return super()._end(lease)


class RepeatsDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        return super().apply(command.command if isinstance(command, Idempotent) else command, now_ms)


class StepHalfDone(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, Step):
            for handle in command.commit.sequences:
                lease = self.leases.get(command.lease_id)
                sequence = None if lease is None else lease.by_handle.get(handle)
                if sequence is not None:
                    sequence.num_committed_tokens = sequence.num_granted_tokens
        return super().apply(command, now_ms)


class ResetWhileHeld(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, ResetPrefixCache) and command.epoch is None:
            self.store.forget_all()
        return super().apply(command, now_ms)


class DuplicatesUnorderedInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        for store in state["stores"]:
            store["shared_hashes"] = []
        return state


class FurtherHashesLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        for store in state["stores"]:
            store["further_hashes"] = []
        return state


class CopiesLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        state = super().snapshot()
        for lease in state["leases"]:
            lease["copies"] = []
        return state


class CopiesNotHeld(Pool):
    def _apply(self, command: PoolCommand) -> Reply:
        reply = super()._apply(command)
        for lease in self.leases.values():
            self._release_copies(lease)
        return reply


class CopiesHeldTooLong(Pool):
    def _apply(self, command: PoolCommand) -> Reply:
        lease = self.leases.get(command.lease_id) if isinstance(command, Commit) else None
        if lease is None:
            return super()._apply(command)
        copies, lease.copies = lease.copies, []
        try:
            return super()._apply(command)
        finally:
            lease.copies = copies
