"""Torch's type for each name of an element type."""

from typing import Final

import torch

from blockyard.planning.dtypes import DTYPE_BYTES

TORCH_DTYPES: Final[dict[str, torch.dtype]] = {name: getattr(torch, name) for name in DTYPE_BYTES}
"""By its name in plans."""

WORDS: Final = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Types that bytes are moved in, the widest first."""
