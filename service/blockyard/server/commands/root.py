"""The command that all others hang from, which imports a subcommand only when it is used.

``serve`` has to be ready within a second and must not pay for the tables and plots of the others; so the root
knows their names and summaries, and nothing more.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list in ``--help``, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sub.summary) for name, sub in SUBCOMMANDS.items()])


def _print_version(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"blockyard {version('blockyard')}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
def blockyard() -> None:
    """Allocate KV-cache blocks for LLM inference over the network."""
