"""Typed reading of a model's ``config.json``: a field is there and right, or a refusal names it.

A field that is null counts as absent, as it does in transformers. Every number is bounded, so that no
configuration can make the planner work without end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from blockyard.core.errors import InvalidRequest
from blockyard.planning.errors import UnsupportedModel

MAX_LAYERS: Final = 10_000
MAX_SIZE: Final = 2**31 - 1
"""The greatest size that a field may state."""
MAX_NAME_CHARACTERS: Final = 128

NUM_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What configurations call their number of layers, the most usual name first."""

MAX_MODEL_LEN: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_target_positions",
    "model_max_length",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
"""What they call the tokens of the longest request, in the order in which they are believed."""


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """One object of a configuration.

    Attributes:
        values: The object as it was read.
        model_type: The architecture that it describes.
        place: Where the object stands in the request, for messages.
    """

    values: Mapping[str, Any]
    model_type: str
    place: str = "hf_config"

    def has(self, *names: str) -> bool:
        """Whether one of ``names`` is given."""
        return any(self.values.get(name) is not None for name in names)

    def count(self, *names: str) -> int | None:
        """The first of ``names`` that is given, a number of 0 or more; None if none is."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return self._whole(name, value, least=0)
        return None

    def optional(self, *names: str) -> int | None:
        """The first of ``names`` that is given, a number of 1 or more; None if none is.

        Raises:
            InvalidRequest: It is no such number.
        """
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return self._whole(name, value, least=1)
        return None

    def positive(self, *names: str) -> int:
        """As `optional`, but one has to be given.

        Raises:
            UnsupportedModel: None is.
        """
        value = self.optional(*names)
        if value is None:
            raise self.missing(names[0])
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """``name``, true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(name, "must be true or false")
        return value

    def words(self, name: str) -> tuple[str, ...] | None:
        """``name``, a list of words; None if it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        if not _is_list(value) or not all(isinstance(word, str) for word in value):
            raise self.invalid(name, "must be a list of words")
        return tuple(value)

    def counts(self, name: str) -> tuple[int, ...] | None:
        """``name``, a list of numbers of 0 or more; None if it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        if not _is_list(value):
            raise self.invalid(name, "must be a list of numbers")
        return tuple(self._whole(name, number, least=0) for number in value)

    def part(self, name: str) -> "ConfigFields | None":
        """``name``, an object inside this one; None if it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.invalid(name, "must be an object")
        return ConfigFields(value, self.model_type, f"{self.place}.{name}")

    def with_defaults(self, defaults: Mapping[str, int]) -> "ConfigFields":
        """The same with what the family's configuration class fills in where a field is absent."""
        given = {name: value for name, value in self.values.items() if value is not None}
        return replace(self, values={**defaults, **given})

    def num_layers(self) -> int:
        """Layers of the model, from 1 to `MAX_LAYERS`."""
        return self.bounded_layers(*NUM_LAYERS)

    def bounded_layers(self, *names: str) -> int:
        """As `positive`, at most `MAX_LAYERS`."""
        num_layers = self.positive(*names)
        if num_layers > MAX_LAYERS:
            name = next(name for name in names if self.has(name))
            raise self.invalid(name, f"must be at most {MAX_LAYERS}")
        return num_layers

    def max_model_len(self) -> int | None:
        """Tokens of the longest request as stated; positions that are to be scaled are not worked out."""
        return self.optional(*MAX_MODEL_LEN)

    def missing(self, name: str, why: str = "it has to be given") -> UnsupportedModel:
        """The refusal of a configuration without ``name``."""
        return UnsupportedModel(
            f"a model of type {self.model_type!r} is not understood without {self.place}.{name}: {why}",
            {"model_type": self.model_type, "field": name},
        )

    def invalid(self, name: str, message: str) -> InvalidRequest:
        """The refusal of what ``name`` says."""
        return InvalidRequest.of(f"{self.place}.{name}", message)

    def _whole(self, name: str, value: object, *, least: int) -> int:
        if type(value) is not int or not least <= value <= MAX_SIZE:
            raise self.invalid(name, f"must be a whole number from {least} to {MAX_SIZE}")
        return value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) <= MAX_LAYERS
