"""The body of a plan's request and its reply. The command line reads and prints the same."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from pydantic import ConfigDict, create_model
from pydantic import Field as BodyField

from blockyard.core.errors import InvalidRequest
from blockyard.planning.groups import Layers
from blockyard.planning.layers import LAYER_KINDS, MAMBA_CACHE_MODES, Layer
from blockyard.planning.layouts import Layout
from blockyard.planning.models import ModelLayers, layers_of_model
from blockyard.planning.parallel import MAX_RANKS, Parallel
from blockyard.planning.planner import max_decode_context
from blockyard.planning.request import PlanRequest, Rank, SparseHost, Speculative, TensorForm
from blockyard.server.body import MAX_COUNT, Body, Count, Name, PositiveCount

MAX_LAYERS = 65_536
"""Of one rank."""

DEFAULT_MEMORY_UTILIZATION = 0.9


class LayerBody(Body):
    """A layer that keeps a cache. Each kind in `LAYER_KINDS` has a body of its own, made from its fields."""

    def layer(self) -> Layer:
        """The layer.

        Raises:
            InvalidRequest: Its sizes do not fit each other.
        """
        kind, *values = vars(self).values()
        return _make_layer(kind, tuple(map(_frozen, values)))


@lru_cache(maxsize=4096)
def _make_layer(kind: str, values: tuple[Any, ...]) -> Layer:
    """The layer of ``kind`` with its fields' ``values``, in order. Of many equal layers one is made."""
    layer = LAYER_KINDS[kind]
    return layer(**dict(zip((each.name for each in fields(layer)), values, strict=True)))


def _body_of(kind: type[Layer]) -> type[LayerBody]:
    """The body of a layer of ``kind``."""
    hints = get_type_hints(kind)
    definitions: dict[str, Any] = {"kind": (Literal[kind.kind], ...)}
    definitions |= {each.name: _body_field(each, hints[each.name]) for each in fields(kind)}
    body: type[LayerBody] = create_model(
        f"{kind.__name__}Layer",
        __base__=LayerBody,
        __doc__=(kind.__doc__ or "").partition("\n")[0],
        **definitions,
    )
    return body


def _body_field(each: "Field[Any]", hint: Any) -> tuple[Any, Any]:
    """Type and default of a layer's field in its body; counts are at least 1 unless the field says so."""
    default = ... if each.default is MISSING else each.default
    choices = each.metadata.get("choices")
    if choices:
        return Literal[choices], default
    count = Annotated[int, BodyField(ge=each.metadata.get("min", 1), le=MAX_COUNT)]
    types = {
        int: count,
        int | None: count | None,
        tuple[tuple[int, ...], ...]: Annotated[
            list[Annotated[list[count], BodyField(min_length=1, max_length=8)]],
            BodyField(min_length=1, max_length=16),
        ],
        tuple[str, ...]: list[Name],
        str: Name,
        str | None: Name | None,
        bool: bool,
    }
    return types.get(hint, Annotated[hint, BodyField(strict=False)]), default


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


if TYPE_CHECKING:
    AnyLayer = LayerBody
else:
    AnyLayer = Annotated[
        reduce(or_, [_body_of(kind) for kind in LAYER_KINDS.values()]), BodyField(discriminator="kind")
    ]


class WorkerBody(Body):
    """A rank: its memory for the cache, and its layers unless they follow from a model's configuration."""

    available_memory_bytes: Count | None = BodyField(None, description="Memory for the KV cache.")
    total_memory_bytes: Count | None = BodyField(
        None, description="In place of the above: the device's memory."
    )
    memory_utilization: Annotated[float, BodyField(gt=0, le=1)] = BodyField(
        DEFAULT_MEMORY_UTILIZATION, description="The part of it that may be used."
    )
    weights_bytes: Count = BodyField(0, description="What of that the weights and the like take up.")
    layers: dict[Name, AnyLayer] | None = BodyField(
        None, description="By name, in the order in which the model registers them.", max_length=MAX_LAYERS
    )

    def available_bytes(self) -> int:
        """Memory for the KV cache.

        Raises:
            InvalidRequest: It is not given, or twice, or the weights leave none.
        """
        available, total = self.available_memory_bytes, self.total_memory_bytes
        if available is not None and total is not None:
            raise InvalidRequest.of(
                "total_memory_bytes", "goes without available_memory_bytes: give one of them"
            )
        if available is not None:
            return available
        if total is None:
            raise InvalidRequest.of(
                "available_memory_bytes", "is missing; or give total_memory_bytes and weights_bytes"
            )
        usable = int(total * self.memory_utilization)
        if self.weights_bytes > usable:
            raise InvalidRequest.of(
                "weights_bytes",
                f"leave nothing for the KV cache: {self.memory_utilization} of {total} bytes may be used",
            )
        return usable - self.weights_bytes


class ParallelBody(Body):
    """How the model is spread over ranks: rank = stage * tensor + shard."""

    tensor: Annotated[int, BodyField(ge=1, le=MAX_RANKS)] = 1
    pipeline: Annotated[int, BodyField(ge=1, le=MAX_RANKS)] = 1
    decode_context: Annotated[int, BodyField(ge=1, le=MAX_RANKS)] = BodyField(
        1, description="Ranks that share the token positions of a request."
    )
    prefill_context: Annotated[int, BodyField(ge=1, le=MAX_RANKS)] = 1
    num_hidden_layers: PositiveCount | None = None
    pipeline_partition: list[Count] | None = BodyField(None, description="Layers of each stage.")

    def parallel(self) -> Parallel:
        """The same for the planner."""
        given = self.model_dump()
        partition = self.pipeline_partition
        return Parallel(**{**given, "pipeline_partition": None if partition is None else tuple(partition)})


class SpeculativeBody(Body):
    """How tokens are drafted."""

    method: Name
    model_type: Name | None = None
    num_prefill_lookahead_tokens: Count = 0


class HisparseBody(Body):
    """Sparse MLA pages in host memory."""

    host_pool_bytes: Count
    index_topk: PositiveCount | None = BodyField(None, description="Default: the model's.")
    device_buffer_size: PositiveCount | None = BodyField(
        None, description="Tokens of a request that stay hot; default: those of one step, and one top-k more."
    )
    max_decode_query_len: PositiveCount = 1
    shared_host_pool: bool = False


class PlanBody(Body):
    """A model's layers, or its configuration, and the memory of each rank."""

    model_config = ConfigDict(title="PlanRequest")

    workers: Annotated[list[WorkerBody], BodyField(min_length=1, max_length=MAX_RANKS)] = BodyField(
        description="One a rank; with hf_config, one may stand for all."
    )
    hf_config: dict[str, Any] | None = BodyField(
        None, description="A model's config.json, from which each rank's layers follow."
    )
    kv_cache_dtype: Name = BodyField("auto", description="With hf_config; auto: the model's own.")
    max_model_len: PositiveCount | None = BodyField(
        None, description="Tokens of the longest request; default with hf_config: the model's."
    )
    auto_fit_max_model_len: bool = BodyField(False, description="Cut it to what fits.")
    block_size: PositiveCount = BodyField(16, description="Tokens a block, with hf_config.")
    layout: Annotated[Layout | None, BodyField(strict=False)] = BodyField(
        None, description="Memory layout; default LBNHC, or BLNHC for slots."
    )
    num_blocks_override: PositiveCount | None = BodyField(
        None, description="So many blocks, whatever the memory."
    )
    enable_prefix_caching: bool = True
    prefix_match_unit: PositiveCount | None = BodyField(
        None, description="Tokens that a hit's length is a multiple of."
    )
    hybrid_groups: bool = BodyField(True, description="Block tables of their own for layers with windows.")
    mamba_cache_mode: Literal[MAMBA_CACHE_MODES] = "none"  # type: ignore[valid-type]
    max_in_flight_tokens: PositiveCount = 8192
    max_encoder_tokens: PositiveCount | None = BodyField(
        None, description="Tokens of the longest encoder input, for cross attention."
    )
    parallel: ParallelBody = BodyField(default_factory=ParallelBody)
    speculative: SpeculativeBody | None = None
    hisparse: HisparseBody | None = None
    tensor_form: Annotated[TensorForm, BodyField(strict=False)] = TensorForm.LAYERS

    def request(self) -> PlanRequest:
        """The same for the planner, with layers that follow from a model's configuration.

        Raises:
            InvalidRequest: Values are missing or contradict each other.
            UnsupportedModel: The configuration is not understood.
        """
        parallel = self.parallel.parallel()
        model = self._model(parallel)
        max_model_len = self.max_model_len or (model.max_model_len if model else None)
        if max_model_len is None:
            states_none = ", and hf_config states none: give the most that you want served"
            raise InvalidRequest.of("max_model_len", "is missing" + (states_none if model else ""))
        if model is not None:
            _check_decode_context(model, parallel)
            if self.speculative is not None and Speculative(**self.speculative.model_dump()).drafts_with_kv:
                raise InvalidRequest.of(
                    "speculative", "hf_config describes no draft layers: give each rank's layers in its place"
                )
        speculative, hisparse = self.speculative, self.hisparse
        slots = self.tensor_form is TensorForm.SLOTS
        return PlanRequest(
            ranks=self._ranks(model, parallel),
            max_model_len=max_model_len,
            auto_fit_max_model_len=self.auto_fit_max_model_len,
            block_size=self.block_size,
            layout=self.layout or (Layout.BLNHC if slots else Layout.LBNHC),
            num_blocks_override=self.num_blocks_override,
            enable_prefix_caching=self.enable_prefix_caching,
            prefix_match_unit=self.prefix_match_unit,
            hybrid_groups=self.hybrid_groups,
            mamba_cache_mode=self.mamba_cache_mode,
            max_in_flight_tokens=self.max_in_flight_tokens,
            max_encoder_tokens=self.max_encoder_tokens or (model.max_encoder_tokens if model else None),
            parallel=parallel,
            speculative=Speculative(**speculative.model_dump()) if speculative else None,
            sparse_host=_sparse_host(hisparse, model) if hisparse else None,
            tensor_form=self.tensor_form,
            remarks=self._remarks(model, max_model_len),
        )

    def _remarks(self, model: ModelLayers | None, max_model_len: int) -> list[str]:
        if model is None:
            return []
        remarks = list(model.remarks)
        if model.max_model_len is not None and max_model_len > model.max_model_len:
            remarks.append(f"max_model_len is above what the model states, {model.max_model_len}")
        return remarks

    def _model(self, parallel: Parallel) -> ModelLayers | None:
        if self.hf_config is None:
            return None
        return layers_of_model(
            self.hf_config,
            parallel=parallel,
            block_size=self.block_size,
            kv_cache_dtype=self.kv_cache_dtype,
            mamba_cache_mode=self.mamba_cache_mode,
        )

    def _ranks(self, model: ModelLayers | None, parallel: Parallel) -> list[Rank]:
        workers = self.workers
        if model is not None:
            if len(workers) == 1:
                workers = workers * parallel.num_ranks
            elif len(workers) != parallel.num_ranks:
                raise InvalidRequest.of(
                    "workers", f"give one, or one a rank: tensor times pipeline is {parallel.num_ranks}"
                )
        ranks = []
        for number, worker in enumerate(workers):
            try:
                if (worker.layers is None) == (model is None):
                    raise InvalidRequest.of("layers", "give them, or hf_config at the top in their place")
                layers = model.ranks[number] if model else _layers(worker.layers or {})
                ranks.append(Rank(available_bytes=worker.available_bytes(), layers=layers))
            except InvalidRequest as error:
                raise error.inside(f"workers.{number}") from None
        return ranks


def _check_decode_context(model: ModelLayers, parallel: Parallel) -> None:
    """Refuse to spread positions over ranks that keep different heads.

    Raises:
        InvalidRequest: They would be.
    """
    layers = {layer for rank in model.ranks for layer in rank.values()}
    most = max_decode_context(layers, parallel.tensor)
    if most % parallel.decode_context:
        raise InvalidRequest.of(
            "parallel.decode_context",
            f"must divide {most}: so many of {parallel.tensor} tensor ranks keep the same KV heads",
        )


def _layers(bodies: Mapping[str, LayerBody]) -> Layers:
    layers = {}
    for name, body in bodies.items():
        try:
            layers[name] = body.layer()
        except InvalidRequest as error:
            raise error.inside(f"layers.{name}") from None
    return layers


def _sparse_host(body: HisparseBody, model: ModelLayers | None) -> SparseHost:
    index_topk = body.index_topk or (model.index_topk if model else None)
    if index_topk is None:
        raise InvalidRequest.of("hisparse.index_topk", "is missing")
    return SparseHost(**{**body.model_dump(), "index_topk": index_topk})
