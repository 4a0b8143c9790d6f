"""Bytes of blocks as few regions, regions as few batches, bytes as wide words."""

import pytest
import torch

from blockyard.worker.byte_views import word_view
from blockyard.worker.regions import Batch, Region, batched, merged


def test_regions_that_meet_or_overlay_each_other_are_one() -> None:
    regions = [Region(64, 20, 24), Region(64, 0, 10), Region(64, 2, 4), Region(64, 8, 12), Region(64, 12, 16)]
    assert merged(regions) == [Region(64, 0, 16), Region(64, 20, 24)]


def test_regions_of_different_strides_are_kept_apart() -> None:
    regions = [Region(32, 0, 8), Region(64, 8, 16)]
    assert merged(regions) == regions


def test_regions_alike_at_equal_distances_are_one_batch() -> None:
    small = [Region(64, begin, begin + 4) for begin in (0, 16, 32)]
    large = [Region(64, begin, begin + 8) for begin in (8, 24, 40)]
    regions = sorted([*small, *large, Region(64, 56, 60)])
    assert batched(regions) == [Batch(small[0], 3, 16), Batch(Region(64, 56, 60)), Batch(large[0], 3, 16)]


@pytest.mark.parametrize(
    ("offset_bytes", "num_bytes", "stride", "dtype"),
    [
        (0, 16, 32, torch.int64),
        (4, 16, 32, torch.int32),
        (0, 12, 32, torch.int32),
        (0, 16, 18, torch.int16),
        (1, 16, 32, torch.uint8),
    ],
)
def test_words_are_the_widest_that_divide_all_distances(
    offset_bytes: int, num_bytes: int, stride: int, dtype: torch.dtype
) -> None:
    backing = torch.arange(100, dtype=torch.uint8)
    words = word_view(backing, offset_bytes=offset_bytes, shape=(2, num_bytes), strides_bytes=(stride, 1))
    assert words.dtype is dtype
    begins = (offset_bytes, offset_bytes + stride)
    expected = [[*range(begin, begin + num_bytes)] for begin in begins]
    assert words.contiguous().view(torch.uint8).tolist() == expected
