"""What the schedulers of a run know, and how they make commands of what is drawn.

The naive pool tells which leases and sequences there are. Where there is nothing to choose from, something is
asked for, so that no rule does nothing.
"""

from collections.abc import Sequence
from typing import Any

from blockyard.core.arithmetic import align_down
from blockyard.core.commands import (
    Admission,
    Allocate,
    Commit,
    CreateLease,
    ExpireLeases,
    Fork,
    Free,
    Step,
    StepCommit,
    StepExtend,
)
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId, TenantId
from core.drawn_pools import WITH_TOKENS
from core.drawn_requests import (
    MAX_TOKENS,
    SHARED_TOKENS,
    DrawnAdmission,
    DrawnExtension,
    DrawnStep,
    End,
    prompt_tokens,
)
from core.naive_pool import NaiveLease
from core.naive_sequence import NaiveContent, NaiveSequence
from core.pool_pair import PoolPair

SEQUENCE_IDS = [SequenceId(f"s{number}") for number in range(9)]


class Schedulers:
    """They begin with two leases of ``pair``, and take turns in being each of ``tenants``."""

    def __init__(self, pair: PoolPair, tenants: Sequence[TenantId]) -> None:
        self._pair = pair
        self._tenants = tenants
        self._config = pair.pool.config
        self._prompts: dict[SequenceHandle, int] = {}
        self._drawn_prompts: dict[SequenceId, int] = {}
        """Of what was asked for last, whatever came of it."""
        self._hashes = [
            NaiveContent().joined_by((), prompt_tokens(prompt), self._config.hasher(), MAX_TOKENS).hashes
            for prompt in range(len(SHARED_TOKENS))
        ]
        self._num_leases = 0
        self._last_step_id = 0
        for _ in range(2):
            self.create_lease()

    # Leases

    def create_lease(self, ttl_ms: int = 2_000, *, once: bool = False) -> None:
        self._num_leases += 1
        lease_id = LeaseId(f"l{self._num_leases}")
        tenant = self._tenants[self._num_leases % len(self._tenants)]
        command = CreateLease(lease_id=lease_id, tenant=tenant, holder="test", ttl_ms=ttl_ms)
        self._pair.do(command, once=once)

    def standing_leases(self) -> list[NaiveLease]:
        """Those that have not run out, of earlier epochs, too."""
        naive = self._pair.naive
        now_ms = max(self._pair.now_ms, naive.now_ms)
        return [lease for lease in naive.leases.values() if lease.expires_at_ms > now_ms]

    def stale_leases(self) -> list[NaiveLease]:
        """Those of earlier epochs."""
        return [lease for lease in self.standing_leases() if lease.epoch < self._pair.naive.epoch]

    def live_leases(self) -> list[NaiveLease]:
        """Those of this epoch that have not run out; one is created if need be."""
        live = [lease for lease in self.standing_leases() if lease.epoch == self._pair.naive.epoch]
        if live:
            return live
        self._pair.do(ExpireLeases())
        self.create_lease()
        return self.live_leases()

    def pick_lease(self, pick: int) -> NaiveLease:
        leases = self.live_leases()
        return leases[pick % len(leases)]

    # Sequences

    def held_by(self, lease: NaiveLease) -> list[NaiveSequence]:
        return self._pair.naive.sequences.held_by(lease.lease_id)

    def pick_sequence(self, pick: int) -> NaiveSequence | None:
        """A sequence of a live lease. If there is none, one is asked for, and the rule ends there."""
        live = {lease.lease_id for lease in self.live_leases()}
        known = [known for known in self._pair.naive.sequences.live.values() if known.lease_id in live]
        if known:
            return known[pick % len(known)]
        drawn = DrawnAdmission(prompt=pick % len(SHARED_TOKENS), num_tokens=1 + pick % MAX_TOKENS)
        self._pair.do(self.admit(self.pick_lease(pick), drawn))
        return None

    def preempt(self, lease: NaiveLease, pick: int) -> None:
        """What schedulers do when blocks are short, and mostly must: a sequence of the lease is freed."""
        held = self.held_by(lease)
        if held and pick % 4:
            sequence = held[pick % len(held)]
            self._pair.do(Free(lease_id=lease.lease_id, sequence_ids=[sequence.sequence_id]))

    def _unused_id(self) -> SequenceId:
        """An id that no sequence has; the sequences of all live leases are freed if need be."""
        unused = self._unused_ids()
        if unused:
            return unused[0]
        self._pair.do(ExpireLeases())
        for lease in self.standing_leases():
            ids = [known.sequence_id for known in self.held_by(lease)]
            self._pair.do(Free(lease_id=lease.lease_id, sequence_ids=ids))
        return self._unused_id()

    def _unused_ids(self) -> list[SequenceId]:
        used = {sequence_id for _, sequence_id in self._pair.naive.sequences.live}
        return [sequence_id for sequence_id in SEQUENCE_IDS if sequence_id not in used]

    # Commands

    def admit(self, lease: NaiveLease, drawn: DrawnAdmission) -> Allocate:
        return Allocate(lease_id=lease.lease_id, admission=self._admission(self._unused_id(), drawn))

    def extend(self, sequence: NaiveSequence, drawn: DrawnExtension) -> Allocate:
        num_computed, num_tokens = self._progress(
            sequence, sequence.num_committed, drawn.num_more, drawn.num_rejected
        )
        admission = Admission(
            sequence_id=sequence.sequence_id,
            num_tokens=num_tokens,
            max_new_tokens=self._num_until(drawn.end, num_computed, sequence.num_prompt)
            or drawn.max_new_tokens,
            end_at_state=drawn.end_at_state,
            num_lookahead_tokens=drawn.num_lookahead_tokens,
            full_sequence_must_fit=drawn.full_sequence_must_fit,
            **(self._told(sequence, num_tokens) if drawn.with_content else {}),
        )
        return Allocate(
            lease_id=sequence.lease_id,
            admission=admission,
            num_computed_tokens=num_computed if drawn.num_rejected else None,
        )

    def fork(self, sequence: NaiveSequence, num_forks: int, *, with_content: bool) -> Fork:
        """Of unused ids, if there are any: else of its own."""
        ids = self._unused_ids()[:num_forks] or [sequence.sequence_id]
        told = self._told(sequence, sequence.num_computed) if with_content else {}
        self._note_admitted()
        for sequence_id in ids:
            if sequence_id != sequence.sequence_id:
                self._drawn_prompts[sequence_id] = self._prompts[sequence.handle]
        return Fork(
            lease_id=sequence.lease_id,
            sequence_id=sequence.sequence_id,
            new_sequence_ids=ids,
            **told,
        )

    def go_on(self, sequences: Sequence[NaiveSequence]) -> Step:
        """A step of decoding: a token more each, but for those that are too long."""
        limit = min(self._config.max_model_len or MAX_TOKENS, MAX_TOKENS)
        able = [sequence for sequence in sequences if sequence.num_computed < limit]
        return Step(
            lease_id=sequences[0].lease_id,
            extend=StepExtend(
                sequences=[sequence.handle for sequence in able],
                num_tokens=[sequence.num_computed + 1 for sequence in able],
            ),
        )

    def commit(self, sequence: NaiveSequence, *, num_behind: int, with_content: bool) -> Commit:
        return Commit(
            lease_id=sequence.lease_id,
            sequence_id=sequence.sequence_id,
            num_computed_tokens=max(0, sequence.num_computed - num_behind),
            **(self._told(sequence, sequence.num_tokens) if with_content else {}),
        )

    def step(self, lease: NaiveLease, drawn: DrawnStep) -> Step:
        """One of all columns. Ids of sequences that it frees may be admitted again."""
        own = self.held_by(lease)
        committed: dict[SequenceHandle, int] = {}
        freed: list[NaiveSequence] = []
        if own:
            for pick, num_behind in drawn.commits:
                sequence = own[pick % len(own)]
                committed[sequence.handle] = max(0, sequence.num_computed - num_behind)
            freed = [own[index] for index in dict.fromkeys(pick % len(own) for pick in drawn.frees)]
        live = self._pair.naive.sequences.live
        ids = self._unused_ids()
        ids += [sequence.sequence_id for sequence in freed]
        if drawn.elsewhere:
            ids = [known.sequence_id for known in live.values() if known.lease_id != lease.lease_id][:1] + ids
        self._last_step_id += drawn.numbered
        return Step(
            lease_id=lease.lease_id,
            step_id=self._last_step_id if drawn.numbered else None,
            commit=StepCommit(sequences=list(committed), num_computed_tokens=list(committed.values())),
            free=[sequence.handle for sequence in freed],
            extend=self._step_extend([known for known in own if known not in freed], committed, drawn),
            admit=[
                self._admission(sequence_id, admission)
                for sequence_id, admission in zip(ids, drawn.admits, strict=False)
            ],
        )

    def empty_step(self, lease: NaiveLease) -> Step:
        self._last_step_id += 1
        return Step(lease_id=lease.lease_id, step_id=self._last_step_id)

    def _step_extend(
        self, kept: list[NaiveSequence], committed: dict[SequenceHandle, int], drawn: DrawnStep
    ) -> StepExtend:
        progress: dict[SequenceHandle, tuple[int, int]] = {}
        block_hashes = {}
        token_ids = {}
        event_token_ids = {}
        for pick, num_more, num_rejected, end in drawn.extends if kept else []:
            sequence = kept[pick % len(kept)]
            handle = sequence.handle
            num_committed = max(sequence.num_committed, committed.get(handle, 0))
            num_computed, num_tokens = self._progress(sequence, num_committed, num_more, num_rejected)
            num_until = self._num_until(end, num_computed, sequence.num_prompt) or num_tokens
            progress[handle] = num_computed, min(num_tokens, num_computed + num_until)
            content = self._told(sequence, progress[handle][1])
            block_hashes[handle] = content.get("block_hashes", ())
            token_ids[handle] = content.get("token_ids", ())
            event_token_ids[handle] = content.get("event_token_ids", ())
        counted = {sequence.handle: sequence.num_computed for sequence in kept}
        recount: list[int] | None = [num_computed for num_computed, _ in progress.values()]
        if recount == [counted[handle] for handle in progress]:
            recount = None  # the pool's own counts are right
        return StepExtend(
            sequences=list(progress),
            num_tokens=[num_tokens for _, num_tokens in progress.values()],
            num_computed_tokens=recount,
            only_changes=drawn.only_changes,
            num_lookahead_tokens=drawn.num_lookahead_tokens,
            block_hashes=block_hashes if drawn.with_content else {},
            token_ids=token_ids if drawn.with_content else {},
            event_token_ids=event_token_ids if drawn.with_content else {},
        )

    # Figures and content

    def prompt(self, prompt: int, num_tokens: int, *, by_token_ids: bool) -> dict[str, Any]:
        """A prompt's first tokens, or the hashes of their full blocks, as a call's fields."""
        if by_token_ids:
            return {"token_ids": prompt_tokens(prompt)[:num_tokens]}
        return {"block_hashes": self._hashes[prompt][: num_tokens // self._config.hash_block_size]}

    def _admission(self, sequence_id: SequenceId, drawn: DrawnAdmission) -> Admission:
        self._note_admitted()
        self._drawn_prompts[sequence_id] = drawn.prompt
        num_tokens = min(drawn.num_tokens, self._config.max_model_len or MAX_TOKENS)
        content = self.prompt(drawn.prompt, num_tokens, by_token_ids=drawn.by_token_ids)
        if drawn.num_withheld and not drawn.by_token_ids:
            content = {"block_hashes": content["block_hashes"][: -drawn.num_withheld]}
        num_cached = 0
        if not drawn.skip_prefix_cache:
            num_cached = self._pair.naive.lookup(num_tokens=num_tokens, **content).num_cached_tokens
        num_until = self._num_until(drawn.end, num_cached, drawn.num_prompt_tokens or num_tokens)
        content |= self._event_tokens(drawn.prompt, 0, len(content.get("block_hashes", ())))
        return Admission(
            sequence_id=sequence_id,
            num_tokens=num_tokens,
            max_new_tokens=num_until or drawn.max_new_tokens,
            end_at_state=drawn.end_at_state,
            num_prompt_tokens=drawn.num_prompt_tokens,
            num_encoder_tokens=drawn.num_encoder_tokens,
            num_lookahead_tokens=drawn.num_lookahead_tokens,
            skip_prefix_cache=drawn.skip_prefix_cache,
            full_sequence_must_fit=drawn.full_sequence_must_fit,
            **content,
        )

    def _told(self, sequence: NaiveSequence, num_tokens: int) -> dict[str, Any]:
        """The same, and beside hashes their tokens where events are to have them."""
        content = self._content(sequence, num_tokens)
        prompt, num_sent = self._prompts[sequence.handle], len(sequence.content.hashes)
        return content | self._event_tokens(prompt, num_sent, num_sent + len(content.get("block_hashes", ())))

    def _note_admitted(self) -> None:
        """Keep the prompts of the sequences that there are: what is asked for next may be refused."""
        for sequence in self._pair.naive.sequences.live.values():
            if sequence.handle not in self._prompts:
                self._prompts[sequence.handle] = self._drawn_prompts[sequence.sequence_id]

    def _event_tokens(self, prompt: int, begin: int, end: int) -> dict[str, Any]:
        """The tokens of a prompt's hashes from the one of number ``begin`` to that before ``end``."""
        events, size = self._config.events, self._config.hash_block_size
        if events is None or events.topic != WITH_TOKENS or begin == end:
            return {}
        return {"event_token_ids": prompt_tokens(prompt)[begin * size : end * size]}

    def _content(self, sequence: NaiveSequence, num_tokens: int) -> dict[str, Any]:
        """Hashes or tokens of a sequence's first ``num_tokens`` tokens that were not sent yet."""
        self._note_admitted()
        prompt, sent = self._prompts[sequence.handle], sequence.content
        if sent.token_ids:
            return {"token_ids": prompt_tokens(prompt)[len(sent.token_ids) : num_tokens]}
        num_hashes = num_tokens // self._config.hash_block_size
        return {"block_hashes": self._hashes[prompt][len(sent.hashes) : num_hashes]}

    def _progress(
        self, sequence: NaiveSequence, num_committed: int, num_more: int, num_rejected: int
    ) -> tuple[int, int]:
        """Computed tokens after some were rejected, and all tokens after more came: none, it may be."""
        num_computed = max(num_committed, sequence.num_computed - num_rejected)
        limit = min(self._config.max_model_len or MAX_TOKENS, MAX_TOKENS)
        return num_computed, min(max(num_computed, sequence.num_tokens - num_rejected) + num_more, limit)

    def _num_until(self, end: End, num_computed: int, num_prompt: int) -> int | None:
        """Tokens from there to where the computed ones are to end; None if that is anywhere."""
        edge = align_down(num_prompt - 1, self._config.hash_block_size)
        if end is End.EDGE and edge > num_computed:
            return edge - num_computed
        if end is End.ANYWHERE:
            return None
        block_size = max(group.block_size for group in self._config.groups)
        return block_size - num_computed % block_size
