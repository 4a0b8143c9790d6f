"""The calls under a lease: the protocol's hot part. See `blockyard.client.protocol` for the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from blockyard.client.bodies import admission_body, admissions_body, commit_body, content_body, extend_body
from blockyard.client.call import Call, encode_given, reader
from blockyard.client.paths import pool_path
from blockyard.client.step_columns import as_column, read_extended, with_unlisted
from blockyard.client.wire import Form, Response, encode
from blockyard.core import replies
from blockyard.core.commands import Admission, StepCommit, StepExtend
from blockyard.core.errors import InvalidRequest, LeaseExpired, PoolNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.ids import BlockHash, BlockId, LeaseId, SequenceHandle, SequenceId

T = TypeVar("T")

_read_granted = reader(replies.LeaseGranted)
_read_released = reader(replies.LeaseReleased)
_read_allocated = reader(replies.Allocated)
_read_stepped = reader(replies.Stepped, extend=read_extended)
_read_committed = reader(replies.Committed)
_read_forked = reader(replies.Forked)
_read_freed = reader(replies.Freed)
_read_blocks_allocated = reader(replies.BlocksAllocated)
_read_blocks_freed = reader(replies.BlocksFreed)

_NO_COMMIT = StepCommit()
_NO_EXTEND = StepExtend()


@dataclass(frozen=True, slots=True)
class LeaseCalls:
    """Calls under one lease. Each renews it, and is refused with `LeaseExpired` once the lease has ended.

    A pool that is gone (`PoolNotFound`: deleted, or its server was restarted) has ended its leases.

    Attributes:
        pool: The pool's name.
        lease_id: The lease's.
        epoch: The pool's when the lease was made. Sent along, so that the calls are refused with
            `StaleEpoch` once the pool has lost what was cached: then release the lease and take a new one.
        form: Of bodies on the routes that take both forms.
    """

    pool: str
    lease_id: LeaseId
    epoch: int
    form: Form = Form.MSGPACK

    def renew(self) -> Call[replies.LeaseGranted]:
        """Start the lease's time anew. Needed only where neither calls nor the background do so."""
        path = pool_path(self.pool, "leases", self.lease_id, "renew")
        body = encode_given(Form.JSON, epoch=self.epoch)
        return Call(method="POST", path=path, read=_read_granted, body=body, is_keyed=True)

    def release(self) -> Call[replies.LeaseReleased]:
        """End the lease; all it holds becomes free. Nothing happens if it has ended."""

        def read(response: Response) -> replies.LeaseReleased:
            try:
                return _read_released(response)
            except (LeaseExpired, PoolNotFound):  # also by an earlier try whose reply was lost
                return self.nothing_released()

        return Call(method="DELETE", path=pool_path(self.pool, "leases", self.lease_id), read=read)

    def allocate(  # noqa: PLR0913 - the wire's own fields, all but two by keyword
        self,
        sequence_id: str,
        num_tokens: int,
        *,
        max_new_tokens: int | None = None,
        end_at_state: bool = False,
        num_lookahead_tokens: int = 0,
        num_computed_tokens: int | None = None,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        event_token_ids: Sequence[int] = (),
        extras: Extras | None = None,
        tenant_only: bool = False,
        full_sequence_must_fit: bool = False,
        skip_prefix_cache: bool = False,
        num_prompt_tokens: int | None = None,
        num_encoder_tokens: int = 0,
        wait_ms: int = 0,
    ) -> Call[replies.Allocated]:
        """Blocks for a sequence: the first call admits it with the longest cached prefix, others extend it.

        Args:
            sequence_id: Of the caller's choice, unique in the pool.
            num_tokens: Tokens of the sequence so far, at least 1.
            max_new_tokens: Give slots to at most so many that have none; at least 1. None for all.
            end_at_state: Give slots to fewer where they then end at a recurrent state that others can find.
                Leave it out where guesses are among the tokens.
            num_lookahead_tokens: Slots beyond, for speculated tokens.
            num_computed_tokens: Later calls: the true count, where speculated tokens were rejected.
            block_hashes: Those not sent before; after an error, again.
            token_ids: Or the tokens not sent before, for the server to hash.
            event_token_ids: Beside ``block_hashes``: the tokens not sent before, for the pool's events. Those
                of all hashes, or none.
            extras: With the first ``token_ids``: what the KV depends on beside them.
            tenant_only: First call: no other tenant is to find this content, also in a pool that shares it
                across tenants. To be said where a cache salt is hashed into ``block_hashes``; one in
                ``extras`` says it by itself.
            full_sequence_must_fit: Refuse unless all ``num_tokens`` would fit.
            skip_prefix_cache: Take no cached prefix.
            num_prompt_tokens: First call: tokens of its prompt, where ``num_tokens`` counts output as well.
            num_encoder_tokens: First call: tokens of its encoder's input, for layers of cross attention.
            wait_ms: Where there are too few blocks, wait so long for them, in turn with others who wait. The
                call then takes so much longer at most, beside the client's ``timeout_s``. A try whose reply
                was lost may have got its blocks: the next one gets the same. Has it not, then it waits anew.

        Returns:
            What was given. ``copies`` are to be made before this call's tokens are computed, in their order.

        Raises:
            InsufficientBlocks: Nothing was given, also after ``wait_ms``. `QuotaExceeded` is one: the tenant
                would hold more than it may.
            LimitExceeded: The server lets nobody wait for so long.
            InvalidRequest: A count or a token id is out of range, or does not fit what was sent before.
            SequenceExistsElsewhere: Another lease has this id.
        """
        admission = Admission(
            sequence_id=SequenceId(sequence_id),
            num_tokens=num_tokens,
            max_new_tokens=max_new_tokens,
            end_at_state=end_at_state,
            num_lookahead_tokens=num_lookahead_tokens,
            block_hashes=block_hashes,
            token_ids=token_ids,
            event_token_ids=event_token_ids,
            extras=extras,
            tenant_only=tenant_only,
            full_sequence_must_fit=full_sequence_must_fit,
            skip_prefix_cache=skip_prefix_cache,
            num_prompt_tokens=num_prompt_tokens,
            num_encoder_tokens=num_encoder_tokens,
        )
        fields = admission_body(admission)
        if num_computed_tokens is not None:
            fields["num_computed_tokens"] = num_computed_tokens
        return self._waiting(wait_ms, "allocate", _read_allocated, fields)

    def commit(
        self,
        sequence_id: str,
        num_computed_tokens: int,
        *,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        event_token_ids: Sequence[int] = (),
    ) -> Call[replies.Committed]:
        """Tell that the KV of a sequence's first ``num_computed_tokens`` tokens is written.

        Args:
            sequence_id: A sequence of this lease.
            num_computed_tokens: At most as many as were granted slots.
            block_hashes: Those not sent before.
            token_ids: Or the tokens not sent before.
            event_token_ids: Beside ``block_hashes``, as in `allocate`.

        Raises:
            SequenceNotFound: The lease has no such sequence.
        """
        content = content_body(block_hashes, token_ids, None, event_token_ids)
        fields = {"sequence_id": sequence_id, "num_computed_tokens": num_computed_tokens, **content}
        return self._change("commit", _read_committed, fields)

    def fork(
        self,
        sequence_id: str,
        new_sequence_ids: Sequence[str],
        *,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        event_token_ids: Sequence[int] = (),
    ) -> Call[replies.Forked]:
        """Begin sequences that go on from where another one stands, and share its blocks: samples, beams.

        All or none are begun. Tokens that have slots by now are common to all, and are not taken back any
        more. What of them is not computed yet, the call that gave their slots computes for all. Whoever then
        writes first into a last block that is not full gets a copy of it: ``allocate`` and ``step`` tell of
        it in ``copies``, and in ``replaced`` which entry of whose table is the copy from now on.

        Args:
            sequence_id: A sequence of this lease.
            new_sequence_ids: Of its forks, up to 128, each unique in the pool.
            block_hashes: Of the sequence's tokens, those not sent before. Those of its full blocks are sent
                by now or never.
            token_ids: Or the tokens not sent before.
            event_token_ids: Beside ``block_hashes``, as in `allocate`.

        Returns:
            The forks, in order, with their whole block tables. ``copies`` are to be made before tokens of the
            next call are computed: states that are written over are not shared.

        Raises:
            SequenceNotFound: The lease has no such sequence.
            SequenceExistsElsewhere: Another lease has one of the new ids.
            InvalidRequest: One of them is the lease's already, or hashes are missing.
            InsufficientBlocks: There are too few for the copies.
            TypeError: ``new_sequence_ids`` is a single id.
        """
        if isinstance(new_sequence_ids, str):
            raise TypeError(f"fork takes a list of new ids: pass [{new_sequence_ids!r}]")
        content = content_body(block_hashes, token_ids, None, event_token_ids)
        fields = {"sequence_id": sequence_id, "new_sequence_ids": list(new_sequence_ids), **content}
        return self._change("fork", _read_forked, fields, form=Form.JSON)

    def free(self, sequence_ids: Sequence[str]) -> Call[replies.Freed]:
        """Free whole sequences. Those that the lease does not hold come back as ``unknown``.

        Raises:
            TypeError: ``sequence_ids`` is a single id.
        """
        if isinstance(sequence_ids, str):
            raise TypeError(f"free takes a list of sequence ids: pass [{sequence_ids!r}]")
        return self._change("free", _read_freed, {"sequence_ids": list(sequence_ids)})

    def step(
        self,
        *,
        commit: StepCommit = _NO_COMMIT,
        free: Sequence[SequenceHandle] = (),
        extend: StepExtend = _NO_EXTEND,
        admit: Sequence[Admission] = (),
        step_id: int | None = None,
    ) -> Call[replies.Stepped]:
        """One scheduler step: commit, then free, then extend, then admit, as one unit.

        A step that has a number can be sent again, also by another call. One without may run beside others.

            stepped = lease.step(admit=[Admission(sequence_id=SequenceId("chat-1"), num_tokens=40)])
            lease.step(free=[SequenceHandle(7)])  # Admitted.sequence of another step

        Args:
            commit: What was computed.
            free: Sequences that are over.
            extend: Sequences that need slots for more tokens. ``only_changes`` does not matter: all that got
                slots are listed.
            admit: New sequences.
            step_id: Above that of every step before; or the last one's, to have the same step's reply again.

        Returns:
            What was given. Sequences without enough blocks are listed; the others went on.

        Raises:
            SequenceNotFound: A handle is not one of the lease's; nothing was done.
            InvalidRequest: Columns or counts contradict each other; nothing was done.
        """
        parts = {
            "step_id": step_id,
            "commit": commit_body(commit, self.form),
            "free": {"sequences": as_column(free, self.form)} if free else None,
            "extend": extend_body(extend, self.form),
            "admit": admissions_body(admit),
        }
        given = {name: part for name, part in parts.items() if part is not None}

        def read(response: Response) -> replies.Stepped:
            stepped = _read_stepped(response)
            return replace(stepped, extend=with_unlisted(stepped.extend, extend.sequences))

        return self._change("step", read, given, is_keyed=step_id is None)

    def allocate_blocks(self, num_blocks: int, *, wait_ms: int = 0) -> Call[replies.BlocksAllocated]:
        """Blocks without a sequence, the lease's until it frees them or ends.

        Args:
            num_blocks: At least 1.
            wait_ms: As in `allocate`.

        Raises:
            InsufficientBlocks, LimitExceeded: As `allocate`.
        """
        fields = {"num_blocks": num_blocks}
        return self._waiting(wait_ms, "blocks/allocate", _read_blocks_allocated, fields, form=Form.JSON)

    def free_blocks(self, block_ids: Sequence[BlockId]) -> Call[replies.BlocksFreed]:
        """Give back blocks of `allocate_blocks`.

        Raises:
            NotOwner: The lease does not hold one of them; none was freed.
            DoubleFree: One is named twice or free already; none was freed.
        """
        fields = {"block_ids": list(block_ids)}
        return self._change("blocks/free", _read_blocks_freed, fields, form=Form.JSON)

    def nothing_released(self) -> replies.LeaseReleased:
        """What a release says of a lease that has ended."""
        return replies.LeaseReleased(epoch=self.epoch, num_freed_sequences=0, num_freed_blocks=0)

    def _waiting(
        self,
        wait_ms: int,
        action: str,
        read: Callable[[Response], T],
        fields: Mapping[str, Any],
        *,
        form: Form | None = None,
    ) -> Call[T]:
        """A change that may wait for ``wait_ms``. Raises InvalidRequest."""
        if wait_ms == 0:
            return self._change(action, read, fields, form=form)
        if wait_ms < 0:
            raise InvalidRequest.of("wait_ms", "must be at least 0")
        call = self._change(action, read, {**fields, "wait_ms": wait_ms}, form=form)
        return call._replace(wait_s=wait_ms / 1000)

    def _change(
        self,
        action: str,
        read: Callable[[Response], T],
        fields: Mapping[str, Any],
        *,
        is_keyed: bool = True,
        form: Form | None = None,
    ) -> Call[T]:
        form = form or self.form
        return Call(
            method="POST",
            path=f"{pool_path(self.pool)}/{action}",
            read=read,
            body=encode({"lease_id": self.lease_id, "epoch": self.epoch, **fields}, form),
            form=form,
            is_keyed=is_keyed,
        )
