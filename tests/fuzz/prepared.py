"""Pools, leases and pins that stand ready, so that drawn requests reach more than refusals."""

import json
import urllib.error
import urllib.request
from typing import Any

POOLS: dict[str, dict[str, Any]] = {
    "plain": {"num_blocks": 64, "block_size": 16, "needs_all_workers": False},
    "kinds": {
        "num_blocks": 256,
        "groups": [
            {"kind": "full_attention", "block_size": 16},
            {"kind": "sliding_window", "block_size": 16, "sliding_window": 32},
            {"kind": "mamba", "block_size": 16, "mamba_cache_mode": "align"},
        ],
        "publish": "on_allocate",
        "needs_all_workers": False,
    },
    "planned": {
        "plan": {
            "workers": [
                {
                    "available_memory_bytes": 2**24,
                    "layers": {
                        f"layer.{number}": {
                            "kind": "full_attention",
                            "block_size": 16,
                            "num_kv_heads": 2,
                            "head_size": 64,
                            "dtype": "bfloat16",
                        }
                        for number in range(2)
                    },
                }
            ],
            "max_model_len": 256,
        },
        "needs_all_workers": False,
    },
    "told": {
        "num_blocks": 64,
        "block_size": 4,
        "events": True,
        "hash_algorithm": "sha256",
        "needs_all_workers": False,
    },
}

WORKER = "w0"
"""The id of a worker that each of them has."""


class Prepared:
    """The pools of ``POOLS`` at a server, and a lease and a pin of each.

    Attributes:
        leases, pins: Their ids, by pool.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.leases: dict[str, str] = {}
        self.pins: dict[str, str] = {}

    def make(self) -> None:
        """All of them, from nothing."""
        for pool in POOLS:
            self.renew(pool)

    def renew(self, pool: str) -> None:
        """The pool, if it is gone, and a lease and a pin anew, with a sequence; those before keep nothing."""
        path = f"/v1/pools/{pool}"
        self._send("PUT", path, POOLS[pool])
        worker = {"worker_id": WORKER, "rank": 0, "device": "cpu", "incarnation": 0}
        self._send("POST", f"{path}/workers", worker)
        if pool in self.leases:
            self._send("DELETE", f"{path}/leases/{self.leases[pool]}", {})
        _, lease = self._send("POST", f"{path}/leases", {"holder": "fuzz", "ttl_ms": 3_600_000})
        self.leases[pool] = lease["lease_id"]
        if pool in self.pins:
            self._send("DELETE", f"{path}/pins/{self.pins[pool]}", {})
        _, pin = self._send("POST", f"{path}/pins", {"block_hashes": [f"{0:064x}"], "ttl_ms": 3_600_000})
        self.pins[pool] = pin["pin_id"]
        allocation = {"lease_id": self.leases[pool], "sequence_id": "s1", "num_tokens": 40}
        self._send("POST", f"{path}/allocate", allocation)

    def _send(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
