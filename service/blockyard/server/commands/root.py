"""The command that all others hang from, which imports a subcommand only when it is used.

``serve`` has to be ready within a second and must not pay for the tables and plots of the others; so the root
knows their names and summaries, and nothing more.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

from blockyard.core.compiled import is_compiled


@dataclass(frozen=True, slots=True)
class Subcommand:
    """Where a subcommand is, and what it is for.

    Attributes:
        module: That holds it, under the name ``command``.
        summary: Its line in ``blockyard --help``.
    """

    module: str
    summary: str


SUBCOMMANDS = {
    "serve": Subcommand("serve", "Run a server."),
    "token": Subcommand("token", "Make, list and revoke the tokens that a server's callers need."),
    "plan": Subcommand("plan.command", "Plan a model's KV cache: how much fits, and where it lies."),
    "replay": Subcommand("replay.command", "Replay a request trace, and see how much of it was cached."),
    "pools": Subcommand("pools", "List a server's pools."),
    "stats": Subcommand("stats", "Show a pool's figures."),
    "top": Subcommand("top.command", "Watch a server's pools, or one of them, in the terminal."),
    "quota": Subcommand("quota", "Show and set what a pool's tenants may hold."),
    "pins": Subcommand("pins", "List what is pinned in a pool."),
    "audit": Subcommand("audit", "Recount a pool from its block tables."),
    "cluster": Subcommand("cluster.group", "Try a cluster out on this machine, and look at one."),
    "curve-key": Subcommand("curve_key", "Make a pair of keys for following events over ZeroMQ."),
    "journal": Subcommand("journal", "Print what a data directory has written down."),
}


class LazyGroup(click.Group):
    """A group whose subcommands are those of `SUBCOMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All names, in the order of the table."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        """The subcommand, imported now; None if there is none of this name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module = import_module(f"blockyard.server.commands.{SUBCOMMANDS[cmd_name].module}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - likewise
        """The list in ``--help``, without an import."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, subcommand.summary) for name, subcommand in SUBCOMMANDS.items()])


def _print_version(context: click.Context, _option: click.Parameter, is_given: Any) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(f"blockyard {version('blockyard')}{', compiled' if is_compiled() else ''}")
        context.exit()


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
"""Of the root, and through it of every subcommand."""


@click.group(cls=LazyGroup, context_settings=SETTINGS)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def blockyard() -> None:
    """Allocate KV-cache blocks for LLM inference over the network.

    One server owns the block pools of one or many inference engines. To see the whole at work, with a server
    and a workload of its own:

    \b
        blockyard replay

    Exit status: 0 ok, 1 failure, 2 a mistake in the arguments. Each command has its own --help.
    """  # noqa: D301 - \b keeps click from filling the example
