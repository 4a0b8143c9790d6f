"""The wire contract from the client's side: every endpoint once, as a method that builds its `Call`.

Nothing here sends. The synchronous and the asynchronous objects take their methods from these classes, so a
docstring here is that method's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from blockyard.client.bodies import content_body, extras_body
from blockyard.client.call import Call, encode_given, read_nothing, read_probe, reader, success
from blockyard.client.cluster_report import ClusterReport
from blockyard.client.errors import UnexpectedReply
from blockyard.client.kv_events import InvalidEvents, KvSnapshot
from blockyard.client.paths import check_pool_name, pool_path
from blockyard.client.pin_protocol import PinCalls
from blockyard.client.pool_options import PoolOptions, options_body
from blockyard.client.reports import (
    Hashed,
    PoolDescription,
    PoolList,
    Registration,
    WorkerList,
    WorkerReport,
)
from blockyard.client.wire import Form, Response, encode
from blockyard.core import replies
from blockyard.core.audit import Audit
from blockyard.core.errors import PoolNotFound, WorkerNotFound
from blockyard.core.extra_keys import Extras
from blockyard.core.hashing import check_token_ids
from blockyard.core.ids import BlockHash
from blockyard.core.statistics import Statistics

_read_hashed = reader(Hashed)
_read_description = reader(PoolDescription)
_read_pool_list = reader(PoolList)
_read_cluster = reader(ClusterReport)
_read_statistics = reader(Statistics)
_read_audit = reader(Audit)
_read_reset = reader(replies.CacheReset)
_read_found = reader(replies.Found)
_read_sequence = reader(replies.SequenceState)
_read_granted = reader(replies.LeaseGranted)
_read_registration = reader(Registration)
_read_noted = reader(replies.WorkerNoted)
_read_worker_list = reader(WorkerList)


@dataclass(frozen=True, slots=True)
class ServerCalls:
    """Calls about a server.

    Attributes:
        form: Of bodies on the routes that take both forms.
    """

    form: Form = Form.MSGPACK

    def health(self) -> Call[bool]:
        """Whether the server runs: it answers the one try."""
        return Call(method="GET", path="/healthz", read=read_probe, unreachable=False)

    def ready(self) -> Call[bool]:
        """Whether the server takes calls: it answers the one try, and neither starts nor stops."""
        return Call(method="GET", path="/readyz", read=read_probe, unreachable=False)

    def hash(
        self,
        token_ids: Sequence[int],
        *,
        algorithm: str,
        block_size: int,
        seed: str | None = None,
        extra_key_form: str | None = None,
        extras: Extras | None = None,
    ) -> Call[Hashed]:
        """Let the server hash: for a check, or where ``blockyard.core.hash_chain`` cannot run.

        Args:
            token_ids: All tokens of the sequence; those after the last full block do not count.
            algorithm: One of `blockyard.core.hashing.HashAlgorithm`.
            block_size: Tokens a block.
            seed: Secret seed; needed by the xxhash family.
            extra_key_form: ``tagged`` (default) or ``bare``.
            extras: What the KV depends on beside the tokens.

        Raises:
            InvalidRequest: The algorithm is unknown or needs a seed, or a token id is out of range.
        """
        body: dict[str, Any] = {
            "algorithm": algorithm,
            "seed": seed,
            "block_size": block_size,
            "token_ids": check_token_ids(token_ids),
            **extras_body(extras),
        }
        if extra_key_form is not None:
            body["extra_key_form"] = extra_key_form
        return Call(method="POST", path="/v1/hash", read=_read_hashed, body=encode(body, Form.JSON))

    def pools(self) -> Call[Sequence[PoolDescription]]:
        """All pools; in a cluster, those of the node that is asked."""
        return Call(method="GET", path="/v1/pools", read=_read_pools)

    def cluster(self) -> Call[ClusterReport]:
        """The cluster, as the node that is asked knows it.

        Raises:
            NoCluster: The server stands alone.
        """
        return Call(method="GET", path="/v1/cluster", read=_read_cluster)

    def create_pool(
        self, name: str, *, num_blocks: int | None = None, **options: Unpack[PoolOptions]
    ) -> Call[PoolDescription]:
        """Create a pool, or find the one that was created under this name with the same arguments.

        Args:
            name: Of the pool: letters, digits, ``.``, ``_`` and ``-``, a letter or digit first, at most 128.
            num_blocks: Blocks, the null block included; at least 1. A plan's follow from its memory.
            options: ``block_size``, ``groups`` or ``plan``, and what else `PoolOptions` has.

        Raises:
            PoolExists: The name is taken by another configuration.
            InvalidRequest: The name cannot be, or sizes do not fit each other.
            TypeError: There is no such option.
        """
        sizes = {} if num_blocks is None else {"num_blocks": num_blocks}
        body = encode({**sizes, **options_body(options)}, Form.JSON)
        return Call(method="PUT", path=pool_path(check_pool_name(name)), read=_read_description, body=body)


@dataclass(frozen=True, slots=True)
class PoolCalls(PinCalls):
    """Calls about one pool.

    Attributes:
        name: The pool's.
        form: Of bodies on the routes that take both forms.

    Raises InvalidRequest where no pool can have this name.
    """

    form: Form = Form.MSGPACK

    def describe(self) -> Call[PoolDescription]:
        """The pool's configuration.

        Raises:
            PoolNotFound: There is none of this name.
        """
        return Call(method="GET", path=pool_path(self.name), read=_read_description)

    def delete(self, *, force: bool = False) -> Call[None]:
        """Delete the pool.

        Args:
            force: Even while blocks are held.

        Raises:
            PoolInUse: Blocks are held; nothing has changed.
            PoolNotFound: There is none of this name.
        """
        path = pool_path(self.name) + ("?force=true" if force else "")
        gone = (PoolNotFound, None)
        return Call(method="DELETE", path=path, read=read_nothing, if_gone=gone)

    def stats(self) -> Call[Statistics]:
        """Figures of this moment. ``hit_rate`` is None before the first query, ``eviction_weight`` of lru."""
        return Call(method="GET", path=pool_path(self.name, "stats"), read=_read_statistics)

    def audit(self) -> Call[Audit]:
        """The pool recounted from its block tables. O(blocks): not for every second."""
        return Call(method="GET", path=pool_path(self.name, "audit"), read=_read_audit)

    def event_snapshot(self) -> Call[KvSnapshot]:
        """All that is a hit, as events. In msgpack hashes are in the form of the pool's events, else in hex.

        It can be large, some 100 bytes a cached block: give the client the time.

        Raises:
            NoEvents: The pool was created without events.
            PoolNotFound: There is none of this name.
        """
        path = pool_path(self.name, "events", "snapshot")
        return Call(method="GET", path=path, read=_read_event_snapshot, form=self.form)

    def reset_prefix_cache(self) -> Call[replies.CacheReset]:
        """Forget all cached prefixes; ``ok`` is false, and nothing has changed, while any block is held."""
        path = pool_path(self.name, "reset_prefix_cache")
        return Call(method="POST", path=path, read=_read_reset, is_keyed=True)

    def lookup(
        self,
        num_tokens: int,
        *,
        block_hashes: Sequence[BlockHash] = (),
        token_ids: Sequence[int] = (),
        extras: Extras | None = None,
        tenant_only: bool = False,
    ) -> Call[replies.Found]:
        """The longest cached prefix of a sequence. Changes nothing and holds nothing.

        Args:
            num_tokens: Tokens of the sequence, at least 1; the hit is always shorter.
            block_hashes: Of its full blocks, at the pool's hash block size.
            token_ids: Or its tokens, for the server to hash.
            extras: With ``token_ids``: what the KV depends on beside them.
            tenant_only: Find what no other tenant may: where a cache salt is hashed into ``block_hashes``.
                One in ``extras`` says it by itself.
        """
        content = content_body(block_hashes, token_ids, extras, tenant_only=tenant_only)
        body = {"num_tokens": num_tokens, **content}
        return Call(
            method="POST",
            path=pool_path(self.name, "lookup"),
            read=_read_found,
            body=encode(body, self.form),
            form=self.form,
        )

    def sequence(self, sequence_id: str) -> Call[replies.SequenceState]:
        """A live sequence's block tables and counts.

        Raises:
            SequenceNotFound: None has this id.
        """
        path = pool_path(self.name, "sequences", sequence_id)
        return Call(method="GET", path=path, read=_read_sequence)

    def create_lease(self, holder: str, ttl_ms: int) -> Call[replies.LeaseGranted]:
        """A new lease.

        Args:
            holder: Who it is, for people who watch.
            ttl_ms: Above 0; how long it stands without a call that carries it.
        """
        return Call(
            method="POST",
            path=pool_path(self.name, "leases"),
            read=_read_granted,
            body=encode({"holder": holder, "ttl_ms": ttl_ms}, Form.JSON),
            is_keyed=True,
        )

    def workers(self) -> Call[Sequence[WorkerReport]]:
        """The pool's workers, by rank."""
        return Call(method="GET", path=pool_path(self.name, "workers"), read=_read_workers)

    def register_worker(
        self, worker_id: str, *, rank: int, device: str, incarnation: str
    ) -> Call[Registration]:
        """Take a rank's place in the pool, or the same place again.

        Args:
            worker_id: The worker's name, unique in the pool; the same after a restart.
            rank: In the pool's plan, from 0.
            device: Where its tensors lie, for people.
            incarnation: As old as its memory: another one means that the rank's content is gone.

        Raises:
            WorkerReplaced: Another worker has the rank, and is alive.
            InvalidRequest: The plan has no such rank.
            PoolNotFound: There is no such pool.
        """
        body = {"worker_id": worker_id, "rank": rank, "device": device, "incarnation": incarnation}
        return Call(
            method="POST",
            path=pool_path(self.name, "workers"),
            read=_read_registration,
            body=encode(body, Form.JSON),
        )

    def heartbeat(self, worker_id: str, incarnation: str) -> Call[replies.WorkerNoted]:
        """Say that a worker is there.

        Args:
            worker_id: Its name.
            incarnation: That it registered with.

        Raises:
            WorkerNotFound: It is not registered.
            WorkerReplaced: Another incarnation of it is.
        """
        return Call(
            method="POST",
            path=pool_path(self.name, "workers", worker_id, "heartbeat"),
            read=_read_noted,
            body=encode({"incarnation": incarnation}, Form.JSON),
        )

    def remove_worker(self, worker_id: str, incarnation: str | None = None) -> Call[None]:
        """Forget a worker that has gone for good: what its rank cached is gone with it.

        Args:
            worker_id: Its name.
            incarnation: Only if it registered with this; None: whatever it registered with.

        Raises:
            WorkerNotFound: It is not registered.
            WorkerReplaced: Another incarnation of it is.
        """
        return Call(
            method="DELETE",
            path=pool_path(self.name, "workers", worker_id),
            read=read_nothing,
            body=encode_given(Form.JSON, incarnation=incarnation),
            if_gone=(WorkerNotFound, None),
        )


def _read_event_snapshot(response: Response) -> KvSnapshot:
    document = success(response)
    try:
        return KvSnapshot.from_document(document)
    except InvalidEvents as error:
        raise UnexpectedReply(str(error), {"status": response.status}) from error


def _read_workers(response: Response) -> Sequence[WorkerReport]:
    return _read_worker_list(response).workers


def _read_pools(response: Response) -> Sequence[PoolDescription]:
    return _read_pool_list(response).pools
