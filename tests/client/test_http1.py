"""The lean connection against a server that sends what a test says, byte by byte."""

import socket

import pytest

from blockyard.client import ConnectionLost, Request, Response, UnexpectedReply
from blockyard.client.http1 import MAX_HEAD_BYTES
from blockyard.client.lean import LeanTransport
from client.peers import Answer, peer, response


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
        get(b"HTTP/1.1 200 OK\r\nX: " + b"a" * (MAX_HEAD_BYTES + 1))


def test_a_peer_that_closes_inside_a_body_has_lost_the_connection() -> None:
    with pytest.raises(ConnectionLost, match="closed"):
        get(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nabc")


def test_a_peer_that_says_nothing_runs_out_of_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = LeanTransport()
        with pytest.raises(ConnectionLost, match="in time"):
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


def test_chunks_that_add_up_to_too_much_are_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with peer(head + b"6\r\nblocks\r\n4\r\nyard\r\n0\r\n\r\n") as server:
        for max_body_bytes in (9, 10):
            transport = LeanTransport(max_body_bytes=max_body_bytes)
            if max_body_bytes < 10:
                with pytest.raises(UnexpectedReply, match="too long"):
                    transport.send(Request("GET", server.url, "/"), 1.0)
            else:
                assert transport.send(Request("GET", server.url, "/"), 1.0).body == b"blocksyard"
            transport.close()
