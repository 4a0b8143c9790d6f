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

from collections.abc import Mapping, Sequence

from blockyard.client.lease import AsyncLease, Lease
from blockyard.client.methods import passing_on
from blockyard.client.schedule import Schedule
from blockyard.client.step_result import ForkResult, StepResult
from blockyard.core.hash_chain import Hasher


class _Verbs:
    """What a caller of both kinds of scheduler does between steps."""

    def __init__(self, hasher: Hasher | None, *, sends_token_ids: bool) -> None:
        self._schedule = Schedule(hasher, sends_token_ids=sends_token_ids)

    add = passing_on(Schedule.add)
    append = passing_on(Schedule.append)
    computed = passing_on(Schedule.computed)
    reject = passing_on(Schedule.reject)
    finish = passing_on(Schedule.finish)
    preempt = passing_on(Schedule.preempt)
    block_ids = passing_on(Schedule.block_ids)

    @property
    def waiting(self) -> Sequence[str]:
        """Ids without blocks yet or any more, in the order of their addition."""
        return self._schedule.waiting

    @property
    def running(self) -> Sequence[str]:
        """Ids with blocks, in the order of their addition."""
        return self._schedule.running

    @property
    def is_step_under_way(self) -> bool:
        """Whether a step is awaited, or its outcome unknown: then `resume` before the next."""
        return self._schedule.is_step_under_way

    def __repr__(self) -> str:
        pending = ", a step under way" if self.is_step_under_way else ""
        return f"<{type(self).__name__}: {len(self.running)} running, {len(self.waiting)} waiting{pending}>"


class Scheduler(_Verbs):
    """Sequences under one lease, moved on step by step. Not thread-safe.

    Args:
        lease: Under which it holds blocks. Only this scheduler may send steps under it.
        hasher: Hashes tokens for the prefix cache, as the pool wants it: see `Pool.hasher`. The first step
            compares it with the pool, save for its secret seed. None: nothing is hashed, and no prefix is
            found or offered.
        sends_token_ids: Send the tokens beside their hashes, for the pool's events if it has any. Where the
            pool needs them (see `EventsConfig`), they are sent in any case.
    """

    def __init__(self, lease: Lease, hasher: Hasher | None, *, sends_token_ids: bool = False) -> None:
        super().__init__(hasher, sends_token_ids=sends_token_ids)
        self._lease = lease

    def step(
        self,
        schedule: Mapping[str, int | None] | None = None,
        *,
        speculated: Mapping[str, int] | None = None,
        num_lookahead_tokens: int = 0,
    ) -> StepResult:
        """Commit, free, extend and admit, in one call.

        A sequence that the server names as not valid is refused by itself: the step is sent again without it.

        In a pool whose recurrent groups keep states for others, a chunk of a prompt gets fewer tokens than it
        may where that lets it end at a state that can be found again: at the last block end within its
        budget, and at the end of what a prompt in common would be hit for. Commit each chunk before the next
        step.

        Args:
            schedule: Which sequences get slots, and for how many tokens at most: of a running one, its known
                tokens that have none; of a waiting one, those beyond its cached prefix. None as a number is
                all. Earlier entries are served first. None as a whole: all sequences, all their tokens.
            speculated: For scheduled sequences that run, slots for so many tokens guessed to follow the known
                ones; of no effect on one that waits. They count as the sequence's until `reject`; those
                accepted become known by `append`.
            num_lookahead_tokens: Slots beyond for every scheduled sequence, which do not count.

        Returns:
            What was given.

        Raises:
            LeaseExpired, PoolNotFound: Nothing is held any more: see `restart`.
            StaleEpoch: A worker has lost its memory, and with it all that was computed: see `restart`.
            NotReady: A worker is lost, and no blocks are given until it is back.
            SequenceNotFound, InvalidRequest: An argument names no live sequence, or cannot be meant; or the
                pool hashes otherwise than this scheduler, or after `restart` needs tokens that were not kept.
            BlockyardError: Any other. If `is_step_under_way`, the outcome is unknown: see `resume`. Else the
                step was refused as a whole, and all that was noted goes out again with the next.
            RuntimeError: The outcome of the step before is unknown.
        """
        wanted = self._schedule.want(schedule, speculated, num_lookahead_tokens)
        self._undo_forks()
        if self._schedule.pool is None:
            self._schedule.note_pool(self._lease.describe_pool())
        self._schedule.prepare(self._lease.next_step_id(), wanted)
        return self.resume()

    def fork(self, sequence_id: str, new_sequence_ids: Sequence[str]) -> ForkResult:
        """Begin sequences that go on from where a running one stands, at once and outside of steps.

            scheduler.fork("request-1", ["request-1/2", "request-1/3"])    # parallel samples of one prompt

        They have its tokens, and share the blocks of those that have slots; these are not rejected any more.
        The step after which parent and forks first write into a last block in common tells of its copies. A
        fork is a sequence as any other: it is appended to, finished and preempted by itself.

        Args:
            sequence_id: Of the parent, which runs, and has no open guesses.
            new_sequence_ids: Of the forks, up to 128.

        Returns:
            What they begin with.

        Raises:
            SequenceNotFound, InvalidRequest: There is no such sequence, or an id is in use, or the parent
                cannot be forked as it is.
            InsufficientBlocks: There are too few for what cannot be shared.
            BlockyardError: Any other. If it is not known whether they were begun, they are freed before the
                next step or fork.
            RuntimeError: A step is under way, or its outcome is unknown.
        """
        self._undo_forks()
        fork = self._schedule.prepare_fork(sequence_id, new_sequence_ids)
        with self._schedule.forking(fork):
            reply = self._lease.fork(**fork.arguments)
        return self._schedule.note_forked(fork, reply)

    def resume(self) -> StepResult:
        """Send the step again whose outcome is unknown; the server does it once, however often it arrives.

        Raises:
            BlockyardError: As `step`.
            RuntimeError: There is none.
        """
        result: StepResult | None = None
        while result is None:  # once more for each sequence at fault
            with self._schedule.sending(self._lease.next_step_id) as step:
                reply = self._lease.step(**step.arguments)
                result = self._schedule.note_done(step, reply)
        return result

    def restart(self, lease: Lease) -> None:
        """Go on under a new lease, after the old one ended: every sequence waits to be admitted again.

        After `PoolNotFound` (pools end with their server) that is a lease of the pool created anew. After
        `StaleEpoch` release the old one first: it holds its blocks until then, in case other workers still
        write to them.
        """
        self._schedule.forget_blocks()
        self._lease = lease

    def _undo_forks(self) -> None:
        doubtful = self._schedule.doubtful
        if doubtful:
            self._lease.free(doubtful)
            self._schedule.note_undone(doubtful)


class AsyncScheduler(_Verbs):
    """As `Scheduler`, with ``await``. Other methods may be called while a step is awaited."""

    def __init__(self, lease: AsyncLease, hasher: Hasher | None, *, sends_token_ids: bool = False) -> None:
        super().__init__(hasher, sends_token_ids=sends_token_ids)
        self._lease = lease

    async def step(
        self,
        schedule: Mapping[str, int | None] | None = None,
        *,
        speculated: Mapping[str, int] | None = None,
        num_lookahead_tokens: int = 0,
    ) -> StepResult:
        """As `Scheduler.step`. A cancelled step's outcome is unknown."""
        wanted = self._schedule.want(schedule, speculated, num_lookahead_tokens)
        await self._undo_forks()
        lease = self._lease
        if self._schedule.pool is None:
            pool = await lease.describe_pool()
            if self._lease is not lease:
                raise RuntimeError("the scheduler restarted while its step was awaited")
            self._schedule.note_pool(pool)
        self._schedule.prepare(lease.next_step_id(), wanted)
        return await self.resume()

    async def fork(self, sequence_id: str, new_sequence_ids: Sequence[str]) -> ForkResult:
        """As `Scheduler.fork`. A cancelled one's outcome is unknown."""
        await self._undo_forks()
        fork = self._schedule.prepare_fork(sequence_id, new_sequence_ids)
        with self._schedule.forking(fork):
            reply = await self._lease.fork(**fork.arguments)
        return self._schedule.note_forked(fork, reply)

    async def resume(self) -> StepResult:
        """As `Scheduler.resume`."""
        result: StepResult | None = None
        while result is None:
            with self._schedule.sending(self._lease.next_step_id) as step:
                reply = await self._lease.step(**step.arguments)
                result = self._schedule.note_done(step, reply)
        return result

    def restart(self, lease: AsyncLease) -> None:
        """As `Scheduler.restart`."""
        self._schedule.forget_blocks()
        self._lease = lease

    async def _undo_forks(self) -> None:
        doubtful = self._schedule.doubtful
        if doubtful:
            await self._lease.free(doubtful)
            self._schedule.note_undone(doubtful)
