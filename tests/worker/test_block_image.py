"""Blocks that leave a memory and come to another: as they were, or not at all."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from blockyard.core.errors import InvalidRequest
from blockyard.planning.layouts import Layout
from blockyard.worker import BlockImage, BlockMemory
from worker.small_plans import (
    fill_randomly,
    hybrid_plan,
    memory_of,
    shared_slot_plan,
    slot_form_plan,
    sparse_plan,
    uniform_plan,
)


def filled(memory: BlockMemory, seed: int = 0) -> BlockMemory:
    fill_randomly(memory, seed)
    return memory


def uniform_image() -> BlockImage:
    return filled(memory_of(uniform_plan())).export([3, 1, 5], group=0)


def whole(memory: BlockMemory) -> bytes:
    return memory.backing.numpy().tobytes() + memory.host_backing.numpy().tobytes()


def check_refused(image: BlockImage, message: str, block_ids: list[int] | None = None) -> None:
    """By a memory that it would else fit, which is left as it was."""
    memory = filled(memory_of(uniform_plan(Layout.BHLNC)), seed=1)
    before = whole(memory)
    with pytest.raises(InvalidRequest, match=message):
        memory.load(image, [2, 6, 4] if block_ids is None else block_ids)
    assert whole(memory) == before


@pytest.mark.parametrize("target", Layout)
@pytest.mark.parametrize("source", Layout)
def test_blocks_move_between_layouts_by_way_of_a_file(source: Layout, target: Layout, tmp_path: Path) -> None:
    here, there = filled(memory_of(uniform_plan(source))), filled(memory_of(uniform_plan(target)), seed=1)
    path = tmp_path / "blocks.safetensors"
    here.export([3, 1, 2, 3], group=0).save(path)
    expected = {name: cache.bytes.clone() for name, cache in there.layers.items()}
    there.load(BlockImage.load(path), [7, 2, 4, 5])
    for name, cache in here.layers.items():
        expected[name][[7, 2, 4, 5]] = cache.bytes[[3, 1, 2, 3]]
        assert torch.equal(there.layers[name].bytes, expected[name])


@pytest.mark.parametrize("plan", [hybrid_plan(), shared_slot_plan(), slot_form_plan(), sparse_plan()])
def test_blocks_of_every_group_move(plan: Any) -> None:
    here = filled(memory_of(plan))
    for group in range(len(here.map.groups)):
        there = filled(memory_of(plan), seed=1)
        expected = {
            name: cache.bytes[[1, 4]].clone()
            for name, cache in here.layers.items()
            if cache.view.group == group
        }
        there.load(here.export([1, 4], group), [2, 3])
        for name, blocks in expected.items():
            assert torch.equal(there.layers[name].bytes[[2, 3]], blocks)


def test_an_image_is_a_copy_in_the_order_of_the_ids() -> None:
    memory = filled(memory_of(uniform_plan(Layout.BHLNC)))
    before = memory.layers["layer.2"].bytes.clone()
    image = memory.export([5, 0, 5], group=0)
    memory.backing.zero_()
    blocks = image.layers["layer.2"]
    assert blocks.is_contiguous()
    assert torch.equal(blocks, before[[5, 0, 5]])
    assert image.checksums[0] == image.checksums[2] != image.checksums[1]


def test_no_blocks_can_be_exported_and_loaded(tmp_path: Path) -> None:
    memory = memory_of(uniform_plan())
    memory.export([], group=0).save(tmp_path / "none")
    memory.load(BlockImage.load(tmp_path / "none"), [])
    assert not memory.backing.any()


def test_ids_come_in_any_iterable() -> None:
    here, there = filled(memory_of(uniform_plan())), memory_of(uniform_plan())
    there.load(here.export(iter([3, 1]), group=0), map(np.int64, [4, 5]))
    for name, cache in here.layers.items():
        assert torch.equal(there.layers[name].bytes[[4, 5]], cache.bytes[[3, 1]])


def unaligned(blocks: Tensor) -> Tensor:
    """The same, one byte behind where words begin."""
    return torch.empty(blocks.numel() + 1, dtype=torch.uint8)[1:].view(blocks.shape).copy_(blocks)


def of_odd_stride(blocks: Tensor) -> Tensor:
    """The same single block, of which another would begin between two words."""
    _, *strides = blocks.stride()
    size = blocks.numel() + 1
    return torch.empty_strided(blocks.shape, (size, *strides), dtype=torch.uint8).copy_(blocks)


@pytest.mark.parametrize("moved", [unaligned, of_odd_stride])
def test_dense_blocks_are_loaded_wherever_they_begin(moved: Callable[[Tensor], Tensor]) -> None:
    here, there = filled(memory_of(uniform_plan())), memory_of(uniform_plan())
    image = here.export([3], group=0)
    there.load(replace(image, layers={**image.layers, "layer.1": moved(image.layers["layer.1"])}), [6])
    for name, blocks in image.layers.items():
        assert torch.equal(there.layers[name].bytes[[6]], blocks)


def test_an_image_shows_its_size_and_no_bytes() -> None:
    assert repr(uniform_image()) == "<BlockImage of 3 blocks, 3 layers>"


# What is refused by a memory


@pytest.mark.parametrize(
    ("block_ids", "message"),
    [
        ([1, 2], "are 2, and the image has 3"),
        ([1, 2, 0], "null block"),
        ([1, 2, 1], "block 1 is written twice"),
        ([1, 2, 8], "block 8 is out of range"),
        ([1, 2, 3.0], "3.0 is no block id"),
        ([2, 3, True], "True is no block id"),
    ],
)
def test_ids_that_cannot_be_written_are_refused(block_ids: list[int], message: str) -> None:
    check_refused(uniform_image(), message, block_ids)


@pytest.mark.parametrize("byte", [0, 191, 192, 575])
def test_a_changed_byte_of_an_image_is_refused(byte: int) -> None:
    image = uniform_image()
    image.layers["layer.1"].view(-1)[byte] ^= 1
    check_refused(image, f"block {byte // 192} of 3 is not what it was")


def changed(change: Callable[[BlockImage], dict[str, Any]]) -> BlockImage:
    image = uniform_image()
    return replace(image, **change(image))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda image: {"layers": {**image.layers, "other": image.layers["layer.0"]}}, "just its layers"),
        (lambda image: {"layers": {"layer.0": image.layers["layer.0"]}}, "has other layers"),
        (lambda image: {"dtypes": {**image.dtypes, "layer.0": "float16"}}, "'layer.0' is"),
        (lambda image: {"dtypes": {**image.dtypes, "layer.9": "float16"}}, "one dtype a layer"),
        (lambda image: {"layers": {n: b[:, :1] for n, b in image.layers.items()}}, "'layer.0' is"),
        (lambda image: {"layers": {n: b[:2] for n, b in image.layers.items()}}, "is not 3 blocks"),
        (lambda image: {"layers": {n: b.view(torch.int8) for n, b in image.layers.items()}}, "dense uint8"),
        (lambda _: {"layers": {}, "dtypes": {}}, "just its layers"),
        (
            lambda image: {
                "layers": {
                    **image.layers,
                    "layer.0": image.layers["layer.1"],
                    "layer.1": image.layers["layer.0"],
                }
            },
            "block 0 of 3 is not what it was",
        ),
    ],
)
def test_an_image_that_does_not_fit_is_refused(
    change: Callable[[BlockImage], dict[str, Any]], message: str
) -> None:
    check_refused(changed(change), message)


def test_a_checksum_is_of_names_and_types_too() -> None:
    image = uniform_image()
    others = {f"layer.{number + 1}": blocks for number, blocks in enumerate(image.layers.values())}
    types = dict.fromkeys(image.layers, "float16")
    for wrong in (
        replace(image, layers=others, dtypes=dict.fromkeys(others, "bfloat16")),
        replace(image, dtypes=types),
    ):
        with pytest.raises(InvalidRequest, match="is not what it was"):
            wrong.verify()


def test_blocks_of_other_layers_of_the_same_names_are_refused() -> None:
    check_refused(filled(memory_of(uniform_plan(head_size=8))).export([1], 0), "layer 'layer.0' is", [1])


@pytest.mark.parametrize(
    ("block_ids", "group", "message"),
    [([8], 0, "block 8"), ([1.0], 0, "1.0 is no block id"), ([1], 2, "2 is none of")],
)
def test_what_is_not_there_is_not_exported(block_ids: list[int], group: int, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        memory_of(uniform_plan()).export(block_ids, group)


# Files


def test_a_file_says_what_is_in_it(tmp_path: Path) -> None:
    image = uniform_image()
    image.save(tmp_path / "blocks")
    with safe_open(tmp_path / "blocks", framework="np") as file:
        metadata = file.metadata()
        assert set(file.keys()) == {"layer/layer.0", "layer/layer.1", "layer/layer.2"}
        np.testing.assert_array_equal(file.get_tensor("layer/layer.1"), image.layers["layer.1"].numpy())
    assert (metadata["format"], metadata["version"]) == ("blockyard.block_image", "1")
    assert json.loads(metadata["dtypes"]) == dict.fromkeys(image.layers, "bfloat16")
    assert json.loads(metadata["checksums"]) == [f"{checksum:016x}" for checksum in image.checksums]


def test_every_flipped_byte_of_a_file_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    image = uniform_image()
    path, flipped = tmp_path / "blocks", tmp_path / "flipped"
    image.save(path)
    content = path.read_bytes()
    num_refused = 0
    for place in range(len(content)):
        flipped.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        memory = memory_of(uniform_plan(Layout.BLHNC))
        try:
            memory.load(BlockImage.load(flipped), [1, 2, 3])
        except InvalidRequest:
            assert not memory.backing.any()
            num_refused += 1
        else:
            # Such as a space of the header that became a sign that JSON does not mind.
            assert torch.equal(memory.layers["layer.0"].bytes[1:4], image.layers["layer.0"])
    assert num_refused >= 3 * 3 * 192


@pytest.mark.parametrize("length", [0, 4, 100, 1_000])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "blocks"
    uniform_image().save(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidRequest, match="damaged, or no safetensors file"):
        BlockImage.load(path)


def test_a_file_that_is_not_there_is_missed_as_any(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BlockImage.load(tmp_path / "blocks")


GOOD = {
    "format": "blockyard.block_image",
    "version": "1",
    "dtypes": '{"a": "uint8"}',
    "checksums": '["0000000000000000"]',
}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "no image of blocks"),
        ({"format": "pt"}, "no image of blocks"),
        ({**GOOD, "version": "2"}, "is of version 2; this reads version 1"),
        ({**GOOD, "dtypes": "["}, "dtypes are no JSON"),
        ({**GOOD, "dtypes": "[" * 100_000}, "dtypes are no JSON"),
        ({**GOOD, "dtypes": "[]"}, "no object of strings"),
        ({**GOOD, "dtypes": '{"a": 1}'}, "no object of strings"),
        ({**GOOD, "dtypes": '{"b": "uint8"}'}, "not the layers that it lists"),
        ({**GOOD, "dtypes": r'{"\ud800": "uint8"}'}, "not the layers that it lists"),
        ({**GOOD, "dtypes": r'{"a": "\ud800"}'}, "which is no dtype"),
        ({**GOOD, "checksums": "{}"}, "no list of 16"),
        ({**GOOD, "checksums": "[1]"}, "no list of 16"),
        ({**GOOD, "checksums": '["zz"]'}, "no list of 16"),
        (GOOD, "block 0 of 1 is not what it was"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, metadata: dict[str, str] | None, message: str) -> None:
    path = tmp_path / "foreign"
    save_file({"layer/a": torch.zeros(1, 1, 1, 8, dtype=torch.uint8)}, path, metadata)
    with pytest.raises(InvalidRequest, match=message):
        BlockImage.load(path)


def test_a_save_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    image = uniform_image()
    image.save(path)
    before = path.read_bytes()
    # Torch's own complaint about two names for the same bytes, in the middle of a save.
    alike = replace(image, layers=dict.fromkeys(image.layers, image.layers["layer.0"]))
    with pytest.raises(RuntimeError, match="share memory"):
        alike.save(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["blocks"]


@pytest.mark.parametrize("length", [246, 255])
def test_a_file_may_have_the_longest_name_that_there_is(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * length)
    uniform_image().save(path)
    BlockImage.load(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    uniform_image().save(tmp_path / "blocks")
    assert (tmp_path / "blocks").stat().st_mode & 0o777 == 0o600


def test_an_image_that_was_loaded_does_not_depend_on_its_file(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    uniform_image().save(path)
    image = BlockImage.load(path)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    image.verify()
