"""The document that POST /v1/plans takes: from a file, and from options over it."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from blockyard.server.commands.plan.option_types import AUTO, WORKERS, FieldOption

STANDARD_INPUT = Path("-")
MEMORY_FIELDS = ("total_memory_bytes", "available_memory_bytes")
"""Of a rank, one in place of the other."""

FOLLOW_FROM_LAYERS = ("block_size", "kv_cache_dtype")
"""Fields that say how a configuration is read; layers say the same of themselves."""

Given = Mapping[FieldOption, Any]
"""The options on the line, with their values."""


class BadFile(click.ClickException):
    """A file that is not what its option takes: a mistake in the arguments."""

    exit_code = 2


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file ``path``.

    Raises:
        BadFile: There is none, or the file cannot be read.
    """
    name = "standard input" if path == STANDARD_INPUT else str(path)
    try:
        text = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
        document = json.loads(text)
    except OSError as error:
        raise BadFile(f"{name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadFile(f"{name} holds no JSON object, which begins with '{{' and ends with '}}'")
    return document


def config_file(path: Path) -> Path:
    """``path``, or the config.json in it where it is a folder.

    Raises:
        click.BadParameter: The folder has none.
    """
    if not path.is_dir():
        return path
    config = path / "config.json"
    if not config.is_file():
        raise click.BadParameter(f"the folder {str(path)!r} has no config.json", param_hint="'--config'")
    return config


def plan_document(request: Mapping[str, Any] | None, given: Given) -> dict[str, Any]:
    """``request``, or a new one, with the fields that ``given`` sets.

    Raises:
        click.UsageError: The options do not fit each other, or say too little.
    """
    if request is not None and "architectures" in request:
        raise click.UsageError("--request names a model's config.json: give that as --config")
    document = dict(request or {})
    for option, value in given.items():
        if not option.is_per_rank:
            _set(document, option.path, value)
    if request is not None and "hf_config" not in document:
        _refuse_what_layers_say(given)
    if document.get("max_model_len") == AUTO:
        _fit_max_model_len(document, request or {})
    workers = document.get(WORKERS, [{}])
    if isinstance(workers, list):
        document[WORKERS] = _workers(workers, {o: v for o, v in given.items() if o.is_per_rank})
        if "num_blocks_override" in document:
            document[WORKERS] = [_without_memory(worker) for worker in document[WORKERS]]
    if request is None:
        _check_is_whole(document)
    return document


def _set(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *part, name = path
    value = list(value) if isinstance(value, tuple) else value
    if part:
        inner = document.get(part[0]) or {}
        if isinstance(inner, dict):  # else it stands, to be refused as what it is
            document[part[0]] = {**inner, name: value}
    else:
        document[name] = value


def _refuse_what_layers_say(given: Given) -> None:
    for option in given:
        if option.path[-1] in FOLLOW_FROM_LAYERS:
            raise click.UsageError(
                f"{option.opts[0]} goes with --config: in a request of layers it follows from the layers"
            )


def _without_memory(worker: Any) -> Any:
    """``worker``, which need not say its memory where the number of blocks is given."""
    if isinstance(worker, dict) and not any(worker.get(name) is not None for name in MEMORY_FIELDS):
        return {**worker, "available_memory_bytes": 0}
    return worker


def _fit_max_model_len(document: dict[str, Any], request: Mapping[str, Any]) -> None:
    """Up to the model's own length, or where there is no model to ask, up to that of the request."""
    document["auto_fit_max_model_len"] = True
    document["max_model_len"] = None if "hf_config" in document else request.get("max_model_len")


def _workers(workers: list[Any], given: Given) -> list[Any]:
    """``workers``, at least one, with the fields of each; one stands for as many as there are values."""
    num_ranks = max([len(workers), *map(len, given.values())])
    if len(workers) == 1:
        workers = workers * num_ranks
    for option, values in given.items():
        if len(values) not in (1, len(workers)):
            raise click.UsageError(
                f"{option.opts[0]} has {len(values)} values for {len(workers)} ranks: give one, or one a rank"
            )
    names = {option.path[1] for option in given}
    if names.issuperset(MEMORY_FIELDS):
        raise click.UsageError("--available-memory stands in place of --gpu-memory: give one of the two")
    replaced = set(MEMORY_FIELDS) if names & set(MEMORY_FIELDS) else set()
    return [
        {
            **{name: value for name, value in worker.items() if name not in replaced},
            **{o.path[1]: values[rank if len(values) > 1 else 0] for o, values in given.items()},
        }
        if isinstance(worker, dict)
        else worker
        for rank, worker in enumerate(workers)
    ]


def _check_is_whole(document: Mapping[str, Any]) -> None:
    """Refuse options that say too little, in the words of the line."""
    if "hf_config" not in document:
        raise click.UsageError("give a model, --config config.json, or a whole request, --request plan.json")
    if not any(name in worker for worker in document[WORKERS] for name in MEMORY_FIELDS):
        raise click.UsageError(
            "say how much memory a rank has, --gpu-memory 80GiB --weights 15GiB or --available-memory 55GiB, "
            "or how many blocks, --num-blocks 10000"
        )


def flatten(values: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The values of an option that was given several times, each with one or several."""
    return tuple(value for part in values for value in part)
