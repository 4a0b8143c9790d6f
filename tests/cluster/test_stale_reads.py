"""An owner that stood still or was cut off while another took over answers nothing from its old state.

Where it does, as a node with a planted fault does, that is found by what clients were told.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockyard.client.lean import LeanTransport
from blockyard.client.wire import Request, Response
from cluster.node_process import SERVER, NodeProcess
from cluster.registers import REGISTER_POOLS
from cluster.run import Histories
from cluster.sending import ClusterSender
from cluster.trial_cluster import TrialCluster, trial_cluster
from crash.calls import Answer, Call, Verb
from server_process import TIMEOUT_S

WITHOUT_GUARD = "cluster.server_without_guard"
POOL, SEQUENCE = REGISTER_POOLS[0].name, "shared-0"
NUM_TOKENS = 40


@dataclass(slots=True)
class Script:
    """Calls of one sequence of ``cluster``, and all that is told of it."""

    cluster: TrialCluster
    lease_id: str
    histories: Histories = field(default_factory=lambda: Histories([]))
    num_calls: int = 0

    def call(self, verb: Verb, at: Sequence[NodeProcess], **fields: Any) -> None:
        """By way of any of the nodes ``at``, until it is answered."""
        call = self._call(verb, {"lease_id": self.lease_id, "sequence_id": SEQUENCE, **fields})
        sender = ClusterSender([node.url for node in at])
        answer = sender.send(call)
        sender.close()
        assert answer.is_success, answer
        self.histories.note("register", call, answer)

    def read_at(self, node: NodeProcess) -> Response:
        """What ``node`` itself says, however long it takes to."""
        call = self._call(Verb.READ, {"sequence_id": SEQUENCE})
        transport, began_ns = LeanTransport(), time.monotonic_ns()
        response = transport.send(
            Request("GET", node.url, f"/v1/pools/{POOL}/sequences/{SEQUENCE}"), TIMEOUT_S
        )
        transport.close()
        if response.status == 200:
            answer = Answer(
                number=call.number,
                status=200,
                num_tries=1,
                body=json.loads(response.body),
                tried_ns=began_ns,
                at_ns=time.monotonic_ns(),
                node=node.url,
                ownership=int(response.headers["blockyard-ownership"]),
            )
            self.histories.note("register", call, answer)
        return response

    def _call(self, verb: Verb, body: dict[str, Any]) -> Call:
        self.num_calls += 1
        return Call(number=self.num_calls, verb=verb, pool=POOL, key=f"script-{self.num_calls}", body=body)


@contextmanager
def begun(folder: Path, module: str = SERVER) -> Iterator[tuple[Script, NodeProcess]]:
    """A sequence of some tokens, and the node that owns its pool."""
    with trial_cluster(folder, module=module) as cluster:
        cluster.make_pools()
        cluster.wait_until_settled()
        script = Script(cluster, cluster.make_leases()[POOL])
        script.call(Verb.ALLOCATE, cluster.nodes, num_tokens=NUM_TOKENS, block_hashes=[])
        yield script, cluster.node(cluster.pools()[POOL]["node"])


def commit_elsewhere(script: Script, owner: NodeProcess) -> None:
    """Once another node than ``owner`` owns the pool, commit all of the sequence's tokens there."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while script.cluster.pools()[POOL]["node"] in (owner.name, None):
        assert time.monotonic() < deadline_s, "nobody takes over"
        time.sleep(0.05)
    others = [node for node in script.cluster.nodes if node is not owner]  # it would hold on to the call
    script.call(Verb.COMMIT, others, num_computed_tokens=NUM_TOKENS)


def test_an_owner_that_is_cut_from_nats_says_that_it_is_not_ready(tmp_path: Path) -> None:
    with begun(tmp_path) as (script, owner):
        assert script.read_at(owner).status == 200
        script.cluster.network.cut_from_nats(owner.number)
        commit_elsewhere(script, owner)
        refused = script.read_at(owner)
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "not_ready")
        script.cluster.network.heal(owner.number)
        assert script.histories.complaints() == []


def test_a_read_that_waits_for_a_paused_owner_is_not_answered_from_its_old_state(tmp_path: Path) -> None:
    with begun(tmp_path) as (script, owner):
        owner.pause()
        told: list[Response] = []
        reader = threading.Thread(target=lambda: told.append(script.read_at(owner)))
        reader.start()
        commit_elsewhere(script, owner)
        owner.resume()
        reader.join()
        assert told[0].status in (307, 503)
        assert script.histories.complaints() == []


def test_a_stale_read_of_a_node_without_the_guard_is_found_twice(tmp_path: Path) -> None:
    with begun(tmp_path, WITHOUT_GUARD) as (script, owner):
        script.cluster.network.cut_from_nats(owner.number)
        commit_elsewhere(script, owner)
        stale = script.read_at(owner)
        assert (stale.status, json.loads(stale.body)["num_committed_tokens"]) == (200, 0)
        by_number, by_history = script.histories.complaints()
        assert "under ownership" in by_number
        assert f"the history of {SEQUENCE} of pool {POOL} is not linearizable" in by_history
