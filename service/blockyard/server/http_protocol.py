"""HTTP/1.1 with a bound on what stands before a body, which uvicorn's own protocol has not."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers."""

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedHttpProtocol(HttpToolsProtocol):
    """Ends a connection whose request has a head of more than `MAX_HEAD_BYTES`, give or take one packet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = False
        self._num_head_bytes = 0

    def on_message_begin(self) -> None:
        """The parser has met the beginning of a request."""
        super().on_message_begin()
        self._is_in_head = True
        self._num_head_bytes = 0

    def on_headers_complete(self) -> None:
        """The parser has met the end of its headers."""
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Something has arrived."""
        super().data_received(data)
        if self._is_in_head:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
