"""The lean connection against a server that sends what a test says, byte by byte."""

import socket
import subprocess
import sys
import threading

import pytest

from blockyard.client import ConnectionLost, LeanTransport, Request, Response, UnexpectedReply, http1
from client.peers import DROP, Answer, peer, response


def get(answer: Answer) -> Response:
    with peer(answer) as server:
        transport = LeanTransport()
        try:
            return transport.send(Request("GET", server.url, "/x"), 5.0)
        finally:
            transport.close()


def test_a_body_of_stated_length_is_read() -> None:
    reply = get(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Odd:  a b \r\n\r\nabc")
    assert (reply.status, reply.headers["x-odd"], reply.body) == (200, "a b", b"abc")


def test_a_body_in_chunks_is_read() -> None:
    chunks = b"4;name=value\r\nwiki\r\n5\r\npedia\r\n0\r\nTrailer: x\r\n\r\n"
    assert get(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks).body == b"wikipedia"


def test_no_content_has_no_body() -> None:
    assert get(b"HTTP/1.1 204 No Content\r\n\r\n").body == b""


def test_an_interim_response_is_passed_over() -> None:
    assert get(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + response(200, {})).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nA: 1\r\n folded: 2\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\na",
        b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(sent: bytes) -> None:
    with pytest.raises(UnexpectedReply):
        get(sent)


def test_a_head_without_end_is_refused() -> None:
    with pytest.raises(UnexpectedReply, match="without an end"):
        get(b"HTTP/1.1 200 OK\r\nX: " + b"a" * (http1.MAX_HEAD_BYTES + 1))


def test_a_peer_that_closes_inside_a_body_has_lost_the_connection() -> None:
    with pytest.raises(ConnectionLost, match="closed"):
        get(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nabc")


def test_a_peer_that_says_nothing_runs_out_of_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = LeanTransport()
        with pytest.raises(ConnectionLost, match=r"within 0\.1 s"):
            transport.send(Request("GET", f"http://127.0.0.1:{silent.getsockname()[1]}", "/"), 0.1)


def test_nobody_there_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionLost, match="cannot connect"):
        LeanTransport().send(Request("GET", f"http://127.0.0.1:{port}", "/"), 1.0)


def test_a_header_with_a_line_break_is_never_sent() -> None:
    with peer(response(200, {})) as server:
        with pytest.raises(ValueError, match="line break"):
            LeanTransport().send(Request("GET", server.url, "/", {"X": "a\r\nY: b"}), 1.0)
        assert server.received == []


def test_requests_share_a_connection() -> None:
    with peer(response(200, {})) as server:
        transport = LeanTransport()
        for _ in range(3):
            transport.send(Request("GET", server.url, "/"), 1.0)
        transport.close()
        assert server.num_connections == 1


def test_a_response_that_ends_its_connection_is_obeyed() -> None:
    with peer(response(200, {}, connection="close")) as server:
        transport = LeanTransport()
        for _ in range(2):
            transport.send(Request("GET", server.url, "/"), 1.0)
        assert server.num_connections == 2


def test_bytes_after_a_response_end_its_connection() -> None:
    with peer(response(200, {}) + b"HTTP/1.1 200 OK\r\n\r\n") as server:
        transport = LeanTransport()
        for _ in range(2):
            transport.send(Request("GET", server.url, "/"), 1.0)
        assert server.num_connections == 2


def test_a_kept_connection_that_its_server_closed_is_replaced() -> None:
    with peer(response(200, {}), DROP, response(200, {})) as server:
        transport = LeanTransport()
        transport.send(Request("GET", server.url, "/"), 1.0)
        assert transport.send(Request("GET", server.url, "/"), 1.0).status == 200
        assert server.num_connections == 2
        transport.close()


def test_bytes_that_come_while_a_connection_is_idle_answer_nothing() -> None:
    transport = LeanTransport()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        request = Request("GET", f"http://127.0.0.1:{listener.getsockname()[1]}", "/")

        def serve() -> None:
            with listener.accept()[0] as first:
                first.recv(1024)
                first.sendall(response(200, {}))
                answered.wait(5)
                first.sendall(response(418, {}))
                intruded.set()
                with listener.accept()[0] as second:
                    second.recv(1024)
                    second.sendall(response(200, {}))

        answered, intruded = threading.Event(), threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        assert transport.send(request, 5.0).status == 200
        answered.set()
        intruded.wait(5)
        assert transport.send(request, 5.0).status == 200
        server.join()
    transport.close()


def test_a_closed_transport_sends_nothing() -> None:
    transport = LeanTransport()
    transport.close()
    with pytest.raises(ConnectionLost, match="closed"):
        transport.send(Request("GET", "http://127.0.0.1:9", "/"), 1.0)


FORKING = """
import os, sys
from blockyard.client import Client
client = Client(sys.argv[1])
assert client.health()
child = os.fork()
for _ in range(20):
    assert client.health()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_opens_connections_of_its_own(server_url: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", FORKING, server_url], timeout=30, check=False)
    assert done.returncode == 0
