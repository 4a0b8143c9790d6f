"""Clients of a blockyard server.

`Client` and `AsyncClient` reach a server; `Lease` holds blocks; `Scheduler` speaks the step protocol for an
engine with continuous batching.
"""

from blockyard.client.async_client import AsyncClient, AsyncPool
from blockyard.client.client import Client, Pool
from blockyard.client.cluster_report import ClusterPoolReport, ClusterReport, NodeReport
from blockyard.client.errors import (
    ConnectionLost,
    EventsRefused,
    OtherRefusal,
    StaleOwner,
    TlsRefused,
    UnexpectedReply,
    may_have_been_done,
)
from blockyard.client.kv_events import KvBatch, KvSnapshot
from blockyard.client.kv_mirror import KvMirror
from blockyard.client.lease import AsyncLease, Lease
from blockyard.client.pool_options import PoolOptions
from blockyard.client.reports import Hashed, PoolDescription, Registration, TenantReport, WorkerReport
from blockyard.client.retry import NO_RETRY, RetryPolicy
from blockyard.client.scheduler import AsyncScheduler, Scheduler
from blockyard.client.step_result import Scheduled, StepResult
from blockyard.client.tls import Tls, TlsFiles
from blockyard.client.transport import (
    AsyncHttpxTransport,
    AsyncTransport,
    HttpxTransport,
    Transport,
)
from blockyard.client.wire import Form, Request, Response
from blockyard.core.audit import Audit, Holder
from blockyard.core.commands import Admission, StepCommit, StepExtend
from blockyard.core.config import EventsConfig, Eviction, GroupConfig, HashForm, Publish
from blockyard.core.errors import (
    BlockyardError,
    BodyTooLarge,
    DoubleFree,
    Forbidden,
    HeadTooLarge,
    InsufficientBlocks,
    InvalidRequest,
    LeaseExpired,
    LimitExceeded,
    NoCluster,
    NoEvents,
    NotOwner,
    NotReady,
    Overloaded,
    PoolElsewhere,
    PoolExists,
    PoolInUse,
    PoolNotFound,
    QuotaExceeded,
    RequestTimeout,
    SequenceExistsElsewhere,
    SequenceNotFound,
    StaleEpoch,
    TenantNotFound,
    Unauthorized,
    WorkerNotFound,
    WorkerReplaced,
)
from blockyard.core.extra_keys import ExtraKeyForm, Extras, Lora, MultiModalFeature, PromptEmbeds
from blockyard.core.hash_chain import HashChain, Hasher, external_int64
from blockyard.core.hashing import HashAlgorithm
from blockyard.core.ids import LeaseId, SequenceHandle, SequenceId, TenantId
from blockyard.core.replies import (
    Admitted,
    Allocated,
    BlocksAllocated,
    BlocksFreed,
    CacheReset,
    Committed,
    Found,
    Freed,
    LeaseGranted,
    LeaseReleased,
    Refused,
    SequenceState,
    StepExtended,
    Stepped,
    WorkerNoted,
)
from blockyard.core.statistics import Statistics
from blockyard.core.tenant_hash import tenant_hashes

__all__ = [
    "NO_RETRY",
    "Admission",
    "Admitted",
    "Allocated",
    "AsyncClient",
    "AsyncHttpxTransport",
    "AsyncLease",
    "AsyncPool",
    "AsyncScheduler",
    "AsyncTransport",
    "Audit",
    "BlocksAllocated",
    "BlocksFreed",
    "BlockyardError",
    "BodyTooLarge",
    "CacheReset",
    "Client",
    "ClusterPoolReport",
    "ClusterReport",
    "Committed",
    "ConnectionLost",
    "DoubleFree",
    "EventsConfig",
    "EventsRefused",
    "Eviction",
    "ExtraKeyForm",
    "Extras",
    "Forbidden",
    "Form",
    "Found",
    "Freed",
    "GroupConfig",
    "HashAlgorithm",
    "HashChain",
    "HashForm",
    "Hashed",
    "Hasher",
    "HeadTooLarge",
    "Holder",
    "HttpxTransport",
    "InsufficientBlocks",
    "InvalidRequest",
    "KvBatch",
    "KvMirror",
    "KvSnapshot",
    "Lease",
    "LeaseExpired",
    "LeaseGranted",
    "LeaseId",
    "LeaseReleased",
    "LimitExceeded",
    "Lora",
    "MultiModalFeature",
    "NoCluster",
    "NoEvents",
    "NodeReport",
    "NotOwner",
    "NotReady",
    "OtherRefusal",
    "Overloaded",
    "Pool",
    "PoolDescription",
    "PoolElsewhere",
    "PoolExists",
    "PoolInUse",
    "PoolNotFound",
    "PoolOptions",
    "PromptEmbeds",
    "Publish",
    "QuotaExceeded",
    "Refused",
    "Registration",
    "Request",
    "RequestTimeout",
    "Response",
    "RetryPolicy",
    "Scheduled",
    "Scheduler",
    "SequenceExistsElsewhere",
    "SequenceHandle",
    "SequenceId",
    "SequenceNotFound",
    "SequenceState",
    "StaleEpoch",
    "StaleOwner",
    "Statistics",
    "StepCommit",
    "StepExtend",
    "StepExtended",
    "StepResult",
    "Stepped",
    "TenantId",
    "TenantNotFound",
    "TenantReport",
    "Tls",
    "TlsFiles",
    "TlsRefused",
    "Transport",
    "Unauthorized",
    "UnexpectedReply",
    "WorkerNotFound",
    "WorkerNoted",
    "WorkerReplaced",
    "WorkerReport",
    "external_int64",
    "may_have_been_done",
    "tenant_hashes",
]
