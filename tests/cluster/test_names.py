"""Keys of buckets: each of one name."""

import pytest

from blockyard.server.cluster.names import from_bucket, in_bucket

NAMES = ["pool", "a.b", "a=2Eb", "a=3D2Eb", "a=b", ".", "="]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_tells_the_name(name: str) -> None:
    assert from_bucket(in_bucket(name)) == name


def test_no_two_names_have_one_key() -> None:
    assert len({in_bucket(name) for name in NAMES}) == len(NAMES)
