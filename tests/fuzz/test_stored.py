"""What the journal reads of a disk that has decayed: it is as it was written, or refused by name."""

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockyard.core import commands as ask
from blockyard.core.config import GroupConfig, PoolConfig
from blockyard.core.errors import BlockyardError
from blockyard.core.extra_keys import Extras, Lora, MultiModalFeature
from blockyard.core.ids import BlockHash, LeaseId, SequenceHandle, SequenceId
from blockyard.core.pool import Pool
from blockyard.server.journal.command_codec import decode_batch, encode_command, join_batch
from blockyard.server.journal.data_dir import DataDir
from blockyard.server.journal.errors import DamagedJournal, JournalError
from blockyard.server.journal.interface import Record, Snapshot
from blockyard.server.journal.pool_state import decode_state, encode_definition, encode_state
from blockyard.server.journal.recovery import RecoveryProgress, recover
from blockyard.server.journal.snapshot_file import read_snapshot, write_snapshot
from blockyard.server.journal.sqlite_journal import SqliteJournal
from fuzz.mutations import damaged, faulty, fuzzed, misnumbered
from rounds import NIGHTLY

OPTIONS = ormsgpack.OPT_NON_STR_KEYS
LEASE = LeaseId("lease")
HASHES = [BlockHash(b"h" * 32)]
EXTRAS = Extras(
    mm_features=(MultiModalFeature(0, 4, "image"),),
    lora=Lora("adapter", "/adapter"),
    cache_salt="salt",
    prompt_embeds=None,
)
COMMANDS: list[ask.Command] = [
    ask.CreateLease(lease_id=LEASE, holder="test", ttl_ms=60_000),
    ask.Allocate(
        lease_id=LEASE,
        admission=ask.Admission(
            sequence_id=SequenceId("s"), num_tokens=40, token_ids=list(range(40)), extras=EXTRAS
        ),
    ),
    ask.Idempotent(
        key="k",
        fingerprint=b"f" * 16,
        command=ask.Commit(lease_id=LEASE, sequence_id=SequenceId("s"), num_computed_tokens=32),
    ),
    ask.Step(
        lease_id=LEASE,
        step_id=1,
        extend=ask.StepExtend(sequences=[SequenceHandle(1)], num_tokens=[41]),
        admit=[ask.Admission(sequence_id=SequenceId("t"), num_tokens=16, block_hashes=HASHES)],
    ),
    ask.AllocateBlocks(lease_id=LEASE, num_blocks=2),
]
BATCH = join_batch([encode_command(command, 5) for command in COMMANDS])
CONFIG = PoolConfig.of(num_blocks=32, groups=[GroupConfig(kind="full_attention", block_size=16)])


def pack(document: Any) -> bytes:
    try:
        return ormsgpack.packb(document, option=OPTIONS)
    except ormsgpack.MsgpackEncodeError:
        return b""  # msgpack has no such values


def worked_pool() -> Pool:
    pool = Pool(CONFIG)
    for command in COMMANDS:
        pool.apply(command, 5)
    return pool


STATE = encode_state(worked_pool())


def test_a_batch_comes_back_as_it_was() -> None:
    again = join_batch([encode_command(command, now_ms) for now_ms, command in decode_batch(BATCH)])
    assert again == BATCH


@fuzzed
@given(
    st.one_of(
        st.binary(max_size=100),
        damaged(BATCH),
        faulty(ormsgpack.unpackb(BATCH, option=OPTIONS), binary=True).map(pack),
    )
)
def test_a_batch_is_read_or_refused(payload: bytes) -> None:
    """And what is read can be given to a pool, which goes on, as recovery does."""
    try:
        found = list(decode_batch(payload))
    except ValueError:
        return
    pool = Pool(CONFIG)
    for now_ms, command in found:
        try:
            pool.apply(command, now_ms)
        except (
            BlockyardError,
            TypeError,
            AttributeError,
            ValueError,
            KeyError,
            AssertionError,
            OverflowError,
        ):
            continue  # as in recovery: a fault that only a forged record can have


def test_a_state_comes_back_as_it_was() -> None:
    assert encode_state(decode_state("pool", STATE)) == STATE


@fuzzed
@given(
    st.one_of(
        st.binary(max_size=100),
        damaged(STATE),
        faulty(ormsgpack.unpackb(STATE, option=OPTIONS), binary=True).map(pack),
    )
)
def test_a_state_is_restored_or_refused(state: bytes) -> None:
    """Without its file's checksum, which would have told."""
    with suppress(JournalError):
        decode_state("pool", state)


@fuzzed
@given(misnumbered(ormsgpack.unpackb(STATE, option=OPTIONS)))
def test_the_audit_goes_through_a_state_with_wrong_numbers(state: Any) -> None:
    try:
        pool = decode_state("pool", pack(state))
    except JournalError:
        return
    audit = pool.audit()
    total = audit.num_free_blocks + audit.num_held_blocks + audit.num_null_blocks
    assert audit.problems or total == audit.num_blocks


@fuzzed
@given(st.data())
def test_a_damaged_snapshot_file_is_refused(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "1-5.snapshot"
        write_snapshot(path, Snapshot(number=5, state=STATE))
        whole = path.read_bytes()
        assert read_snapshot(path) == Snapshot(number=5, state=STATE)
        content = data.draw(st.one_of(damaged(whole), st.binary(max_size=100)))
        path.write_bytes(content)
        if content != whole:
            with pytest.raises(DamagedJournal):
                read_snapshot(path)


@contextmanager
def opened(path: Path) -> Iterator[SqliteJournal]:
    data_dir = DataDir(path)
    data_dir.make()
    with closing(SqliteJournal(data_dir)) as journal:
        yield journal


def write_journal(path: Path) -> None:
    """Two pools, one with a snapshot in the middle of its records."""
    with opened(path) as journal:
        for name in ("a", "b"):
            key = journal.create(name, encode_definition(CONFIG, None))
            pool = Pool(CONFIG)
            for number, command in enumerate(COMMANDS, 1):
                pool.apply(command, 5)
                payload = join_batch([encode_command(command, 5)])
                journal.append([Record(key=key, number=number, payload=payload)])
                if name == "a" and number == 2:
                    journal.save_snapshot(key, Snapshot(number=2, state=encode_state(pool)))


@settings(fuzzed, max_examples=5_000 if NIGHTLY else 60)
@given(st.data())
def test_a_journal_that_decayed_is_as_it_was_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    written = tmp_path_factory.getbasetemp() / "written"
    if not written.exists():
        write_journal(written)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        shutil.copytree(written, path)
        files = sorted(found for found in path.rglob("*") if found.is_file())
        for file in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2)):
            file.write_bytes(data.draw(damaged(file.read_bytes())))
        try:
            with opened(path) as journal:
                recovered = recover(journal, RecoveryProgress())
        except JournalError:
            return
        for each in recovered:
            assert encode_state(each.pool) == STATE
        assert [each.name for each in recovered] == ["a", "b"]
