"""Images of blocks as safetensors files.

    tensors    layer/<name>    uint8 [blocks, heads, states, bytes of a state]
    metadata   format          blockyard.block_image
               version         1
               dtypes          {"<name>": "<dtype>", ...}, JSON
               checksums       ["<16 hexadecimal digits>", ...], one a block, JSON

A file is written under another name and renamed when the disk has it, so that nobody meets half of one.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from blockyard.core.errors import InvalidRequest

FORMAT: Final = "blockyard.block_image"
VERSION: Final = "1"
PREFIX: Final = "layer/"


@dataclass(frozen=True, slots=True)
class ImageFile:
    """What a file holds; see `blockyard.worker.block_image.BlockImage`."""

    layers: Mapping[str, Tensor]
    dtypes: Mapping[str, str]
    checksums: tuple[int, ...]


def write_image(path: Path, image: ImageFile) -> None:
    """Write ``image``, all of it or nothing.

    Raises:
        OSError: The file cannot be written; ``path`` is as it was.
    """
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "dtypes": json.dumps(dict(image.dtypes)),
        "checksums": json.dumps([f"{checksum:016x}" for checksum in image.checksums]),
    }
    # Not from the file's own name, which may be as long as can be.
    handle, name = mkstemp(prefix=".block_image.", dir=path.parent)
    temporary = Path(name)
    os.close(handle)
    try:
        tensors = {PREFIX + layer: blocks for layer, blocks in image.layers.items()}
        _save(tensors, temporary, metadata)
        # Opened again: safetensors puts a file of its own in the place of the one that it is given.
        _sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    # The new name is to outlive a loss of power as well.
    _sync(path.parent)


def read_image(path: Path, *, pin_memory: bool) -> ImageFile:
    """Read a file into memory of its own, pinned if asked; contents are not compared with checksums.

    Raises:
        OSError: It cannot be read.
        InvalidRequest: It is no image, or one of another version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            dtypes, checksums = _parse(path, file.metadata() or {})
            if set(file.keys()) != {PREFIX + name for name in dtypes}:
                raise _refusal(path, "its tensors are not the layers that it lists")
            # Tensors are the file itself, mapped: whoever changes it later must not change the image.
            layers = {name: _copied(file.get_tensor(PREFIX + name), pin_memory=pin_memory) for name in dtypes}
    except SafetensorError as error:
        raise _refusal(path, f"it is damaged, or no safetensors file ({error})") from error
    return ImageFile(layers, dtypes, checksums)


def _parse(path: Path, metadata: Mapping[str, str]) -> tuple[dict[str, str], tuple[int, ...]]:
    if metadata.get("format") != FORMAT:
        raise _refusal(path, "it is no image of blocks")
    if metadata.get("version") != VERSION:
        raise _refusal(path, f"it is of version {metadata.get('version')}; this reads version {VERSION}")
    dtypes = _json(path, metadata, "dtypes")
    checksums = _json(path, metadata, "checksums")
    if not isinstance(dtypes, dict) or not all(isinstance(dtype, str) for dtype in dtypes.values()):
        raise _refusal(path, "its dtypes are no object of strings")
    if not isinstance(checksums, list) or not all(_is_checksum(each) for each in checksums):
        raise _refusal(path, "its checksums are no list of 16 hexadecimal digits each")
    return dtypes, tuple(int(checksum, 16) for checksum in checksums)


def _json(path: Path, metadata: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(metadata.get(key, ""))
    except (ValueError, RecursionError):
        raise _refusal(path, f"its {key} are no JSON") from None


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _copied(tensor: Tensor, *, pin_memory: bool) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin_memory).copy_(tensor)


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        raise OSError(f"cannot write {path}: {error}") from error


def _sync(path: Path) -> None:
    """Wait until the disk has a file's bytes, or a folder's names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refusal(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest.of("path", f"{path} is not loaded: {why}")
