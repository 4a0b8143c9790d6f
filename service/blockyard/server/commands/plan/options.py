"""What may stand on the line of ``blockyard plan``: each option names the field of the request that it sets.

An option that is not given sets nothing, so that a request from a file keeps its own values.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from blockyard.planning.layers import MAMBA_CACHE_MODES
from blockyard.planning.layouts import Layout
from blockyard.planning.models import KV_CACHE_DTYPES
from blockyard.planning.request import TensorForm
from blockyard.server.commands.plan.option_types import (
    DTYPE_ALIASES,
    CacheDtype,
    FieldOption,
    MaxModelLen,
    PerRank,
    PlotFile,
    SectionOption,
    Size,
)

NUMBER: Mapping[str, Any] = {"type": click.IntRange(min=1), "metavar": "N"}
COUNT = click.IntRange(min=0)
SIZES: Mapping[str, Any] = {"type": PerRank(Size()), "multiple": True, "metavar": "SIZE"}
TAKEN_SIZES: Mapping[str, Any] = {**SIZES, "type": PerRank(Size(math.ceil))}

_file = partial(click.Path, exists=True, allow_dash=True, path_type=Path)
_model = partial(FieldOption, section="The model")
_memory = partial(FieldOption, section="The memory of each rank")
_ranks = partial(FieldOption, section="How the model is spread")
_blocks = partial(FieldOption, section="Blocks and requests")
_layout = partial(FieldOption, section="Where layers lie")
_drafts = partial(FieldOption, section="Speculative decoding")
_host = partial(FieldOption, section="Sparse MLA pages in host memory")
_output = partial(SectionOption, section="Output")

PARAMETERS: list[SectionOption] = [
    _model(
        "hf_config",
        "--config",
        type=_file(),
        metavar="FILE",
        help="Its config.json, or the folder that has it.",
    ),
    _model(
        "kv_cache_dtype",
        "--kv-cache-dtype",
        type=CacheDtype(),
        metavar="TYPE",
        help=f"Of the cache's elements: {', '.join(KV_CACHE_DTYPES)}; {', '.join(DTYPE_ALIASES)} for short.",
    ),
    _model(
        "max_model_len",
        "--max-model-len",
        type=MaxModelLen(),
        metavar="TOKENS|auto",
        show_default="the model's",
        help="Tokens of the longest request; auto: as many as fit, the model's at most.",
    ),
    _model("auto_fit_max_model_len", "--auto-fit/--no-auto-fit", help="Cut --max-model-len to what fits."),
    _model(
        "max_encoder_tokens",
        "--max-encoder-tokens",
        **NUMBER,
        show_default="the model's",
        help="Tokens of the longest encoder input, for cross attention.",
    ),
    SectionOption(
        "--request",
        section="The model",
        type=_file(dir_okay=False),
        metavar="FILE",
        help="A whole request as POST /v1/plans takes it; '-' reads it from standard input. Options "
        "override its fields.",
    ),
    _memory("workers.total_memory_bytes", "--gpu-memory", **SIZES, help="All memory of the device."),
    _memory(
        "workers.memory_utilization",
        "--utilization",
        type=PerRank(click.FloatRange(0, 1, min_open=True)),
        multiple=True,
        metavar="SHARE",
        help="The part of it that may be used.",
    ),
    _memory(
        "workers.weights_bytes",
        "--weights",
        **TAKEN_SIZES,
        help="What of that the weights and the like take up.",
    ),
    _memory(
        "workers.available_memory_bytes",
        "--available-memory",
        **SIZES,
        help="What is left for the cache, in place of the three above.",
    ),
    _memory(
        "num_blocks_override",
        "--num-blocks",
        **NUMBER,
        help="Plan so many blocks, whatever the memory; it need not be given then.",
    ),
    _ranks("parallel.tensor", "--tensor", **NUMBER, help="Ranks that share every layer."),
    _ranks(
        "parallel.pipeline",
        "--pipeline",
        **NUMBER,
        help="Stages that share the layers out.",
    ),
    _ranks(
        "parallel.pipeline_partition",
        "--pipeline-partition",
        type=PerRank(COUNT),
        metavar="LAYERS,...",
        show_default="even",
        help="Layers of each stage, such as 11,11,12,11.",
    ),
    _ranks(
        "parallel.decode_context",
        "--decode-context",
        **NUMBER,
        help="Ranks that share the token positions of a request.",
    ),
    _ranks(
        "parallel.prefill_context",
        "--prefill-context",
        **NUMBER,
        help="Ranks that share the tokens of a prefill; of no effect on what is kept.",
    ),
    _blocks("block_size", "--block-size", **NUMBER, help="Tokens a block."),
    _blocks(
        "enable_prefix_caching", "--prefix-caching/--no-prefix-caching", help="Whether blocks are hashed."
    ),
    _blocks(
        "prefix_match_unit",
        "--prefix-match-unit",
        **NUMBER,
        show_default="the finest",
        help="Tokens that a hit's length is a multiple of.",
    ),
    _blocks(
        "hybrid_groups",
        "--hybrid-groups/--no-hybrid-groups",
        help="Block tables of their own for layers with windows; else they are allocated like the others.",
    ),
    _blocks(
        "mamba_cache_mode",
        "--mamba-cache-mode",
        type=click.Choice(MAMBA_CACHE_MODES),
        help="Which recurrent states are kept.",
    ),
    _blocks(
        "max_in_flight_tokens",
        "--max-in-flight-tokens",
        **NUMBER,
        help="Tokens of a request that are computed at once, at most.",
    ),
    _layout(
        "layout",
        "--layout",
        type=click.Choice([layout.value for layout in Layout]),
        show_default="LBNHC, or BLNHC for slots",
        help="Layer, block, head, state (N), content, from the outermost to the innermost.",
    ),
    _layout(
        "tensor_form",
        "--tensor-form",
        type=click.Choice([form.value for form in TensorForm]),
        help="A tensor a run of equal layers, or a page of every block (slots).",
    ),
    _drafts(
        "speculative.method",
        "--speculative-method",
        metavar="NAME",
        help="The drafter, such as eagle or mtp.",
    ),
    _drafts(
        "speculative.model_type",
        "--speculative-model-type",
        metavar="NAME",
        help="The model's type, where draft layers bear no mark.",
    ),
    _drafts(
        "speculative.num_prefill_lookahead_tokens",
        "--speculative-lookahead-tokens",
        type=COUNT,
        metavar="N",
        help="Tokens that the drafter looks ahead in a prefill.",
    ),
    _host(
        "hisparse.host_pool_bytes",
        "--hisparse-host-pool",
        type=Size(),
        metavar="SIZE",
        help="Host memory for the pages; giving it turns this on.",
    ),
    _host(
        "hisparse.index_topk",
        "--hisparse-index-topk",
        **NUMBER,
        show_default="the model's",
        help="Tokens that sparse attention reads.",
    ),
    _host(
        "hisparse.device_buffer_size",
        "--hisparse-device-buffer",
        **NUMBER,
        show_default="enough",
        help="Tokens of a request that stay on the device.",
    ),
    _host(
        "hisparse.max_decode_query_len",
        "--hisparse-max-decode-query-len",
        **NUMBER,
        help="Queries of a request that one step decodes.",
    ),
    _host(
        "hisparse.shared_host_pool",
        "--hisparse-shared-host-pool/--no-hisparse-shared-host-pool",
        help="Whether the ranks of a machine share the pages.",
    ),
    _output("--tensors", is_flag=True, show_default=False, help="Print every tensor, however many."),
    _output(
        "--plot",
        type=PlotFile(),
        metavar="FILE",
        help="Draw requests and blocks over the context length, to FILE.svg or FILE.png.",
    ),
    _output(
        "--json",
        "as_json",
        is_flag=True,
        show_default=False,
        help="Print the reply of POST /v1/plans, for programs.",
    ),
]
"""In the order of ``--help``."""

FIELD_OPTIONS = [option for option in PARAMETERS if isinstance(option, FieldOption)]
