"""Zeroed host memory, pinned where a CUDA device is to copy from and to it."""

import weakref

import torch
from torch import Tensor


def host_bytes(num_bytes: int, *, pinned: bool) -> Tensor:
    """uint8 ``[num_bytes]``, zeroed, and no byte more.

    Torch's own pinned memory comes in powers of two, nearly twice what a plan may say; so it is pinned here.

    Raises:
        torch.AcceleratorError: It cannot be pinned.
    """
    memory = torch.zeros(num_bytes, dtype=torch.uint8)
    if pinned and num_bytes:
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call] # torch's own fault
        address = memory.data_ptr()
        torch.cuda.check_error(int(runtime.cudaHostRegister(address, num_bytes, 0)))
        weakref.finalize(memory, runtime.cudaHostUnregister, address)
    return memory
