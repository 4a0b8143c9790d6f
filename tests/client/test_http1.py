"""Requests and responses as bytes, by themselves and over a connection to a server that sends them."""

import socket

import pytest

from blockyard.client import ConnectionLost, Request, Response, UnexpectedReply
from blockyard.client.errors import NothingArrived
from blockyard.client.http1 import MAX_HEAD_BYTES, ResponseReader, write_request
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


READ_IN_TWO_WAYS = [
    b"SSH-2.0-OpenSSH\r\n\r\n",
    b"HTTP/2 200 OK\r\n\r\n",
    b"HTTP/1.1 999 No\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nA: 1\r\n folded: 2\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("sent", READ_IN_TWO_WAYS)
def test_what_could_be_read_in_two_ways_is_refused(sent: bytes) -> None:
    with pytest.raises(UnexpectedReply):
        get(sent)


ANSWERS = [
    response(200, {"a": [1, 2, 3]}),
    response(409, {}),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\n0\r\nTrailer: x\r\n\r\n",
]


def read(reader: ResponseReader, sent: bytes, piece_bytes: int) -> Response | str:
    """The response in ``sent``, or why there is none, as it arrives in pieces."""
    for at in range(0, len(sent), piece_bytes):
        try:
            reply = reader.feed(sent[at : at + piece_bytes])
        except UnexpectedReply:
            return "refused"
        if reply is not None:
            assert at + piece_bytes >= len(sent), "its end came early"
            return reply
    return "unfinished"


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("sent", [*ANSWERS, *READ_IN_TWO_WAYS])
def test_a_response_is_the_same_in_whatever_pieces_it_comes(sent: bytes, piece_bytes: int) -> None:
    at_once, in_pieces = ResponseReader(), ResponseReader()
    whole = read(at_once, sent, len(sent))
    assert read(in_pieces, sent, piece_bytes) == whole
    assert (whole == "refused") is (sent in READ_IN_TWO_WAYS)
    if isinstance(whole, Response):
        assert at_once.can_follow is in_pieces.can_follow


def test_responses_follow_each_other_through_one_reader() -> None:
    reader = ResponseReader()
    for number in range(3):
        for piece_bytes in (1, 1000):
            reply = read(reader, response(200, number), piece_bytes)
            assert isinstance(reply, Response)
            assert (reply.body, reader.can_follow) == (str(number).encode(), True)


@pytest.mark.parametrize("piece_bytes", [1, 1000])
def test_bytes_behind_a_response_allow_no_other(piece_bytes: int) -> None:
    reader = ResponseReader()
    sent = response(200, {})
    assert read(reader, sent[:-1], piece_bytes) == "unfinished"
    assert isinstance(reader.feed(sent[-1:] + b"H"), Response)
    assert not reader.can_follow


@pytest.mark.parametrize("piece_bytes", [1, 1000])
def test_a_body_over_the_limit_is_refused(piece_bytes: int) -> None:
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd"
    assert read(ResponseReader(3), sent, piece_bytes) == "refused"
    assert isinstance(read(ResponseReader(4), sent, piece_bytes), Response)


def test_what_a_closed_connection_means_depends_on_what_has_arrived() -> None:
    reader, sent = ResponseReader(), response(200, {})
    assert not isinstance(reader.closed("peer", "x"), NothingArrived)
    reader.feed(sent)
    assert isinstance(reader.closed("peer", "x"), NothingArrived)
    reader.feed(sent[:1])
    assert not isinstance(reader.closed("peer", "x"), NothingArrived)
    reader.feed(sent[1:])
    assert isinstance(reader.closed("peer", "x"), NothingArrived)


def test_a_request_is_written_with_its_length() -> None:
    request = Request("POST", "http://home:1", "/x", {"A": "b"}, b"body")
    assert write_request(request, "home:1") == (
        b"POST /x HTTP/1.1\r\nHost: home:1\r\nA: b\r\nContent-Length: 4\r\n\r\nbody"
    )
    assert write_request(Request("GET", "http://home:1", "/"), "home:1") == (
        b"GET / HTTP/1.1\r\nHost: home:1\r\n\r\n"
    )


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
