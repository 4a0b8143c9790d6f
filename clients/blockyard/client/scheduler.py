"""The scheduler's helper: one call a step, in place of a KV-cache manager inside the engine.

    scheduler = Scheduler(lease, pool.hasher())
    scheduler.add("request-1", prompt)
    result = scheduler.step()                       # admits it: blocks, and how much was cached
    ...compute result.scheduled["request-1"].num_new_tokens tokens...
    scheduler.computed("request-1", len(prompt))    # committed with the next step
    scheduler.append("request-1", [token])
    result = scheduler.step()                       # slots for the new token
    scheduler.finish("request-1")                   # freed with the next step

Everything between two steps is noted here and travels with the next one.
"""

from collections.abc import Mapping

from blockyard.client.errors import is_outcome_unknown
from blockyard.client.lease import AsyncLease, Lease
from blockyard.client.schedule import Schedule
from blockyard.client.step_result import StepResult
from blockyard.core.errors import BlockyardError
from blockyard.core.hash_chain import Hasher


class Scheduler(Schedule):
    """Sequences under one lease, moved on step by step. Not thread-safe.

    Args:
        lease: Under which it holds blocks. Only this scheduler may send steps under it.
        hasher: See `Schedule`.
    """

    def __init__(self, lease: Lease, hasher: Hasher | None) -> None:
        super().__init__(hasher)
        self._lease = lease

    def step(
        self,
        schedule: Mapping[str, int | None] | None = None,
        *,
        speculated: Mapping[str, int] | None = None,
        num_lookahead_tokens: int = 0,
    ) -> StepResult:
        """Commit, free, extend and admit, in one call.

        Args:
            schedule: Which sequences get slots, and for how many tokens at most: of a running one, its known
                tokens that have none; of a waiting one, those beyond its cached prefix. None as a number is
                all. Earlier entries are served first. None as a whole: all sequences, all their tokens.
            speculated: For running sequences, slots for so many tokens guessed to follow the known ones.
                They count as the sequence's until `reject`; those accepted become known by `append`.
            num_lookahead_tokens: Slots beyond for every scheduled sequence, which do not count.

        Returns:
            What was given.

        Raises:
            LeaseExpired, StaleEpoch: Nothing is held any more: see `restart`.
            ConnectionLost, Overloaded, NotReady, UnexpectedReply: The outcome is unknown: see `resume`.
            BlockyardError: Refused as a whole. All that was noted goes out again with the next step.
            RuntimeError: The outcome of the step before is unknown.
        """
        self.prepare(self._lease.next_step_id(), schedule, speculated, num_lookahead_tokens)
        return self.resume()

    def resume(self) -> StepResult:
        """Send the step again whose outcome is unknown; the server does it once, however often it arrives.

        Raises:
            BlockyardError: As `step`.
            RuntimeError: There is none.
        """
        step = self._require_under_way()
        try:
            reply = self._lease.step(
                commit=step.commit, free=step.free, extend=step.extend, admit=step.admit, step_id=step.step_id
            )
        except BlockyardError as error:
            if not is_outcome_unknown(error):
                self.give_up()
            raise
        return self.apply(reply)

    def restart(self, lease: Lease) -> None:
        """Go on under a new lease, after the old one ended: every sequence waits to be admitted again."""
        self.forget_blocks()
        self._lease = lease


class AsyncScheduler(Schedule):
    """As `Scheduler`, with ``await``. Other methods may be called while a step is awaited.

    Args:
        lease: As for `Scheduler`.
        hasher: See `Schedule`.
    """

    def __init__(self, lease: AsyncLease, hasher: Hasher | None) -> None:
        super().__init__(hasher)
        self._lease = lease

    async def step(
        self,
        schedule: Mapping[str, int | None] | None = None,
        *,
        speculated: Mapping[str, int] | None = None,
        num_lookahead_tokens: int = 0,
    ) -> StepResult:
        """As `Scheduler.step`. A cancelled step's outcome is unknown."""
        self.prepare(self._lease.next_step_id(), schedule, speculated, num_lookahead_tokens)
        return await self.resume()

    async def resume(self) -> StepResult:
        """As `Scheduler.resume`."""
        step = self._require_under_way()
        try:
            reply = await self._lease.step(
                commit=step.commit, free=step.free, extend=step.extend, admit=step.admit, step_id=step.step_id
            )
        except BlockyardError as error:
            if not is_outcome_unknown(error):
                self.give_up()
            raise
        return self.apply(reply)

    def restart(self, lease: AsyncLease) -> None:
        """As `Scheduler.restart`."""
        self.forget_blocks()
        self._lease = lease
