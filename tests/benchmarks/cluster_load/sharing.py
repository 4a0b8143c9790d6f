"""Two pools under load, of one node or of two, and whose processor time it takes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.claims.saturated import BLOCK_SIZE, request
from benchmarks.cluster_load.two_nodes import TwoNodes
from benchmarks.load.processes import Serving
from blockyard.client.wire import Form
from cluster.node_process import NodeProcess
from cluster.sending import ClusterSender
from crash.calls import Call, Verb

GENERATOR = Path(__file__).parents[1] / "load" / "generator.py"
NUM_CONNECTIONS, NUM_BLOCKS, NUM_TOKENS = 16, 10_000, 256
TTL_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A turn; microseconds of processor time are those that a call takes.

    Attributes:
        calls_a_second: Of both pools.
        cores_busy: Processors that all of it kept at work.
        nodes_us: Of the nodes.
        nats_us: Of NATS servers.
        clients_us: Of those who call.
    """

    calls_a_second: float
    cores_busy: float
    nodes_us: float
    nats_us: float
    clients_us: float

    @property
    def total_us(self) -> float:
        """Of everybody."""
        return self.nodes_us + self.nats_us + self.clients_us


def shared_load(cluster: TwoNodes, seconds: float) -> tuple[Shared, Shared]:
    """First both pools are of one node, then each is of its own."""
    first, second = cluster.nodes
    one = _load(cluster, [(first, "left"), (first, "right")], seconds)
    two = _load(cluster, [(first, "left"), (second, "right")], seconds)
    return one, two


def _load(cluster: TwoNodes, placed: Sequence[tuple[NodeProcess, str]], seconds: float) -> Shared:
    served = [(node, *_made(cluster, node, prefix)) for node, prefix in placed]
    nodes = [Serving(0, node.process_id) for node in cluster.nodes]
    nats = [Serving(0, cluster.nats.process_id(index)) for index in cluster.nats.running]
    before = [sum(each.cpu_seconds() for each in some) for some in (nodes, nats)]
    began = os.times()
    told = _generate([(node, _requests(pool, lease)) for node, pool, lease in served], seconds)
    ended = os.times()
    after = [sum(each.cpu_seconds() for each in some) for some in (nodes, nats)]
    of_nodes, of_nats = (late - early for late, early in zip(after, before, strict=True))
    of_clients = ended.children_user + ended.children_system - began.children_user - began.children_system
    for node, pool, lease in served:
        _release(node, pool, lease)
    answered = sum(each["answered"] for each in told)
    assert not any(each["failed"] for each in told), told
    return Shared(
        calls_a_second=sum(each["requests_a_second"] for each in told),
        cores_busy=(of_nodes + of_nats + of_clients) / (ended.elapsed - began.elapsed),
        nodes_us=of_nodes / answered * 1e6,
        nats_us=of_nats / answered * 1e6,
        clients_us=of_clients / answered * 1e6,
    )


def _made(cluster: TwoNodes, node: NodeProcess, prefix: str) -> tuple[str, str]:
    """A pool of the node's, and a lease of it."""
    pool = cluster.pool_of(node, prefix)
    sender = ClusterSender([node.url])
    status, told = sender.put(f"/v1/pools/{pool}", {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE})
    assert status in (200, 201), told
    cluster.wait_until_followed(pool, node)
    status, told = sender.post(f"/v1/pools/{pool}/leases", {"holder": "benchmark", "ttl_ms": TTL_MS})
    assert status == 201, told
    sender.close()
    return pool, told["lease_id"]


def _release(node: NodeProcess, pool: str, lease: str) -> None:
    """With what is left of its sequences."""
    sender = ClusterSender([node.url])
    call = Call(number=1, verb=Verb.RELEASE, pool=pool, key="", body={"lease_id": lease})
    assert sender.send(call).is_success
    sender.close()


def _requests(pool: str, lease: str) -> list[list[bytes]]:
    found = []
    for number in range(NUM_CONNECTIONS):
        name = f"sequence-{number}"
        asked = {"lease_id": lease, "sequence_id": name, "num_tokens": NUM_TOKENS}
        freed = {"lease_id": lease, "sequence_ids": [name]}
        found.append(
            [
                request("allocate", asked, Form.MSGPACK, pool),
                request("free", freed, Form.MSGPACK, pool),
            ]
        )
    return found


def _generate(
    loads: Sequence[tuple[NodeProcess, list[list[bytes]]]], seconds: float
) -> list[dict[str, float]]:
    """A generator for each, all at once."""
    processes = []
    for node, requests in loads:
        command = [sys.executable, str(GENERATOR), str(urlsplit(node.url).port), str(seconds)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(json.dumps([[each.hex() for each in own] for own in requests]))
        process.stdin.close()
        processes.append(process)
    told = []
    for process in processes:
        with process:
            assert process.stdout is not None
            told.append(json.loads(process.stdout.read()))
    return told
