"""A scheduler's sequences between and during steps, as pure state: what to send, and what a reply changes.

At most one step is under way. Nothing counts as sent before its reply is applied, so a step that was refused
leaves all of it for the next, and a step whose reply was lost can be sent again as it was. Meanwhile, tokens
may be appended, sequences finished or preempted: what is under way refers to a sequence itself, not its id.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from blockyard.client.errors import is_verdict, may_have_been_done
from blockyard.client.faulty_entries import without_faults
from blockyard.client.fork import PreparedFork, prepare_fork
from blockyard.client.prepared_step import PreparedStep, Wanted, prepare_step
from blockyard.client.reports import PoolDescription
from blockyard.client.step_reply import take_in
from blockyard.client.step_result import ForkResult, StepResult
from blockyard.client.tracked import Tracked
from blockyard.core.chunk_ends import ChunkEnds
from blockyard.core.errors import BlockyardError, InvalidRequest, SequenceNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.hash_chain import Hasher
from blockyard.core.ids import BlockId, SequenceId
from blockyard.core.replies import Forked, Stepped


class Schedule:
    """No sequences at first. Not thread-safe.

    Args:
        hasher: Hashes tokens for the prefix cache, at the pool's algorithm and hash block size; see
            `Pool.hasher`. None: nothing is hashed, and no prefix is found or offered.
        sends_token_ids: Send tokens for the pool's events even if it does not need them.
    """

    def __init__(self, hasher: Hasher | None, *, sends_token_ids: bool = False) -> None:
        self._hasher = hasher
        self._sends_token_ids = sends_token_ids
        self._sequences: dict[str, Tracked] = {}
        self._uncommitted: dict[Tracked, None] = {}
        self._ended: list[Tracked] = []
        self._under_way: PreparedStep | None = None
        self._fork_under_way: PreparedFork | None = None
        self._doubtful: list[str] = []
        self._was_sent = False
        self._chunk_ends: ChunkEnds | None = None
        self.pool: PoolDescription | None = None  # unknown until the first step

    @property
    def is_step_under_way(self) -> bool:
        """Whether a step is awaited, or its outcome unknown."""
        return self._under_way is not None

    @property
    def waiting(self) -> Sequence[str]:
        """Ids without blocks yet or any more, in the order of their addition."""
        return [name for name, tracked in self._sequences.items() if tracked.handle is None]

    @property
    def running(self) -> Sequence[str]:
        """Ids with blocks, in the order of their addition."""
        return [name for name, tracked in self._sequences.items() if tracked.handle is not None]

    def add(
        self,
        sequence_id: str,
        token_ids: Sequence[int],
        extras: Extras | None = None,
        *,
        full_sequence_must_fit: bool = False,
        skip_prefix_cache: bool = False,
        num_encoder_tokens: int = 0,
    ) -> None:
        """Queue a sequence; a later step admits it.

        Args:
            sequence_id: Not that of another live sequence.
            token_ids: Its prompt, at least one token.
            extras: What its KV depends on beside the tokens. With a cache salt no other tenant finds it, also
                in a pool that shares across tenants.
            full_sequence_must_fit: Admit it only if all its tokens would fit, even if chunk by chunk.
            skip_prefix_cache: Admit it without a cached prefix.
            num_encoder_tokens: Of its encoder's input, for layers of cross attention.

        Raises:
            InvalidRequest: The id is in use, there are no tokens, or the count is negative.
        """
        self._check_unused("sequence_id", sequence_id)
        if not token_ids:
            raise InvalidRequest.of("token_ids", "give at least one token")
        if num_encoder_tokens < 0:
            raise InvalidRequest.of("num_encoder_tokens", "must be at least 0")
        tracked = Tracked(
            sequence_id=SequenceId(sequence_id),
            chain=None if self._hasher is None else self._hasher.start(extras),
            token_ids=[] if self._keeps_tokens else None,
            tenant_only=extras is not None and extras.cache_salt is not None,
            full_sequence_must_fit=full_sequence_must_fit,
            skip_prefix_cache=skip_prefix_cache,
            num_encoder_tokens=num_encoder_tokens,
        )
        tracked.append(token_ids)
        tracked.num_prompt_tokens = tracked.num_tokens
        self._sequences[sequence_id] = tracked

    def append(self, sequence_id: str, token_ids: Sequence[int]) -> None:
        """Tokens that were generated, or accepted after speculation: certain from now on.

        Raises:
            SequenceNotFound: No such sequence.
        """
        self._get(sequence_id).append(token_ids)

    def computed(self, sequence_id: str, num_tokens: int) -> None:
        """The KV of the sequence's first ``num_tokens`` tokens is written; the next step commits them.

        Raises:
            InvalidRequest: Not so many tokens are known, or have slots.
            SequenceNotFound: No such sequence.
        """
        tracked = self._get(sequence_id)
        if tracked.handle is None:
            raise InvalidRequest.of("sequence_id", f"{sequence_id!r} has no slots: it waits")
        tracked.note_computed(num_tokens)
        self._uncommitted[tracked] = None

    def reject(self, sequence_id: str, num_tokens: int) -> None:
        """The last ``num_tokens`` speculated tokens were wrong; their slots are used again.

        Raises:
            InvalidRequest: That would take back computed tokens.
            SequenceNotFound: No such sequence.
        """
        self._get(sequence_id).reject(num_tokens)

    def finish(self, sequence_id: str) -> None:
        """The sequence is over; the next step commits what was computed and frees its blocks.

        Raises:
            SequenceNotFound: No such sequence.
        """
        self._end(self._get(sequence_id))
        del self._sequences[sequence_id]

    def preempt(self, sequence_id: str) -> None:
        """Give up the sequence's blocks with the next step and queue it again, at its old place.

        What it had computed stays a likely hit until its blocks are needed.

        Raises:
            SequenceNotFound: No such sequence.
        """
        tracked = self._get(sequence_id)
        self._end(tracked)
        self._sequences[sequence_id] = tracked.successor()

    def block_ids(self, sequence_id: str) -> Sequence[Sequence[BlockId]]:
        """The sequence's block tables, one a group; see `Scheduled.block_ids`. Empty while it waits.

        Raises:
            SequenceNotFound: No such sequence.
        """
        return self._get(sequence_id).block_ids

    def prepare_fork(self, sequence_id: str, new_sequence_ids: Sequence[str]) -> PreparedFork:
        """Have a fork under way, to be sent. See `Scheduler.fork` for the arguments.

        Raises:
            RuntimeError: A step or another fork is under way.
            SequenceNotFound, InvalidRequest: See `Scheduler.fork`.
        """
        self._check_idle()
        for name in new_sequence_ids:
            self._check_unused("new_sequence_ids", name)
        fork = self._fork_under_way = prepare_fork(self._get(sequence_id), new_sequence_ids)
        return fork

    @contextmanager
    def forking(self, fork: PreparedFork) -> Iterator[None]:
        """Around the sending of a fork. Where its outcome is unknown, its ids are `doubtful` afterwards."""
        try:
            yield
        except BaseException as error:
            if self._fork_under_way is fork:
                self._fork_under_way = None
                if not (isinstance(error, BlockyardError) and is_verdict(error)):
                    self._doubtful += fork.forks
            raise

    def note_forked(self, fork: PreparedFork, reply: Forked) -> ForkResult:
        """The fork under way was done.

        Raises:
            RuntimeError: ``fork`` is not under way any more: all was forgotten meanwhile.
        """
        if self._fork_under_way is not fork:
            raise RuntimeError("the scheduler restarted while a fork was awaited")
        self._fork_under_way = None
        result = fork.take_in(reply)
        self._sequences.update(fork.forks)
        self._uncommitted.update(
            (t, None) for t in fork.forks.values() if t.num_computed_tokens > t.num_committed_tokens
        )
        return result

    @property
    def doubtful(self) -> Sequence[str]:
        """Ids of forks that may have begun, and are to be freed before the next step or fork."""
        return tuple(self._doubtful)

    def note_undone(self, names: Sequence[str]) -> None:
        """Those of these names are freed."""
        self._doubtful = [name for name in self._doubtful if name not in names]

    def want(
        self,
        schedule: Mapping[str, int | None] | None,
        speculated: Mapping[str, int] | None,
        num_lookahead_tokens: int,
    ) -> Wanted:
        """What the next step is for. See `Scheduler.step` for the arguments.

        Raises:
            RuntimeError: A step is under way.
            SequenceNotFound, InvalidRequest: See `Wanted.check`.
        """
        self._check_idle()
        wanted = Wanted(
            schedule=dict.fromkeys(self._sequences) if schedule is None else schedule,
            speculated=speculated or {},
            num_lookahead_tokens=num_lookahead_tokens,
        )
        wanted.check(self._sequences)
        return wanted

    def prepare(self, step_id: int, wanted: Wanted) -> None:
        """Have the next step under way, to be sent.

        Raises:
            RuntimeError: A step is under way.
        """
        self._check_idle()
        self._under_way = prepare_step(
            step_id,
            wanted,
            live=self._sequences,
            written=[tracked for tracked in self._uncommitted if tracked.handle is not None],
            ended=self._ended,
            chunk_ends=self._chunk_ends,
        )
        self._was_sent = False

    def note_pool(self, pool: PoolDescription) -> None:
        """Steps are for this pool.

        Raises:
            InvalidRequest: It hashes otherwise, or needs tokens that were not kept.
        """
        if self._hasher is not None:
            pool.check_hasher(self._hasher)
            self._keep_or_forget_tokens(pool)
            self._chunk_ends = ChunkEnds.of(
                pool.groups,
                scheduler_block_size=pool.scheduler_block_size,
                hash_block_size=pool.hash_block_size,
                enable_prefix_caching=pool.enable_prefix_caching,
            )
        self.pool = pool

    @contextmanager
    def sending(self, next_step_id: Callable[[], int]) -> Iterator[PreparedStep]:
        """Around one sending of the step under way.

        An error after which it certainly was not done gives it up: all of it goes out again with the next.
        After any other it stays under way. Once it may have been done, only the pool's own word is certain.
        An error that names sequences at fault is passed over: under way then is the step without them.

        Raises:
            RuntimeError: No step is under way.
        """
        step = self._under_way
        if step is None:
            raise RuntimeError("no step is under way")
        is_first, self._was_sent = not self._was_sent, True
        try:
            yield step
        except BlockyardError as error:
            is_certain = is_verdict(error) or (is_first and not may_have_been_done(error))
            if not is_certain or self._under_way is not step:
                raise
            self._under_way, self._was_sent = without_faults(step, error, next_step_id), False
            if self._under_way is None:
                raise

    def note_done(self, step: PreparedStep, reply: Stepped) -> StepResult:
        """The step under way was done.

        Raises:
            RuntimeError: ``step`` is not under way any more: it was resumed meanwhile, or all forgotten.
        """
        self._check_under_way(step)
        assert self.pool is not None, "it was noted before the step was sent"
        self._under_way = None
        for tracked, num_tokens in zip(step.committed, step.commit.num_computed_tokens, strict=True):
            tracked.num_committed_tokens = max(tracked.num_committed_tokens, num_tokens)
            if tracked.num_committed_tokens >= tracked.num_computed_tokens:
                self._uncommitted.pop(tracked, None)
        del self._ended[: len(step.ended)]  # those that ended meanwhile stand behind
        for tracked in step.ended:
            self._uncommitted.pop(tracked, None)
        result = take_in(step, reply)
        # Those that ended while their admission was under way have blocks now: the next step frees them.
        self._ended += [t for t in step.admitted if t.has_ended and t.handle is not None]
        return result

    def forget_blocks(self) -> None:
        """The lease has ended, or the pool has lost what was cached: every sequence waits again."""
        self._under_way = self._fork_under_way = self.pool = self._chunk_ends = None
        self._doubtful.clear()
        self._ended.clear()
        self._uncommitted.clear()
        self._sequences = {name: tracked.successor() for name, tracked in self._sequences.items()}

    def _keep_or_forget_tokens(self, pool: PoolDescription) -> None:
        """Tokens are kept from now on if they are sent to ``pool``. Raises as `note_pool`."""
        if not self._sends_tokens(pool):
            for tracked in self._sequences.values():
                tracked.token_ids = None
            return
        forgotten = [name for name, tracked in self._sequences.items() if tracked.token_ids is None]
        if forgotten:
            raise InvalidRequest.of(
                "token_ids",
                f"pool {pool.pool!r} needs them for its events. The pool before did not, so those of "
                f"{forgotten} were not kept: finish these sequences and add them again",
            )

    @property
    def _keeps_tokens(self) -> bool:
        """Whether the tokens of a new sequence are sent, or may have to be."""
        return self._hasher is not None and (self.pool is None or self._sends_tokens(self.pool))

    def _sends_tokens(self, pool: PoolDescription) -> bool:
        return pool.events is not None and (pool.events.needs_token_ids or self._sends_token_ids)

    def _check_idle(self) -> None:
        if self._under_way is not None:
            raise RuntimeError("a step is under way, or its outcome is unknown: resume() first")
        if self._fork_under_way is not None:
            raise RuntimeError("a fork is under way: await it first")

    def _check_unused(self, field: str, sequence_id: str) -> None:
        fork = self._fork_under_way
        if sequence_id in self._sequences or (fork is not None and sequence_id in fork.forks):
            raise InvalidRequest.of(field, f"{sequence_id!r} is in use: finish it first")

    def _check_under_way(self, step: PreparedStep) -> None:
        if self._under_way is not step:
            raise RuntimeError("the step was resumed, or the scheduler restarted, while it was awaited")

    def _get(self, sequence_id: str) -> Tracked:
        tracked = self._sequences.get(sequence_id)
        if tracked is None:
            raise SequenceNotFound(f"this scheduler has no sequence {sequence_id!r}: add it first")
        return tracked

    def _end(self, tracked: Tracked) -> None:
        tracked.has_ended = True
        if tracked.handle is not None:  # else an admission under way is undone once it is answered
            self._ended.append(tracked)
