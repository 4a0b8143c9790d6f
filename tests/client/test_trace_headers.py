"""Calls carry the trace of whoever makes them."""

import asyncio
import subprocess
import sys
from typing import Literal

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

from blockyard.client import AsyncClient, Client, RetryPolicy
from client.peers import DROP, Received, forward, peer, response
from tracing.callers import span, traceparent
from waiting import wait_for

NO_POOLS = response(200, {"pools": []})


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_a_call_sends_the_current_span(transport: Literal["lean", "httpx"]) -> None:
    with peer(NO_POOLS) as server, Client(server.url, transport=transport) as client, span() as current:
        client.pools()
    assert server.received[0].headers["traceparent"] == traceparent(current)
    assert "tracestate" not in server.received[0].headers


def test_an_awaited_call_sends_the_span_of_its_task() -> None:
    async def call_twice(url: str) -> list[str]:
        async with AsyncClient(url) as client:

            async def call() -> str:
                with span() as current:
                    await asyncio.sleep(0.01)  # so that both spans are open
                    await client.pools()
                return traceparent(current)

            return [*await asyncio.gather(call(), call())]

    with peer(NO_POOLS) as server:
        sent = asyncio.run(call_twice(server.url))
    assert sorted(each.headers["traceparent"] for each in server.received) == sorted(sent)


@pytest.mark.parametrize("transport", ["lean", "httpx"])
def test_without_a_span_nothing_is_sent(transport: Literal["lean", "httpx"]) -> None:
    with peer(NO_POOLS) as server, Client(server.url, transport=transport) as client:
        client.pools()
    assert server.received[0].headers.keys().isdisjoint({"traceparent", "tracestate"})


def test_a_span_that_is_not_sampled_is_sent_as_such() -> None:
    with peer(NO_POOLS) as server, Client(server.url) as client, span(is_sampled=False) as current:
        client.pools()
    assert server.received[0].headers["traceparent"] == traceparent(current)
    assert not current.trace_flags.sampled


def test_the_state_of_a_trace_is_sent_with_it() -> None:
    state = TraceState([("one", "1"), ("two", "2")])
    remote = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=state)
    with peer(NO_POOLS) as server, Client(server.url) as client, use_span(NonRecordingSpan(remote)):
        client.pools()
    assert server.received[0].headers["traceparent"] == f"00-{7:032x}-{8:016x}-01"
    assert server.received[0].headers["tracestate"] == "one=1,two=2"


def test_every_try_of_a_call_sends_the_same() -> None:
    with (
        peer(DROP, NO_POOLS) as server,
        Client(server.url, retries=RetryPolicy(first_pause_s=0.01)) as client,
        span() as current,
    ):
        client.pools()
    assert [each.headers["traceparent"] for each in server.received] == [traceparent(current)] * 2


def test_renewals_in_the_background_belong_to_no_trace(server_url: str, pool_name: str) -> None:
    def is_renewal(request: Received) -> bool:
        return request.target.endswith("/renew")

    async def hold(url: str) -> None:
        async with AsyncClient(url) as client:
            pool = await client.create_pool(pool_name, num_blocks=10, block_size=16)
            with span():
                opening = pool.lease("test", ttl_ms=300)
                async with opening:
                    await asyncio.to_thread(wait_for, lambda: any(map(is_renewal, proxy.received)))

    with peer(forward(server_url)) as proxy:
        asyncio.run(hold(proxy.url))
    renewals = [each for each in proxy.received if is_renewal(each)]
    assert all("traceparent" not in each.headers for each in renewals)
    assert "traceparent" in proxy.received[1].headers  # the lease was taken within the span


def test_a_client_does_not_import_opentelemetry() -> None:
    code = "import blockyard.client, sys; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
