"""A short trace whose hits are counted by hand."""

import json
from pathlib import Path

TRACE = [
    # 5 blocks of 512 tokens, one of them the null block: 4 to use.      cached with 4 | with 100
    {"input_length": 1300, "hash_ids": [1, 2, 3]},  # 3 blocks, 2 full             0         0
    {"input_length": 1300, "hash_ids": [1, 2, 4]},  # begins alike              1024      1024
    {"input_length": 1024, "hash_ids": [1, 2]},  # the last token is computed    512       512
    {"input_length": 2500, "hash_ids": [5, 6, 7, 8, 9]},  # 5 blocks        refused         0
    {"input_length": 1600, "hash_ids": [10, 11, 12, 13]},  # 4 blocks              0         0
    {"input_length": 600, "hash_ids": [1, 2]},  # was evicted by the one before    0       512
]
CACHED_WITH_4 = 1536
CACHED_WITH_100 = 2048


def write_trace(folder: Path, *lines: object) -> Path:
    """A trace file of ``lines``: strings as they are, everything else as JSON."""
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path
