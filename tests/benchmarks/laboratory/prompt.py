"""What requests are made of: prompts of pieces of text, and the hashes of the blocks that these fill.

Blocks have equal hashes exactly when their content and all that stands before it is equal: a document is
found again behind the same system prompt, and not behind another one, nor where it begins elsewhere in a
block.
"""

from dataclasses import dataclass
from typing import NamedTuple

from blockyard.server.commands.replay.request import Request, block_hash


class Piece(NamedTuple):
    """A text, always told from its beginning to its end."""

    number: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """Pieces one after the other.

    Attributes:
        num_tokens: Of all of them.
        blocks: A number for each full block.
        rest: What stands in the open last block: pieces, and the token of each that comes first in it.
    """

    num_tokens: int = 0
    blocks: tuple[int, ...] = ()
    rest: tuple[tuple[int, int], ...] = ()


NOTHING = Prompt()


class Writer:
    """Makes the texts and prompts of one workload, with ``block_size`` tokens a block."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._num_pieces = 0
        self._numbers: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._hashes: list[bytes] = []

    def piece(self, num_tokens: int) -> Piece:
        """A new text, which none was before."""
        self._num_pieces += 1
        return Piece(self._num_pieces, num_tokens)

    def join(self, prompt: Prompt, *pieces: Piece) -> Prompt:
        """``prompt`` and ``pieces`` behind it."""
        blocks, num_tokens, rest = list(prompt.blocks), prompt.num_tokens, prompt.rest
        for piece in pieces:
            end, token = num_tokens + piece.num_tokens, 0
            while token < piece.num_tokens:
                rest = (*rest, (piece.number, token))
                step = self.block_size - num_tokens % self.block_size
                if num_tokens + step > end:
                    break
                token, num_tokens = token + step, num_tokens + step
                blocks.append(self._number(blocks[-1] if blocks else -1, rest))
                rest = ()
            num_tokens = end
        return Prompt(num_tokens, tuple(blocks), rest)

    def say(self, prompt: Prompt, num_tokens: int) -> Prompt:
        """``prompt`` and a new text behind it."""
        return self.join(prompt, self.piece(num_tokens))

    def request(self, prompt: Prompt) -> Request:
        """What is asked of a pool for ``prompt``."""
        return Request(prompt.num_tokens, [self._hashes[block] for block in prompt.blocks])

    def _number(self, before: int, content: tuple[tuple[int, int], ...]) -> int:
        number = self._numbers.setdefault((before, content), len(self._hashes))
        if number == len(self._hashes):
            self._hashes.append(block_hash(number))
        return number
