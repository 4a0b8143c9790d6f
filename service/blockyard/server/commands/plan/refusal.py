"""Why there is no plan, on standard error: the sentence, figures, what would do, options to change."""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click
from rich.console import Console

from blockyard.core.errors import BlockyardError, InvalidRequest
from blockyard.planning.errors import InsufficientMemory, NoMemory, UnsupportedModel
from blockyard.planning.planner import plan
from blockyard.server.commands.plan.abbreviations import group_digits, show_size, size_at_least
from blockyard.server.commands.plan.option_types import FieldOption
from blockyard.server.commands.plan.options import FIELD_OPTIONS
from blockyard.server.commands.plan.tables import print_paragraph
from blockyard.server.plan_schemas import PlanBody, WorkerBody

NUM_TOLD = 3
"""Findings that an invalid request's sentence tells; see `blockyard.server.problems.invalid_fields`."""

MAX_TRIALS = 16
"""Plans that are made to find what memory would do: each takes what another rank was short of."""

SPREADS = ("tensor", "pipeline")
"""Fields that make room for the cache though no refusal names them, as for the weights."""

UNKNOWN_MODEL = (
    "Any model can be planned by its layers: blockyard plan --request plan.json, with those of each rank "
    "under workers, as /docs of a server describes them."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a refusal answers.

    Attributes:
        options: That the line had.
        body: The request that came of them; None where they make none.
    """

    options: Collection[FieldOption]
    body: PlanBody | None

    def has(self, option: FieldOption) -> bool:
        """Whether the line has this option of a rank's memory, or none, as the request's file says it."""
        return option in self.options or not any(each.is_per_rank for each in self.options)

    @property
    def has_total_memory(self) -> bool:
        """Whether a rank's memory is that of its device, of which a part may be used."""
        return self.body is not None and any(worker.total_memory_bytes for worker in self.body.workers)

    @property
    def has_model(self) -> bool:
        """Whether the layers follow from a configuration."""
        return self.body is not None and self.body.hf_config is not None


class NoPlan(click.ClickException):
    """A refusal, shown with its code and figures: exit status 1."""

    def __init__(self, error: BlockyardError, asked: Asked) -> None:
        super().__init__(f"{error.code}: {group_digits(str(error))}")
        self.figures = error.figures
        self.advice = list(_advice(error, asked))
        self.options = [each.opts[0] for each in FIELD_OPTIONS if _helps(each, error, asked)]

    def show(self, file: Any = None) -> None:
        """On standard error, or ``file``."""
        console = Console(file=file, stderr=file is None, highlight=False)
        print_paragraph(console, f"Error: {self.message}", style="red")
        for line in self._figures():
            print_paragraph(console, line, lead="  ", indent=4)
        for line in self.advice:
            print_paragraph(console, line)
        if self.options:
            print_paragraph(console, f"Options to change: {', '.join(self.options)}")

    def _figures(self) -> Iterator[str]:
        for name, value in self.figures.items():
            if name == "errors":
                yield from (f"{each['field']}: {each['message']}" for each in value[NUM_TOLD:])
            elif isinstance(value, int):
                size = f" ({show_size(value)})" if name.endswith("_bytes") else ""
                yield f"{name}: {value:,}{size}"
            elif isinstance(value, str):
                yield f"{name}: {value}"


class NoRequest(NoPlan):
    """The refusal of a request that cannot be, which is a mistake in the arguments."""

    exit_code = 2


def refusal(error: BlockyardError, asked: Asked) -> NoPlan:
    """``error`` for the command line."""
    return NoRequest(error, asked) if isinstance(error, InvalidRequest) else NoPlan(error, asked)


def _advice(error: BlockyardError, asked: Asked) -> Iterator[str]:
    if isinstance(error, UnsupportedModel):
        yield UNKNOWN_MODEL
    if isinstance(error, (NoMemory, InsufficientMemory)) and asked.body is not None:
        would_do = list(_enough(error, asked.body))
        if would_do:
            yield f"Enough is {', or '.join(would_do)}."


def _enough(error: BlockyardError, body: PlanBody) -> Iterator[str]:
    """What would do, in the options' own terms; each by itself."""
    if body.num_blocks_override is not None:
        num_blocks = _enough_blocks(body)
        if num_blocks is not None:
            yield f"--num-blocks {num_blocks} or more"
    else:
        num_bytes = _enough_memory(body)
        if num_bytes is not None:
            yield from _memory_options(num_bytes, body.workers)
    if error.figures.get("longest_model_len"):
        yield "--max-model-len auto"


def _memory_options(num_bytes: int, workers: Collection[WorkerBody]) -> Iterator[str]:
    """For ``num_bytes`` to be left on each rank."""
    each = " on each rank" if len(workers) > 1 else ""
    if all(worker.total_memory_bytes is None for worker in workers):
        yield f"--available-memory {size_at_least(num_bytes)[0]} or more{each}"
        return
    totals = [
        num_bytes
        if worker.total_memory_bytes is None
        else math.ceil(Fraction(num_bytes + worker.weights_bytes) / Fraction(worker.memory_utilization))
        for worker in workers
    ]
    yield f"--gpu-memory {size_at_least(max(totals))[0]} or more{each}"
    shares = [
        Fraction(num_bytes + worker.weights_bytes, worker.total_memory_bytes)
        for worker in workers
        if worker.total_memory_bytes
    ]
    utilization = math.ceil(max(shares) * 1000) / 1000 if shares else math.inf
    if utilization <= 1:
        yield f"--utilization {utilization:g} or more{each}"


def _enough_memory(body: PlanBody) -> int | None:
    """The least memory for the cache, the same on each rank, with which there is a plan; None if unknown."""
    num_bytes = 0
    for _ in range(MAX_TRIALS):
        workers = [
            WorkerBody(available_memory_bytes=num_bytes, layers=worker.layers) for worker in body.workers
        ]
        short = _try(body.model_copy(update={"workers": workers}))
        if short is None or not isinstance(short, (NoMemory, InsufficientMemory)):
            return num_bytes if short is None else None
        figures = short.figures
        if isinstance(short, NoMemory):
            num_bytes = 2 * figures["bytes_per_block"]
        else:  # the null block is what the rank has beside `available_bytes`
            num_bytes = figures["needed_bytes"] + num_bytes - figures["available_bytes"]
    return None


def _enough_blocks(body: PlanBody) -> int | None:
    """The least number of blocks with which there is a plan; None if unknown."""
    num_blocks = 2
    for _ in range(MAX_TRIALS):
        short = _try(body.model_copy(update={"num_blocks_override": num_blocks}))
        if not isinstance(short, InsufficientMemory):
            return num_blocks if short is None else None
        bytes_per_block = short.figures["available_bytes"] // (num_blocks - 1)
        num_blocks = short.figures["needed_bytes"] // bytes_per_block + 1
    return None


def _try(body: PlanBody) -> BlockyardError | None:
    try:
        plan(body.request())
    except BlockyardError as error:
        return error
    return None


def _helps(option: FieldOption, error: BlockyardError, asked: Asked) -> bool:
    """Whether it sets a field that ``error`` is about, or makes room where that is wanting."""
    findings = error.figures.get("errors", [])
    if any(_concerns(each["field"], option) for each in findings):
        return not option.is_per_rank or asked.has(option)
    words = [] if findings else re.findall(r"[a-z][a-z_.]*[a-z]", str(error))
    wants_memory = "available_memory_bytes" in words
    if option.is_per_rank and wants_memory:
        return asked.has(option) or (option.path[-1] == "memory_utilization" and asked.has_total_memory)
    if wants_memory and option.path[-1] in ("kv_cache_dtype", *SPREADS):
        return asked.has_model
    if any(each["field"].endswith(".weights_bytes") for each in findings):
        return option.path[-1] in ("total_memory_bytes", "memory_utilization") or (
            option.path[-1] in SPREADS and asked.has_model
        )
    return ".".join(option.path) in words


def _concerns(field: str, option: FieldOption) -> bool:
    """Whether ``field``, such as ``workers.3.weights_bytes``, is the option's, or one is inside the other."""
    path = [part for part in field.split(".") if not part.isdecimal()]
    return all(one == other for one, other in zip(path, option.path, strict=False))
