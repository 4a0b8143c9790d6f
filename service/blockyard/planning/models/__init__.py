"""Models by their ``config.json``: which caches each rank keeps.

    text_part     the language model's fields, in a configuration of several modalities
    registry      a reader for each architecture
    families/     the readers: which caches a family's layers have
    heads, spans, states, storage      sizes, reach, recurrent states and element types
    factory       one rank's layers of these sizes
    model         `layers_of_model`, the way in

Pure, as all of the planner. Nothing is guessed: an architecture that is not understood is refused, and the
refusal names the field.
"""

from blockyard.planning.models.model import ModelLayers, layers_of_model
from blockyard.planning.models.storage import KV_CACHE_DTYPES

__all__ = ["KV_CACHE_DTYPES", "ModelLayers", "layers_of_model"]
