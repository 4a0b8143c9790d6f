"""The worker process: it has the model and the memory, and is told token ids and block ids."""

import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection

import torch

from blockyard.core.arithmetic import div_ceil
from blockyard.worker import BlockMemory, BlockTables, Worker
from examples.two_processes.messages import Batch, Computed, Ready, Sampled
from examples.two_processes.model import Transformer
from examples.two_processes.paged_cache import PagedCache
from examples.two_processes.settings import Settings
from examples.two_processes.workload import MAX_MODEL_LEN

CONNECT_TIMEOUT_S = 30.0

POISON = 0xFF
"""As every byte of a number in floating point, it is not a number: NaN, of whatever size."""


def run_worker(url: str, pool: str, address: str, settings: Settings) -> None:
    """Serve the scheduler process at ``address`` until it hangs up.

    Whatever an earlier worker computed is lost: this one registers as a new incarnation, so that the server
    forgets it, and then poisons its own memory, so that whoever read it nevertheless would see it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the scheduler process does
    torch.set_num_threads(1)  # the models are too small for more
    model = Transformer(settings.model_config, settings.seed, settings.device)
    with Worker(url, pool, rank=0, device=settings.device) as worker:
        epoch = worker.epoch
        poison(worker.memory)
        tables = block_tables(worker.memory, settings)
        with _connect(address) as connection, suppress(EOFError, ConnectionError):  # hung up
            connection.send(Ready())
            while True:
                batch: Batch = connection.recv()
                worker.check()
                assert batch.epoch >= epoch, "its blocks were given before this memory was"
                connection.send(compute(model, worker.memory, tables, batch))


@torch.inference_mode()
def compute(model: Transformer, memory: BlockMemory, tables: Sequence[BlockTables], batch: Batch) -> Computed:
    """Compute a batch's tokens, and sample the likeliest next one where that is asked."""
    memory.copy(batch.copies)
    cache = PagedCache(memory, tables, batch)
    hidden = model.forward(cache.token_ids, cache.positions, cache)
    lengths = torch.tensor([len(chunk.token_ids) for chunk in batch.chunks])
    last_places = lengths.cumsum(0) - 1
    rows = model.logits(hidden[last_places.to(model.device)]).tolist()
    return Computed(
        sampled=tuple(
            Sampled(token_id=max(range(len(row)), key=row.__getitem__), logits=tuple(row))
            if chunk.is_sampled
            else None
            for chunk, row in zip(batch.chunks, rows, strict=True)
        )
    )


def block_tables(memory: BlockMemory, settings: Settings) -> list[BlockTables]:
    """Room for the block tables of a batch, a group each."""
    return [
        BlockTables(settings.max_num_sequences, div_ceil(MAX_MODEL_LEN, group.block_size), settings.device)
        for group in memory.map.groups
    ]


def poison(memory: BlockMemory) -> None:
    """Make every byte that nobody has written a part of NaN."""
    memory.backing.fill_(POISON)


def _connect(address: str) -> Connection:
    """The scheduler process may start a moment later."""
    give_up_s = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            return Client(address, family="AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.01)
