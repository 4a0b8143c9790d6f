"""Bugs planted in how a pool goes with its workers: all that protects from memory that is gone."""

from dataclasses import replace
from typing import Any

from blockyard.core.commands import Command, Heartbeat, Idempotent, LeaseCommand, PoolCommand, RegisterWorker
from blockyard.core.errors import NotReady
from blockyard.core.pool import Pool
from blockyard.core.replies import Reply


class CacheOutlivesMemory(Pool):
    def _begin_epoch(self) -> None:
        self.epoch += 1


class EpochTakesBlocks(Pool):
    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        for lease in list(self.leases.values()):
            self._end(lease)


class LeasesOutliveMemory(Pool):
    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        for lease in self.leases.values():
            lease.epoch = self.epoch


class LostWorkersPassedOver(Pool):
    def _check_workers(self) -> None:
        pass


class ReturnIsNoLoss(Pool):
    def _apply(self, command: PoolCommand) -> Reply:
        if isinstance(command, RegisterWorker):
            for worker in self.workers:
                if worker.worker_id == command.worker_id:
                    worker.incarnation = command.incarnation
        return super()._apply(command)


class OldSelvesAreHeard(Pool):
    def _apply(self, command: PoolCommand) -> Reply:
        if isinstance(command, Heartbeat):
            command = replace(command, incarnation=None)
        return super()._apply(command)


class RepeatsOutliveMemory(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        inner = command.command if isinstance(command, Idempotent) else None
        lease = self.leases.get(inner.lease_id) if isinstance(inner, LeaseCommand) else None
        if lease is not None and isinstance(command, Idempotent) and lease.expires_at_ms > now_ms:
            kept = lease.replies.recall(command.key, command.fingerprint)
            if kept is not None:
                return kept
        return super().apply(command, now_ms)


class NotReadyIsKept(Pool):
    def apply(self, command: Command, now_ms: int) -> Reply:
        try:
            return super().apply(command, now_ms)
        except NotReady as error:
            if isinstance(command, Idempotent):
                self.tenants.of(command.command.tenant).replies.remember(
                    command.key, command.fingerprint, error
                )
                for lease in self.leases.values():
                    lease.replies.remember(command.key, command.fingerprint, error)
            raise


class WorkersLostInSnapshot(Pool):
    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "workers": {"were_there": False, "workers": []}}


WORKER_BUGS = (
    CacheOutlivesMemory,
    EpochTakesBlocks,
    LeasesOutliveMemory,
    LostWorkersPassedOver,
    ReturnIsNoLoss,
    OldSelvesAreHeard,
    RepeatsOutliveMemory,
    NotReadyIsKept,
    WorkersLostInSnapshot,
)
