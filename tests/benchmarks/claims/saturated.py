"""Requests a second from one core, beside a bare ASGI function on the same uvicorn.

`allocate` and `free` of 16 blocks by turns over 32 connections, in msgpack and without idempotency keys. Both
servers run, and each has the generator for itself in its turn; they are pinned to one core and the generator
to another.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median

from benchmarks.claims.figure import Figure
from benchmarks.claims.setting import Setting
from benchmarks.load.pinning import CAN_PIN, pinned_to
from benchmarks.load.processes import SERVER_CORE, Serving, bare_app, generate_load
from benchmarks.load.raw_calls import RawCaller, body_of
from blockyard.client import Client
from blockyard.client.wire import Form, encode
from server_process import running_server

NAME, RATE_BOUND, P99_BOUND_MS = "saturated", 0.6, 5.0
NUM_CONNECTIONS, BLOCK_SIZE, NUM_TOKENS = 32, 16, 256
POOL = "pool"
TURNS_A_ROUND = 3
"""Many short ones: what else the machine does then meets both sides alike."""


def request(path: str, body: Mapping[str, object], form: Form, pool: str = POOL) -> bytes:
    content = encode(body, form)
    head = (
        f"POST /v1/pools/{pool}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {form.value}\r\n"
        f"Content-Type: {form.value}\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def requests_of(connection: int, lease: str, form: Form) -> list[bytes]:
    """Those that one connection sends over and over."""
    name = f"sequence-{connection}"
    return [
        request("allocate", {"lease_id": lease, "sequence_id": name, "num_tokens": NUM_TOKENS}, form),
        request("free", {"lease_id": lease, "sequence_ids": [name]}, form),
    ]


def measure(setting: Setting) -> Iterator[Figure]:
    """The rate in both forms, and the latency in msgpack."""
    seconds, num_turns = setting.pick(10, 2) / 10, setting.rounds * setting.pick(TURNS_A_ROUND, 1)
    with ExitStack() as stack:
        with pinned_to(SERVER_CORE):
            server = stack.enter_context(running_server("--volatile", "--log-level", "error"))
        serving = Serving(server.port, server.process.pid)
        client = stack.enter_context(Client(server.url))
        pool = client.create_pool(POOL, num_blocks=10_000, block_size=BLOCK_SIZE, eviction="lru")
        lease = stack.enter_context(pool.lease("benchmark", 3_600_000)).lease_id
        for form in (Form.MSGPACK, Form.JSON):
            requests = [requests_of(number, lease, form) for number in range(NUM_CONNECTIONS)]
            with pinned_to(SERVER_CORE):
                beside = stack.enter_context(bare_app(reply_bytes(server.port, requests[0])))
            ours, bare = [], []
            for number in range(num_turns):
                setting.note(f"turn {number + 1} of {num_turns}: {form.name.lower()}")
                ours.append(generate_load(serving, seconds, requests))
                bare.append(generate_load(beside, seconds, requests))
            assert not any(each["failed"] for each in ours + bare)
            busiest = max(each["busy"] for each in ours + bare)
            cpu_us = [median(each["cpu_us"] for each in side) for side in (ours, bare)]
            note = (
                f"{cpu_us[0]:.1f} beside {cpu_us[1]:.1f} µs of processor time a request; "
                f"generator at most {busiest:.0%} busy{'' if CAN_PIN else '; not pinned'}"
            )
            what = f"requests a second, {form.name.lower()}"
            figure = Figure(claim=NAME, what=what, bound=RATE_BOUND, is_floor=True, note=note)
            yield figure.measured(
                [each["requests_a_second"] for each in ours],
                [each["requests_a_second"] for each in bare],
                unit="/s",
            )
            yield Figure(
                claim=NAME,
                what=f"99th percentile, {form.name.lower()}",
                value=median(each["p99_ms"] for each in ours),
                bound=P99_BOUND_MS,
                unit="ms",
                ours=f"{median(each['p99_ms'] for each in ours):.3f} ms",
                beside=f"{median(each['p99_ms'] for each in bare):.3f} ms",
                note=f"median {median(each['p50_ms'] for each in ours):.3f} ms",
            )


def reply_bytes(port: int, requests: list[bytes]) -> int:
    """How long the bodies of the replies are on average."""
    with RawCaller(port) as caller:
        return sum(len(body_of(caller.reply(each))) for each in requests) // len(requests)
