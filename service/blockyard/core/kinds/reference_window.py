"""Reference sliding window: the prompt stays visible for ever, of the generated tokens a window.

positions      0 ........ P ........ c-w ........ c      P = prompt tokens, w = rswa_window
token c reads  [----------]          [------------]      blocks wholly between the two are dropped
"""

from typing import ClassVar

from blockyard.core.arithmetic import div_ceil
from blockyard.core.config import GroupConfig
from blockyard.core.kinds.base import Progress, require_only
from blockyard.core.kinds.full_attention import FullAttention


class ReferenceWindow(FullAttention):
    """Keeps the prompt's blocks and those that a window of ``rswa_window`` tokens (at least 1) reaches."""

    __slots__ = ("rswa_window",)

    can_split_blocks: ClassVar[bool] = False
    drops_blocks: ClassVar[bool] = True

    def __init__(self, block_size: int, is_draft: bool, rswa_window: int) -> None:
        super().__init__(block_size, is_draft, rswa_window)
        self.rswa_window = rswa_window

    @classmethod
    def from_config(cls, config: GroupConfig) -> "ReferenceWindow":
        """See `Kind.from_config`."""
        require_only(config, "rswa_window")
        assert config.rswa_window is not None
        return cls(config.block_size, config.is_draft, config.rswa_window)

    def droppable(self, progress: Progress) -> range:
        """The blocks between the prompt's last one and the window."""
        num_prompt = progress.num_prompt_tokens
        window_begins = max(num_prompt, progress.num_computed_tokens - self.rswa_window)
        return range(div_ceil(num_prompt, self.block_size), window_begins // self.block_size)

    def first_seen_token(self, num_computed_tokens: int) -> int:
        """The first one of the window that the last computed token had; the prompt is kept for ever."""
        return max(num_computed_tokens - self.rswa_window, 0)
