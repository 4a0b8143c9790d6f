"""Files that people hand in: a trace and a model's config.json are read, or refused by name."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import BlockyardError
from blockyard.planning.models import layers_of_model
from blockyard.planning.parallel import Parallel
from blockyard.server.commands.replay.trace import TraceError, TraceFile
from fuzz.mutations import damaged, faulty, fuzzed
from fuzz.telling_bodies import MODELS

LINES: list[dict[str, Any]] = [
    {"timestamp": 0, "input_length": 1300, "output_length": 500, "hash_ids": [0, 1, 2]},
    {"timestamp": 27, "input_length": 512, "output_length": 1, "hash_ids": [0]},
]


def trace(lines: list[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@fuzzed
@given(
    content=st.one_of(damaged(trace(LINES)), faulty(LINES).filter(lambda v: isinstance(v, list)).map(trace))
)
def test_a_trace_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "trace.jsonl"
    path.write_bytes(content)
    with suppress(TraceError):
        for request in TraceFile(path=path, id_block_size=512, block_size=512).read(None):
            assert request.num_tokens >= 1


def test_a_line_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(trace(LINES[:1]) + b"[" * 100_000)
    with pytest.raises(TraceError, match="line 2"):
        list(TraceFile(path=path, id_block_size=512, block_size=512).read(None))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_a_faulty_model_is_understood_or_refused(model: Path) -> None:
    config = json.loads(model.read_text())

    @fuzzed
    @given(faulty(config), st.sampled_from([1, 2, 3]))
    def each(found: Any, tensor: int) -> None:
        if not isinstance(found, dict):
            return
        with suppress(BlockyardError):
            layers_of_model(found, parallel=Parallel(tensor=tensor))

    each()
