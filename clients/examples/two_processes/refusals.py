"""What the command refuses before it starts a process: values that no worker and no server could use."""

import click
import torch

from blockyard.client import Client
from blockyard.core.arithmetic import div_ceil
from blockyard.planning.errors import InsufficientMemory, PlanError
from blockyard.planning.planner import plan
from blockyard.server.plan_schemas import PlanBody
from examples.two_processes.settings import Settings


def device_here(_context: click.Context, _option: click.Parameter, device: str) -> str:
    """``device``, which torch can compute on here.

    Raises:
        click.BadParameter: It cannot.
    """
    try:
        asked = torch.device(device)
    except RuntimeError:
        raise click.BadParameter(f"{device!r} is no device: cpu, cuda, cuda:1, ...") from None
    if (asked.index or 0) >= _num_devices(asked.type):
        raise click.BadParameter(f"torch has no {device!r} to compute on here")
    return device


def server_url(_context: click.Context, _option: click.Parameter, url: str | None) -> str | None:
    """``url``, which is a server's, or None. Whether it answers is not asked.

    Raises:
        click.BadParameter: It is none.
    """
    if url is not None:
        try:
            Client(url).close()
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return url


def refuse_impossible_plan(settings: Settings) -> None:
    """Plan as the server will.

    Raises:
        click.UsageError: The pool could not hold the longest sequence, or the layout not the model's layers.
    """
    try:
        plan(PlanBody(**settings.plan()).request())
    except InsufficientMemory as error:
        # The null block is counted in neither of the figures.
        block_bytes = error.figures["available_bytes"] // (settings.num_blocks - 1)
        least = 1 + div_ceil(error.figures["needed_bytes"], block_bytes)
        raise click.BadParameter(
            f"{settings.num_blocks} cannot hold the longest sequence: it takes at least {least}",
            param_hint="'--num-blocks'",
        ) from error
    except PlanError as error:
        raise click.UsageError(str(error)) from error


def _num_devices(kind: str) -> int:
    if kind == "cpu":
        return 1
    accelerator = torch.accelerator.current_accelerator()
    return torch.accelerator.device_count() if accelerator and accelerator.type == kind else 0
