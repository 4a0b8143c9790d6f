"""``blockyard curve-key``: a pair of keys for the event sockets, of the server or of a follower."""

import os
from pathlib import Path

import click

from blockyard.server.commands.json_output import json_option, print_json

READABLE_BY_ALL = 0o644
SECRET = 0o077
"""The mask of what others may not."""


@click.command("curve-key")
@click.argument("prefix", type=click.Path(path_type=Path))
@json_option
def command(prefix: Path, as_json: bool) -> None:
    """Write PREFIX.key, a public key, and PREFIX.key_secret, which goes with it and only you can read.

    With keys, events travel encrypted, and only to followers that the server knows. Three steps:

    \b
    1. On the server's machine, a key of its own:
           blockyard curve-key server
    2. On a follower's machine, one of its own; the secret stays there:
           blockyard curve-key router
    3. The public keys change places. The server gets a directory of those who may follow,
       and each follower the server's:
           mkdir followers && cp router.key followers/
           blockyard serve --event-endpoint tcp://0.0.0.0:5557 \\
               --event-curve-key server.key_secret --event-curve-clients followers
           ZmqFollower(pool, endpoint, curve=Curve.read("router.key_secret", "server.key"))

    A key that is put into the directory later is let in within a second. One that is taken away cannot
    connect again; to cut off who is connected, restart the server.
    """  # noqa: D301 - \b keeps click from filling the example
    try:
        import zmq.auth  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise click.ClickException("this needs ZeroMQ: pip install 'blockyard[events]'") from error
    if not prefix.name:
        raise click.UsageError(f"PREFIX {prefix} does not end in a name")
    public, secret = (prefix.with_name(prefix.name + suffix) for suffix in (".key", ".key_secret"))
    for file in (public, secret):
        if file.exists():
            raise click.ClickException(f"{file} is there already, and a key is not overwritten")
    before = os.umask(SECRET)  # so that no file is anyone's for a moment
    try:
        zmq.auth.create_certificates(prefix.parent, prefix.name)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
    finally:
        os.umask(before)
    public.chmod(READABLE_BY_ALL)
    if as_json:
        print_json({"public": str(public), "secret": str(secret)})
        return
    click.echo(f"{public}: public, for the others")
    click.echo(f"{secret}: secret, stays here")
