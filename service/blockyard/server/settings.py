"""What a server can be told: each field an option of ``blockyard serve`` and a ``BLOCKYARD_*`` variable.

A field carries its `Rule`: its sentence for ``--help`` and the values that it takes. The options are made
from these rules, and whoever makes `Settings` in another way is held to them too.
"""

import re
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from blockyard.server.events.endpoints import check_event_endpoint
from blockyard.server.journal.sync import Sync
from blockyard.server.logs import LEVELS

T = TypeVar("T", bool, int, str)

DEFAULT_DATA_DIR = "blockyard-data"

NODE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""Of a node's name, as of a pool's."""

MAX_TOKENS = 2**20
"""Most token ids, embeddings or block hashes in one list: a million, hashed in a tenth of a second."""

MAX_PREFIXES = 2**16
"""Most prefixes that any server looks for in one call."""

MAX_WAIT_MS = 3_600_000
"""Longest time that any server lets a call wait: an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a setting is for, and what it may be.

    Attributes:
        sentence: For people.
        at_least, at_most: Bounds of a number, both inclusive; None for none.
        choices: All values of a word; empty where any will do.
    """

    sentence: str
    at_least: int | None = None
    at_most: int | None = None
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Hold ``value`` to the rule.

        Raises:
            ValueError: It breaks it; the text starts with ``name``.
        """
        if self.at_least is not None and value < self.at_least:
            raise ValueError(f"{name} is {value}, and at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise ValueError(f"{name} is {value}, and at most {self.at_most}")
        if self.choices and value not in self.choices:
            raise ValueError(f"{name} is {value!r}, and one of {', '.join(self.choices)}")


def setting(
    default: T,
    sentence: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """A field of `Settings` with its default and its `Rule`."""
    rule = Rule(sentence=sentence, at_least=at_least, at_most=at_most, choices=choices)
    return field(default=default, metadata={"rule": rule})


def rule_of(known: Field[Any]) -> Rule:
    """The rule that a field of `Settings` carries."""
    rule: Rule = known.metadata["rule"]
    return rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A server's settings; each field's sentence says what it is."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8484, "Port to listen on; 0 takes a free one.", at_least=0, at_most=65_535)
    token_file: str = setting(
        "", "File of the tokens that callers need, as 'blockyard token' makes it; read again when it changes."
    )
    tls_cert: str = setting("", "Certificate chain of the server in PEM, with which it speaks HTTPS alone.")
    tls_key: str = setting("", "Private key of the certificate, in PEM.")
    tls_client_ca: str = setting(
        "", "Authorities in PEM, one of which has to have signed each caller's certificate."
    )
    insecure: bool = setting(
        False, "Let whoever reaches an address that is not loopback do everything, without a token or a key."
    )
    data_dir: str = setting(
        DEFAULT_DATA_DIR, "Directory of the journal and its snapshots, made if it is missing; one server's."
    )
    volatile: bool = setting(False, "Keep all state in memory, where it ends with the server.")
    sync: str = setting(
        "process",
        "What an answered call survives: the end of the process, or in full the loss of power as well.",
        choices=tuple(sync.value for sync in Sync),
    )
    snapshot_commands: int = setting(
        100_000, "Snapshot of a pool after so many commands; the journal before it goes.", at_least=1
    )
    snapshot_mib: int = setting(64, "The same after so many MiB of journal.", at_least=1)
    snapshot_interval_s: int = setting(600, "The same after so long, if there was any command.", at_least=1)
    cluster: str = setting(
        "",
        "NATS servers with JetStream, with commas between, such as nats://a:4222,nats://b:4222: the server "
        "is a node of a cluster, and writes there instead of to a data directory (extra: cluster).",
    )
    cluster_name: str = setting(
        "blockyard",
        "Name of the cluster, with which its streams and buckets begin; letters, digits, '_', '-'.",
    )
    cluster_replicas: int = setting(
        3, "Copies that JetStream keeps of each stream and bucket that is made.", at_least=1, at_most=5
    )
    cluster_credentials: str = setting("", "File of the NATS user's credentials; empty: none are needed.")
    cluster_ca: str = setting(
        "", "Authorities in PEM that have signed the certificates of the NATS servers; goes with tls:// URLs."
    )
    node_name: str = setting("", "This node's name in the cluster, its own alone; empty: the host's name.")
    node_lease_ms: int = setting(
        2_000,
        "How long a node may answer for its pools without having been heard in JetStream: so long after its "
        "end others take over. The same for all nodes.",
        at_least=200,
        at_most=600_000,
    )
    advertise_url: str = setting(
        "",
        "Where clients and other nodes reach this node, http://host:port; empty: the address it listens on.",
    )
    proxy: bool = setting(
        False, "Ask the owner of a pool for the caller, where other nodes send the caller there."
    )
    proxy_ca: str = setting(
        "", "Authorities in PEM that have signed the other nodes' certificates, for --proxy."
    )
    event_endpoint: str = setting(
        "", "ZeroMQ endpoint that KV events are published at, such as tcp://127.0.0.1:5557; empty: none."
    )
    event_replay_endpoint: str = setting(
        "", "ZeroMQ endpoint where missed events are asked for, such as tcp://127.0.0.1:5558; empty: none."
    )
    event_curve_key: str = setting(
        "",
        "File with the server's secret key for these endpoints, from blockyard curve-key; empty: none.",
    )
    event_curve_clients: str = setting(
        "", "Directory of the public keys, *.key, of those who may follow events; goes with event_curve_key."
    )
    max_connections: int = setting(
        16_384,
        "Connections at a time, or as many as the process may have files open; more are answered overloaded.",
        at_least=1,
    )
    max_head_bytes: int = setting(
        65_536, "Largest head of a request: its first line and headers.", at_least=1_024
    )
    head_timeout_s: int = setting(
        10, "Time for a request's head to arrive in, and for a new connection's first byte.", at_least=1
    )
    max_body_bytes: int = setting(32 * 1024 * 1024, "Largest request body.", at_least=1)
    body_timeout_s: int = setting(10, "Time for a request's body to arrive in.", at_least=1)
    request_timeout_s: int = setting(
        60,
        "Time for a request's answer once its body is there; of a stream of events, for its reader to take "
        "a part.",
        at_least=1,
    )
    idle_timeout_s: int = setting(120, "How long a connection stays open between requests.", at_least=1)
    max_hashes_per_call: int = setting(
        MAX_TOKENS,
        "Block hashes, token ids and embeddings in one call, all its lists together.",
        at_least=1,
        at_most=MAX_TOKENS,
    )
    max_prefixes_per_call: int = setting(
        1_024, "Prefixes that one call may ask about.", at_least=1, at_most=MAX_PREFIXES
    )
    max_pools: int = setting(1_024, "Most pools at a time.", at_least=1)
    max_pool_blocks: int = setting(8_388_608, "Most blocks of one pool.", at_least=1)
    max_leases_per_tenant: int = setting(10_000, "Leases of one tenant in one pool.", at_least=1)
    max_sequences_per_tenant: int = setting(100_000, "Live sequences of one tenant in one pool.", at_least=1)
    max_pins_per_tenant: int = setting(1_000, "Pins of one tenant in one pool.", at_least=0)
    max_pinned_hashes_per_tenant: int = setting(
        262_144, "Block hashes that the soft ones of them go by, together.", at_least=0
    )
    max_waiting_calls: int = setting(1_024, "Calls that wait for blocks at a time.", at_least=0)
    max_waiting_calls_per_tenant: int = setting(
        256, "The same of one tenant, so that it leaves room for others.", at_least=0
    )
    max_waiting_bytes: int = setting(
        128 * 1024 * 1024, "Bodies of all calls that wait, together; of one tenant, half of it.", at_least=0
    )
    max_wait_ms: int = setting(
        60_000, "Longest time that a call may wait for blocks.", at_least=0, at_most=MAX_WAIT_MS
    )
    max_requests_in_flight: int = setting(
        4_096, "Requests worked on at a time; more are answered overloaded.", at_least=0
    )
    max_turn_ms: int = setting(
        250,
        "How long the calls that have arrived together may take; the rest are answered overloaded.",
        at_least=1,
    )
    max_subscribers: int = setting(1_000, "Streams of server-sent events open at a time.", at_least=0)
    shutdown_timeout_s: int = setting(
        30, "How long requests in flight may take once the server is told to stop.", at_least=0
    )
    traces: bool = setting(
        False,
        "Send OpenTelemetry traces to where OTEL_EXPORTER_OTLP_ENDPOINT says (extra: tracing); hot calls "
        "then take longer.",
    )
    log_level: str = setting("info", "What is logged; debug has each request.", choices=tuple(LEVELS))
    log_format: str = setting("json", "json for machines, console for people.", choices=("json", "console"))

    def __post_init__(self) -> None:
        """Hold every field to its rule.

        Raises:
            ValueError: One breaks it.
        """
        for known in fields(self):
            rule_of(known).check(known.name, getattr(self, known.name))
        self._check_cluster()
        for names in (("tls_cert", "tls_key"), ("event_curve_key", "event_curve_clients")):
            if len({bool(getattr(self, name)) for name in names}) > 1:
                options = " and ".join(f"--{name.replace('_', '-')}" for name in names)
                raise ValueError(f"{options} go together, and one of them is not given")
        if self.tls_client_ca and not self.tls_cert:
            raise ValueError("--tls-client-ca goes with --tls-cert and --tls-key, which are not given")
        for name in ("event_replay_endpoint", "event_curve_key"):
            if getattr(self, name) and not self.event_endpoint:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(f"{option} goes with --event-endpoint, which is not given")
        for name in ("event_endpoint", "event_replay_endpoint"):
            check_event_endpoint(
                f"--{name.replace('_', '-')}",
                getattr(self, name),
                has_curve=bool(self.event_curve_key),
                is_authenticating=bool(self.token_file or self.tls_client_ca),
                is_insecure=self.insecure,
            )

    def _check_cluster(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.cluster_name):
            raise ValueError(
                f"--cluster-name has 1 to 64 letters, digits, '_' and '-': {self.cluster_name!r}"
            )
        if self.node_name and not re.fullmatch(NODE_NAME_PATTERN, self.node_name):
            raise ValueError(
                "--node-name has letters, digits, '.', '_' and '-', a letter or digit first: "
                f"{self.node_name!r}"
            )
        if self.advertise_url and not re.fullmatch(r"https?://[^/?#@]+", self.advertise_url):
            raise ValueError(
                f"--advertise-url is http://host:port or https://host:port: {self.advertise_url!r}"
            )
        if self.cluster:
            if self.volatile:
                raise ValueError(
                    "--volatile and --cluster exclude each other: a cluster's state is in JetStream"
                )
            for url in self.cluster.split(","):
                if not re.fullmatch(r"(nats|tls)://[^/?#\s]+", url.strip()):
                    raise ValueError(
                        f"--cluster has URLs such as nats://host:4222, with commas between: {url!r}"
                    )
        elif self.proxy:
            raise ValueError("--proxy goes with --cluster, which is not given")
        if self.proxy_ca and not self.proxy:
            raise ValueError("--proxy-ca goes with --proxy, which is not given")
