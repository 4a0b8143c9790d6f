"""The most block hits that foresight can give: an upper bound for every policy.

Blocks are asked for one after the other, in the order of the requests and of the blocks in them. Each is a
hit if it is kept at that time, be those before it kept or not. A block that was asked for is kept or not, as
is best, until it is asked for again, and at most ``capacity`` blocks are kept at a time: those of the request
that is being served need not be. So a pool, which holds these, and finds no block behind a missing one, does
not quite reach it.

On the recorded trace, every hash id taken for a block, those of partial blocks too, it gives .1907 of all
blocks at 1,000, .2945 at 3,000 and .3664 at 10,000.

Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966; what need not
be kept as it is not used before everything else is passed over, as caches may and memory may not.
"""

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappush, heappushpop


def optimal_hits(prompts: Iterable[Sequence[Hashable]], capacity: int) -> int:
    """How many of the blocks of ``prompts`` are hits at best, with ``capacity`` blocks kept, at least 1.

    What is kept is written as the place at which it is asked for again. The one that is farthest away gives
    way; so of those in the heap that lie behind us, none ever comes to its head:

        blocks       a  b  a  c  b          capacity 1
        kept after   2  2  -  -  -          a, and not b, which comes later; 1 hit

    In time O(n log n).
    """
    following = next_uses([block for prompt in prompts for block in prompt])
    is_kept = bytearray(len(following) + 1)
    farthest: list[int] = []  # the places negated: the head of a heap is its least
    num_kept = num_hits = 0
    for place, following_place in enumerate(following):
        if is_kept[place]:
            num_hits += 1
            num_kept -= 1
        if following_place == len(following):
            continue
        is_kept[following_place] = True
        if num_kept < capacity:
            num_kept += 1
            heappush(farthest, -following_place)
        else:
            is_kept[-heappushpop(farthest, -following_place)] = False
    return num_hits


def next_uses(blocks: Sequence[Hashable]) -> list[int]:
    """For each place the next at which the same block stands; the number of all of them where none does."""
    following = [len(blocks)] * len(blocks)
    last: dict[Hashable, int] = {}
    for place, block in enumerate(blocks):
        if block in last:
            following[last[block]] = place
        last[block] = place
    return following
