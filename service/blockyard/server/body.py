"""What all request bodies have in common.

Bodies are read strictly: unknown fields, numbers in quotes and fractions of tokens are errors.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_COUNT = 2**48
"""No count, size or time in a body is above this."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Name = Annotated[str, Field(min_length=1, max_length=256)]

TENANT_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""Of a tenant's name: it is the key of a hash, which takes 64 bytes at most."""


class Body(BaseModel):
    """A request body. Bytes are hex in JSON."""

    model_config = ConfigDict(extra="forbid", strict=True, val_json_bytes="hex", frozen=True)
