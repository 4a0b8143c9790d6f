"""A server sends its traces to a collector, and serves all the same where there is none."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockyard.client import Client, InsufficientBlocks, RetryPolicy
from blockyard.server.tracing.tracing import FLUSH_S
from client.peers import forward, peer, silence, swallow
from server_process import ServerProcess, first_line, require, run, running_server, start
from tracing.callers import ids, span
from tracing.collector import Collector, collecting

ALLOCATE = "POST /v1/pools/{pool}/allocate"


RELEASE = "DELETE /v1/pools/{pool}/leases/{lease_id}"
"""The last thing that `allocate_once` does."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture(scope="module")
def server(collector: Collector) -> Iterator[ServerProcess]:
    """A traced server for these tests; each makes pools of its own."""
    with running_server("--traces", "--log-level", "error", **collector.variables) as running:
        yield running


def allocate_once(url: str, pool: str, num_tokens: int = 20) -> None:
    with Client(url, retries=RetryPolicy(first_pause_s=0.01)) as client:
        client.create_pool(pool, num_blocks=10, block_size=16)
        with client.pool(pool).lease("test", renew=False) as lease:
            lease.allocate("sequence", num_tokens)


def test_a_request_is_a_server_span_under_its_callers(server: ServerProcess, collector: Collector) -> None:
    with span() as caller:
        allocate_once(server.url, "spanned")
    trace_id, span_id = ids(caller)
    collector.trace(trace_id, RELEASE)
    (served,) = collector.where(trace_id=trace_id, name=ALLOCATE)
    assert (served.kind, served.parent_id, served.is_error) == (2, span_id, False)
    assert served.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/pools/{pool}/allocate",
        "http.response.status_code": 200,
        "url.path": "/v1/pools/spanned/allocate",
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "blockyard.pool": "spanned",
    }
    assert served.resource["service.name"] == "blockyard"


def test_inside_it_are_the_command_and_the_wait_for_the_journal(
    server: ServerProcess, collector: Collector
) -> None:
    with span() as caller:
        allocate_once(server.url, "inside")
    collector.trace(ids(caller)[0], RELEASE)
    (served,) = collector.where(trace_id=ids(caller)[0], name=ALLOCATE)
    applied, waited = collector.where(parent_id=served.span_id)
    assert (applied.name, applied.attributes) == ("apply Allocate", {"blockyard.pool": "inside"})
    assert waited.name == "wait for journal"
    assert served.start_ns <= applied.start_ns <= applied.end_ns <= waited.start_ns
    assert waited.start_ns <= waited.end_ns <= served.end_ns


def test_a_request_without_a_trace_begins_one(server: ServerProcess, collector: Collector) -> None:
    allocate_once(server.url, "alone")
    assert collector.asked("/v1/pools/alone/allocate").parent_id == ""


def test_the_state_of_the_callers_trace_is_carried_on(server: ServerProcess, collector: Collector) -> None:
    parent = f"00-{7:032x}-{8:016x}-01"
    server.call("GET", "/v1/pools/unheard-of/stats", traceparent=parent, tracestate="vendor=value")
    served = collector.asked("/v1/pools/unheard-of/stats")
    assert (served.trace_id, served.parent_id) == (f"{7:032x}", f"{8:016x}")
    assert served.trace_state == "vendor=value"


@pytest.mark.parametrize("parent", ["", "nonsense", f"00-{0:032x}-{0:016x}-01", "00-" + "f" * 5_000])
def test_a_parent_that_is_none_is_passed_over(
    server: ServerProcess, collector: Collector, parent: str
) -> None:
    path = f"/v1/pools/of-parent-{len(parent)}"
    assert server.call("GET", path, traceparent=parent)[0] == 404
    assert collector.asked(path).parent_id == ""


def test_a_refusal_is_no_error_of_the_server_and_names_its_code(
    server: ServerProcess, collector: Collector
) -> None:
    with span() as caller, pytest.raises(InsufficientBlocks):
        allocate_once(server.url, "full", num_tokens=1_000)
    collector.trace(ids(caller)[0], RELEASE)
    (served,) = collector.where(trace_id=ids(caller)[0], name=ALLOCATE)
    assert served.attributes["http.response.status_code"] == 409
    assert not served.is_error
    (applied,) = collector.where(parent_id=served.span_id, name="apply Allocate")
    assert applied.attributes["error.type"] == "insufficient_blocks"


def test_an_answer_that_is_the_servers_fault_is_an_error() -> None:
    with (
        collecting() as collector,
        running_server("--traces", "--max-requests-in-flight", "0", **collector.variables) as server,
    ):
        assert server.call("GET", "/v1/pools")[0] == 503
        served = collector.asked("/v1/pools")
    assert served.is_error
    assert served.attributes["error.type"] == "503"
    assert served.name == "GET"  # it was refused before a route was found
    assert "http.route" not in served.attributes


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/v1/nothing/here", "GET"),
        ("GET", "/v1/pools/nobodys", "GET /v1/pools/{pool}"),
        ("PROPFIND", "/v1/nothing/there", "HTTP"),
    ],
)
def test_names_of_spans_stay_few_whatever_is_asked_for(
    server: ServerProcess, collector: Collector, method: str, path: str, name: str
) -> None:
    assert server.call(method, path)[0] == 404
    served = collector.asked(path)
    assert served.name == name
    assert served.attributes.get("http.request.method_original", method) == method


def test_health_and_metrics_are_not_traced(server: ServerProcess, collector: Collector) -> None:
    with Client(server.url) as client:
        assert client.health()
        assert client.ready()
    urllib.request.urlopen(f"{server.url}/metrics", timeout=30).close()
    server.call("GET", "/v1/pools/after-them")
    collector.asked("/v1/pools/after-them")
    paths = {each.attributes.get("url.path") for each in collector.spans}
    assert paths.isdisjoint({"/healthz", "/readyz", "/metrics"})


def test_both_tries_of_a_call_are_under_the_callers_span(server: ServerProcess, collector: Collector) -> None:
    with peer(swallow(forward(server.url), "/allocate")) as proxy, span() as caller:
        allocate_once(proxy.url, "again")
    collector.trace(ids(caller)[0], RELEASE)
    tries = collector.where(trace_id=ids(caller)[0], name=ALLOCATE)
    assert [each.parent_id for each in tries] == [ids(caller)[1]] * 2


def test_what_its_caller_does_not_sample_is_not_recorded(server: ServerProcess, collector: Collector) -> None:
    with span(is_sampled=False) as unsampled:
        allocate_once(server.url, "unsampled")
    with span() as sampled:
        allocate_once(server.url, "sampled")
    collector.trace(ids(sampled)[0], RELEASE)
    assert collector.where(trace_id=ids(unsampled)[0]) == []


def test_the_variables_of_opentelemetry_say_what_is_sampled_under_which_name() -> None:
    variables = {
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_SERVICE_NAME": "blocks",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=ours",
    }
    with (
        collecting() as collector,
        running_server("--traces", "--volatile", **collector.variables, **variables) as server,
    ):
        allocate_once(server.url, "of-nobody")
        with span():
            allocate_once(server.url, "of-a-caller")
    pools = {each.attributes.get("blockyard.pool") for each in collector.spans}
    assert pools == {"of-a-caller"}
    assert {each.resource["service.name"] for each in collector.spans} == {"blocks"}
    assert {each["x-tenant"] for each in collector.headers} == {"ours"}
    assert collector.where(name="wait for journal") == []  # there is none


def test_the_last_spans_are_sent_at_the_end() -> None:
    with collecting() as collector:
        variables = {**collector.variables, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        with running_server("--traces", **variables) as server:
            allocate_once(server.url, "last")
            assert collector.spans == []
        assert collector.where(name=ALLOCATE) != []


def test_log_lines_of_a_request_carry_its_trace_id(collector: Collector) -> None:
    options = ["serve", "--port", "0", "--volatile", "--traces", "--log-level", "debug"]
    with start(*options, stderr=subprocess.PIPE, **collector.variables) as process:
        url = first_line(require(process.stdout)).split()[-1]
        with Client(url) as client, span() as caller:
            client.pools()
        process.terminate()
        lines = [json.loads(line) for line in require(process.stderr)]
    (requested,) = [line for line in lines if line["event"] == "request"]
    assert requested["trace_id"] == ids(caller)[0]
    assert all("trace_id" not in line for line in lines if line is not requested)


@pytest.mark.parametrize("collector_is", ["away", "silent"])
def test_a_collector_that_takes_nothing_neither_slows_calls_nor_floods_the_log(
    collector_is: str, tmp_path: Path
) -> None:
    over = threading.Event()
    with peer(silence(over)) as mute:
        endpoint = mute.url if collector_is == "silent" else "http://127.0.0.1:1"
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_MAX_QUEUE_SIZE": "8",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8",
        }
        options = ["serve", "--port", "0", "--data-dir", str(tmp_path), "--traces", "--log-level", "warning"]
        with start(*options, stderr=subprocess.PIPE, **variables) as process:
            url = first_line(require(process.stdout)).split()[-1]
            with Client(url, timeout_s=5, retries=RetryPolicy(max_attempts=1)) as client:
                for _ in range(300):
                    client.pools()
            process.terminate()
            stopping_s = time.monotonic()
            said = [json.loads(line) for line in require(process.stderr)]
            assert process.wait(60) == 0
            assert time.monotonic() - stopping_s < FLUSH_S + 2
        over.set()
    assert said[-1]["event"] == "the last traces could not be sent"
    assert {line["event"] for line in said[:-1]} <= {"exporting traces"}
    assert len(said) <= 6, said


def without_the_extra(folder: Path) -> dict[str, str]:
    """Variables by which a process finds none of the extra's packages."""
    names = ("opentelemetry.sdk", "opentelemetry.exporter")
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({names}))\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}


def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    done = run("serve", "--port", "0", "--volatile", "--traces", **without_the_extra(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"Error: --traces needs the package 'opentelemetry\.[\w.]+': pip install 'blockyard\[tracing\]'\n",
        done.stderr,
    )


def test_without_the_extra_a_server_without_traces_serves(tmp_path: Path) -> None:
    with running_server("--volatile", **without_the_extra(tmp_path)) as server, span():
        allocate_once(server.url, "untraced")
