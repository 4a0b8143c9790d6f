"""``blockyard cluster``: what can be done with a cluster."""

import click

from blockyard.server.commands.cluster.show import show
from blockyard.server.commands.cluster.try_out import try_out


@click.group("cluster", commands=[try_out, show])
def command() -> None:
    """Try a cluster out on this machine, and look at one.

    A cluster is several servers, its nodes, that share pools among them: each pool is one node's at a time,
    and another one's within seconds when that node is lost. They keep what they know in NATS JetStream.

    \b
        blockyard cluster try
        blockyard cluster show --url http://127.0.0.1:8485
    """  # noqa: D301 - \b keeps click from filling the example
