"""What a plan can be refused for, as branches of the one tree of errors.

BlockyardError
└── PlanError
    ├── NoMemory                   no_memory
    ├── InsufficientMemory         insufficient_memory
    ├── ConflictingLayerSpecs      conflicting_layer_specs
    ├── IncompatiblePageSizes      incompatible_page_sizes
    ├── CannotUnifyHybrid          cannot_unify_hybrid
    ├── LayoutCannotExpress        layout_cannot_express
    ├── InvalidPrefixMatchUnit     invalid_prefix_match_unit
    ├── StatePageTooLarge          state_page_too_large
    ├── PipelineStageWithoutMla    pipeline_stage_without_mla
    ├── HostPoolTooSmall           host_pool_too_small
    ├── DeviceBufferTooSmall       device_buffer_too_small
    └── UnsupportedModel           unsupported_model
"""

from blockyard.core.errors import BlockyardError


class PlanError(BlockyardError):
    """No plan fits the request. Other sizes may be asked for at once: nothing is kept."""


class NoMemory(PlanError):
    """No block fits beside the null block. Figures: ``rank``, ``available_bytes``, ``bytes_per_block``."""

    code = "no_memory"
    title = "There is no memory for any block"


class InsufficientMemory(PlanError):
    """One request of full length does not fit.

    Figures: ``rank``, ``needed_bytes``, ``available_bytes`` (both without the null block),
    ``estimated_max_model_len`` (tokens that would fit on this rank), ``longest_model_len`` (on every rank);
    0 if not even one does.
    """

    code = "insufficient_memory"
    title = "There is too little memory for one request of full length"


class ConflictingLayerSpecs(PlanError):
    """Ranks describe one layer differently. Figures: ``layer``."""

    code = "conflicting_layer_specs"
    title = "One layer is described in two ways"


class IncompatiblePageSizes(PlanError):
    """Pages of several sizes cannot be brought to one. Figures: ``page_size_bytes`` by layer."""

    code = "incompatible_page_sizes"
    title = "The layers' pages cannot be brought to one size"


class CannotUnifyHybrid(PlanError):
    """Layers of different kinds cannot be allocated like one kind. Figures: ``kinds``."""

    code = "cannot_unify_hybrid"
    title = "The layers cannot be allocated as one kind"


class LayoutCannotExpress(PlanError):
    """The memory layout does not allow these pages. Figures: ``layout``, ``possible_layouts``."""

    code = "layout_cannot_express"
    title = "The memory layout cannot express the plan"


class InvalidPrefixMatchUnit(PlanError):
    """Hits cannot end at multiples of the unit. Figures: ``prefix_match_unit``, ``block_sizes``."""

    code = "invalid_prefix_match_unit"
    title = "The prefix match unit does not fit the block sizes"


class StatePageTooLarge(PlanError):
    """A state does not fit the page it would share. Figures: ``state_bytes``, ``page_size_bytes``."""

    code = "state_page_too_large"
    title = "A recurrent state is larger than the page it shares"


class PipelineStageWithoutMla(PlanError):
    """A stage has recurrent layers and no MLA layer to share slots with. Figures: ``stage``."""

    code = "pipeline_stage_without_mla"
    title = "A pipeline stage has no MLA layer to share slots with"


class HostPoolTooSmall(PlanError):
    """The host pool does not hold one request. Figures: ``num_host_blocks``, ``num_required_blocks``."""

    code = "host_pool_too_small"
    title = "The host pool is too small for one request"


class DeviceBufferTooSmall(PlanError):
    """The hot buffer is too small for a step. Figures: ``device_buffer_size``, ``needed_tokens``."""

    code = "device_buffer_too_small"
    title = "The device buffer is too small for one step"


class UnsupportedModel(PlanError):
    """The configuration is not understood. Figures: ``model_type``, and ``field`` where one is missing."""

    code = "unsupported_model"
    title = "The model's configuration is not understood"


PLAN_ERRORS: tuple[type[PlanError], ...] = (
    NoMemory,
    InsufficientMemory,
    ConflictingLayerSpecs,
    IncompatiblePageSizes,
    CannotUnifyHybrid,
    LayoutCannotExpress,
    InvalidPrefixMatchUnit,
    StatePageTooLarge,
    PipelineStageWithoutMla,
    HostPoolTooSmall,
    DeviceBufferTooSmall,
    UnsupportedModel,
)
"""Every one, each code once."""
