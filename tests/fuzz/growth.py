"""How much more memory decoders take after many documents than after a few.

Run by `test_memory`, in a process of its own.

Each decoder reads the same damaged documents over and over; what it keeps of them would add up.
"""

import gc
import json
import random
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ormsgpack

from blockyard.client.http1 import ResponseReader
from blockyard.client.kv_events import KvBatch, KvSnapshot
from blockyard.client.protocol import ServerCalls
from blockyard.client.wire import Response
from blockyard.core.errors import BlockyardError
from blockyard.planning.models import layers_of_model
from blockyard.planning.parallel import Parallel
from blockyard.server.commands.replay.trace import TraceError, TraceFile
from blockyard.server.journal.command_codec import decode_batch
from blockyard.server.journal.errors import JournalError
from blockyard.server.journal.pool_state import decode_state
from blockyard.server.journal.snapshot_file import read_snapshot
from blockyard.server.media import JSON, MSGPACK, BodyReader
from blockyard.server.plan_schemas import PlanBody
from blockyard.server.pool_calls import POOL_CALLS
from blockyard.server.pool_config_body import PoolConfigBody
from fuzz import test_bodies as bodies
from fuzz import test_read_by_clients as replies
from fuzz import test_stored as stored
from fuzz import test_traces_and_models as files

WARM_UP = 100
MORE = 10 * WARM_UP
REFUSALS = (BlockyardError, JournalError, TraceError, ValueError)


def broken(valid: bytes, draw: random.Random) -> bytes:
    """``valid`` with up to three bytes that are others."""
    found = bytearray(valid)
    for _ in range(draw.randrange(4)):
        found[draw.randrange(len(found))] = draw.randrange(256)
    return bytes(found)


def reading(reader: BodyReader[Any], media_type: str) -> Callable[[bytes], Any]:
    headers = {b"content-type": media_type.encode()}
    return lambda raw: reader.read(raw, headers)


def decoders(folder: Path) -> dict[str, tuple[bytes, Callable[[bytes], Any]]]:
    """A valid document and what reads it, by name."""
    found: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {}
    for call in POOL_CALLS:
        reader, document = bodies.reader_of(call), bodies.BODIES[call.path]
        found[f"{call.path} in JSON"] = (
            json.dumps(document).encode(),
            reading(reader, JSON),
        )
        if call.is_hot:
            found[f"{call.path} in msgpack"] = (
                ormsgpack.packb(bodies.as_msgpack(document), option=ormsgpack.OPT_NON_STR_KEYS),
                reading(reader, MSGPACK),
            )
    snapshot, trace = folder / "1-1.snapshot", folder / "trace"

    def from_file(path: Path, raw: bytes, read: Callable[[], Any]) -> None:
        path.write_bytes(raw)
        read()

    llama = json.dumps(bodies.WITH_CONFIG["hf_config"]).encode()
    events = {**replies.HEAD, "topic": "t", "events": replies.EVENTS}
    return found | {
        "plan": (json.dumps(bodies.PLAN).encode(), lambda raw: PlanBody.model_validate_json(raw).request()),
        "pool": (
            json.dumps(bodies.OTHERS["/v1/pools/new"][1]).encode(),
            lambda raw: PoolConfigBody.model_validate_json(raw).configure(),
        ),
        "model": (llama, lambda raw: layers_of_model(json.loads(raw), parallel=Parallel())),
        "batch": (stored.BATCH, lambda raw: list(decode_batch(raw))),
        "state": (stored.STATE, lambda raw: decode_state("pool", raw)),
        "snapshot file": (
            stored.STATE,
            lambda raw: from_file(snapshot, raw, lambda: read_snapshot(snapshot)),
        ),
        "trace": (
            files.trace(files.LINES),
            lambda raw: from_file(
                trace,
                raw,
                lambda: list(TraceFile(path=trace, id_block_size=512, block_size=512).read(None)),
            ),
        ),
        "HTTP response": (replies.RESPONSES[2], lambda raw: ResponseReader().feed(raw)),
        "events": (
            replies.frames(replies.EVENTS)[2],
            lambda raw: KvBatch.from_frames([b"t", b"\0" * 8, raw]),
        ),
        "event snapshot": (
            json.dumps(events).encode(),
            lambda raw: KvSnapshot.from_document(json.loads(raw)),
        ),
        "reply": (b'{"pools": []}', lambda raw: ServerCalls().pools().read(Response(200, {}, raw))),
    }


def grown(valid: bytes, decode: Callable[[bytes], Any]) -> int:
    """Bytes that are held after `MORE` documents beyond those that were held after `WARM_UP`."""
    draw = random.Random(1)

    def work(times: int) -> int:
        for _ in range(times):
            with suppress(*REFUSALS):
                decode(broken(valid, draw))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    before = work(WARM_UP)
    return work(MORE) - before


def main() -> None:
    """Print the growth of each decoder, as JSON."""
    tracemalloc.start()
    with TemporaryDirectory() as folder:
        found = {name: grown(*case) for name, case in decoders(Path(folder)).items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
