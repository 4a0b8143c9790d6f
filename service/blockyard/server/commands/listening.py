"""Sockets that listen, opened before the server is made: what is wrong with an address is one sentence."""

import errno
import os
import socket

import click

BACKLOG = 2_048
"""Connections that may wait to be taken."""


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """One socket for each of the addresses of ``host`` that this machine speaks.

    Args:
        host: An address of this machine or a name of it.
        port: From 0, which takes a free one, to 65535.

    Raises:
        click.ClickException: The port is in use, or the address is not this machine's. No socket stays open.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise click.ClickException(f"--host {host}: {error.strerror}") from error
    opened: list[socket.socket] = []
    failures: list[OSError] = []
    for family, _, _, _, address in found:
        try:
            opened.append(socket.create_server(address, family=family, backlog=BACKLOG))
        except OSError as error:
            failures.append(error)
    fatal = _fatal(failures, is_open=bool(opened))
    if fatal is None:
        return opened
    for listening in opened:
        listening.close()
    raise click.ClickException(_sentence(host, port, fatal)) from fatal


def _fatal(failures: list[OSError], *, is_open: bool) -> OSError | None:
    """The failure that matters. A name may have addresses that this machine does not speak, but not only."""
    for failure in failures:
        if failure.errno in (errno.EADDRINUSE, errno.EACCES):
            return failure
    return None if is_open else failures[0]


def _sentence(host: str, port: int, failure: OSError) -> str:
    if failure.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: choose another with --port, or 0 for a free one"
    if failure.errno == errno.EACCES:
        return f"port {port} needs privileges: choose one from 1024 on with --port"
    return f"cannot listen on {host}: {os.strerror(failure.errno or 0)}"
