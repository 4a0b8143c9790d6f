from pathlib import Path

import pytest

from blockyard.server.commands.replay.trace import TraceError, TraceFile
from cli.short_trace import TRACE, write_trace


def read(path: Path, block_size: int = 512, limit: int | None = None) -> list[tuple[int, list[int]]]:
    """Of each request its tokens, and the ids of its full blocks."""
    requests = TraceFile(path=path, id_block_size=512, block_size=block_size).read(limit)
    return [
        (request.num_tokens, [int.from_bytes(one) for one in request.block_hashes]) for request in requests
    ]


def test_a_request_has_a_hash_for_each_full_block(tmp_path: Path) -> None:
    assert read(write_trace(tmp_path, *TRACE))[:3] == [(1300, [1, 2]), (1300, [1, 2]), (1024, [1, 2])]


def test_blank_lines_are_passed_over(tmp_path: Path) -> None:
    assert read(write_trace(tmp_path, "", TRACE[0], " ", TRACE[5])) == [(1300, [1, 2]), (600, [1])]


def test_limit_counts_requests(tmp_path: Path) -> None:
    assert len(read(write_trace(tmp_path, "", *TRACE), limit=2)) == 2


def test_larger_blocks_look_at_every_other_hash_id(tmp_path: Path) -> None:
    path = write_trace(tmp_path, {"input_length": 2500, "hash_ids": [1, 2, 3, 4, 5]})
    assert read(path, block_size=1024) == [(2500, [2, 4])]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl"):
        read(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "Expecting property name"),
        ("7", "not a JSON object"),
        ({"hash_ids": []}, "input_length is missing"),
        ({"input_length": 5}, "hash_ids is missing"),
        ({"input_length": -5, "hash_ids": []}, "input_length is -5"),
        ({"input_length": 0, "hash_ids": []}, "input_length is 0"),
        ({"input_length": 5.0, "hash_ids": []}, "input_length is 5.0"),
        ({"input_length": 5, "hash_ids": 7}, "hash_ids is not a list"),
        ({"input_length": 1024, "hash_ids": [1]}, "1 hash_ids for an input_length of 1024"),
        ({"input_length": 600, "hash_ids": [1, 2, 3]}, "3 hash_ids for an input_length of 600"),
        ({"input_length": 512, "hash_ids": ["a"]}, "'a' is no hash id"),
        ({"input_length": 512, "hash_ids": [-1]}, "-1 is no hash id"),
        ({"input_length": 512, "hash_ids": [[]]}, "[] is no hash id"),
        ({"input_length": 1024, "hash_ids": [1, True]}, "True is no hash id"),
    ],
)
def test_a_bad_line_is_named_with_its_fault(line: object, complaint: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path, TRACE[0], line)
    with pytest.raises(TraceError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}, line 2: ")
    assert complaint in str(raised.value)
