"""``blockyard plan``: a plan made here, without a server, for people or for programs."""

from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from blockyard.core.errors import BlockyardError
from blockyard.planning.planner import Plan, plan
from blockyard.server.commands.json_output import print_json
from blockyard.server.commands.plan.document import (
    STANDARD_INPUT,
    config_file,
    flatten,
    plan_document,
    read_object,
)
from blockyard.server.commands.plan.option_types import FieldOption, SectionOption
from blockyard.server.commands.plan.options import FIELD_OPTIONS, PARAMETERS
from blockyard.server.commands.plan.refusal import Asked, refusal
from blockyard.server.plan_reply import plan_reply
from blockyard.server.plan_schemas import PlanBody
from blockyard.server.problems import invalid_body, problem

HELP = """Plan a model's KV cache: how many blocks fit, what they serve, and where each layer lies.

The layers follow from the model's config.json and how it is spread; the blocks from the memory that a rank
has beside the weights. Nothing is loaded and no server is asked.

A SIZE is 80GiB, 80GB, 512MiB or a number of bytes. Memory may differ between ranks: give a value a rank, by
comma or by repeating the option, or one for all. Ranks count by stage, then by tensor shard.
"""

EXAMPLES = """\b
Examples:
    blockyard plan --config config.json --gpu-memory 80GiB --weights 15GiB
    blockyard plan --config Llama-3.1-70B/ --tensor 4 --kv-cache-dtype fp8 \\
        --gpu-memory 80GiB --weights 33GiB --max-model-len auto
    blockyard plan --config config.json --pipeline 2 \\
        --available-memory 60GiB,40GiB --plot plan.svg
    blockyard plan --config config.json --num-blocks 10000
    blockyard plan --request plan.json --available-memory 40GiB --json
    curl -s https://models.internal/config.json |
        blockyard plan --config - --available-memory 55GiB

\b
Exit status:
    0  there is a plan
    1  there is none: too little memory, say, or a model not understood
    2  a mistake in the arguments or in a file: values out of range or that do
       not fit each other (invalid_request), or no JSON
"""


class PlanCommand(click.Command):
    """A command with its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options of each section, in the order of the first."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                section = option.section if isinstance(option, SectionOption) else "Output"
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


def _run(**values: Any) -> None:
    given = _given(values)
    request = None if values["request"] is None else read_object(values["request"])
    document = plan_document(request, given)
    body = None
    try:
        body = _body(document)
        planned = plan(body.request())
    except BlockyardError as error:
        if values["as_json"]:
            print_json(problem(error))
        raise refusal(error, Asked(given, body)) from error
    if values["plot"] is not None:
        _draw(values["plot"], body, planned)
    if values["as_json"]:
        click.echo(plan_reply(planned).model_dump_json())
        return
    # A tenth of a second that a program does not need.
    from blockyard.server.commands.plan.report import print_report  # noqa: PLC0415

    print_report(body, planned, all_tensors=values["tensors"])
    if values["plot"] is not None:
        click.echo(f"\nDrawn: {values['plot']}")


def _draw(path: Path, body: PlanBody, planned: Plan) -> None:
    """Draw the chart: only those who want one need its package, and wait a second for it."""
    try:
        from blockyard.server.commands.plan.chart import draw_chart  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("blockyard"):
            raise
        raise click.ClickException(
            f"--plot needs the package {error.name!r}: pip install 'blockyard[plot]'"
        ) from error
    draw_chart(path, body, planned)


def _given(values: dict[str, Any]) -> dict[FieldOption, Any]:
    """The options on the line that set a field, with its values."""
    if values["request"] == values["config"] == STANDARD_INPUT:
        raise click.UsageError("'-' for --config and for --request: only one can be read from standard input")
    given = {}
    for option in FIELD_OPTIONS:
        value = values[option.name or ""]
        if value is None or value == ():
            continue
        if option.name == "config":
            value = read_object(config_file(value))
        given[option] = flatten(value) if option.multiple else value
    return given


def _body(document: dict[str, Any]) -> PlanBody:
    """The request that ``document`` is.

    Raises:
        InvalidRequest: It is none.
    """
    try:
        return PlanBody.model_validate(document)
    except ValidationError as error:
        raise invalid_body(error) from error


command = PlanCommand("plan", callback=_run, params=[*PARAMETERS], help=HELP, epilog=EXAMPLES)
