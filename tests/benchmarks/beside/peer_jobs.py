"""Does jobs with the peer's cache manager, under the peer's Python: see `jobs`.

Timed is what a scheduler asks of the manager for a request: the lookup, the slots (which publish its blocks),
and the freeing. The requests exist before, with their hashes; only their lengths are real, not their tokens.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.beside.jobs import JobRequest, requests_of, serve, timed

torch = import_module("torch")
interface = import_module("vllm.v1.kv_cache_interface")
kv_cache_manager = import_module("vllm.v1.core.kv_cache_manager")
request_module = import_module("vllm.v1.request")
sampling_params = import_module("vllm.sampling_params")

MAX_MODEL_LEN = 1 << 20


def make_manager(num_blocks: int, block_size: int) -> Any:
    """One group of full attention."""
    spec = interface.FullAttentionSpec(
        block_size=block_size, num_kv_heads=8, head_size=128, dtype=torch.bfloat16
    )
    group = interface.KVCacheGroupSpec(["layer"], spec)
    return kv_cache_manager.KVCacheManager(
        interface.KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=[group]),
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=block_size,
        hash_block_size=block_size,
        max_in_flight_tokens=8192,
        enable_caching=True,
    )


def make_request(given: JobRequest, params: Any) -> Any:
    """A request of so many tokens, with its hashes as if it had made them."""
    made = request_module.Request(
        request_id=given.name, prompt_token_ids=[0], sampling_params=params, pooling_params=None
    )
    made.num_prompt_tokens = given.num_tokens
    made._all_token_ids = range(given.num_tokens)
    made.block_hashes = given.block_hashes
    return made


def do(job: Mapping[str, Any]) -> dict[str, Any]:
    manager = make_manager(job["num_blocks"], job["block_size"])
    params = sampling_params.SamplingParams(max_tokens=1)
    requests = [make_request(given, params) for given in requests_of(job)]
    at_a_time = job["at_a_time"]

    def run() -> int:
        num_cached = 0
        for start in range(0, len(requests), at_a_time):
            held = []
            for request in requests[start : start + at_a_time]:
                blocks, num_hit, _ = manager.get_computed_blocks(request)
                given = manager.allocate_slots(request, request.num_tokens - num_hit, num_hit, blocks)
                if given is not None:
                    request.num_computed_tokens = request.num_tokens
                    num_cached += num_hit
                    held.append(request)
            for request in held:
                manager.free(request)
        return num_cached

    return timed(run)


if __name__ == "__main__":
    serve(do)
