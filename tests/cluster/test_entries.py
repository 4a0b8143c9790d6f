"""What stands in a pool's stream: as it was written, however many messages it took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.server.cluster.entries import Entry, EntryKind, Holder, Session, in_messages

NUMBERS = st.integers(0, 2**64 - 1)


@given(st.sampled_from(EntryKind), NUMBERS, NUMBERS, st.binary(max_size=100))
def test_an_entry_is_read_as_it_was_written(
    kind: EntryKind, ownership: int, number: int, payload: bytes
) -> None:
    entry = Entry(kind=kind, ownership=ownership, number=number, payload=payload)
    assert Entry.decode(entry.encode()) == entry


@given(st.binary(max_size=1_000), st.integers(30, 200))
def test_a_batch_goes_in_as_many_messages_as_it_takes(payload: bytes, max_bytes: int) -> None:
    batch = Entry(kind=EntryKind.BATCH, ownership=3, number=7, payload=payload)
    messages = in_messages(batch, max_bytes)
    assert all(len(message.encode()) <= max_bytes for message in messages)
    assert b"".join(message.payload for message in messages) == payload
    assert [message.kind for message in messages] == [EntryKind.PART] * (len(messages) - 1) + [
        EntryKind.BATCH
    ]
    assert {(message.ownership, message.number) for message in messages} == {(3, 7)}


def test_who_takes_over_and_who_is_to_is_told() -> None:
    holder = Holder("node.a", Session("1f"))
    assert Entry.decode(Entry.take_over(holder, 2, 5).encode()).holder == holder
    assert Entry.decode(Entry.hand_over("node.b", 2, 5).encode()).heir == "node.b"


@pytest.mark.parametrize("message", [b"", b"\x01\x02", b"\x02\x02" + bytes(16), b"\x01\x63" + bytes(16)])
def test_what_is_no_entry_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"entry|EntryKind"):
        Entry.decode(message)
