"""Definitions and snapshots of pools as a journal keeps them."""

import json
from dataclasses import replace
from typing import Any

import ormsgpack
import pytest

from blockyard.core.config import Eviction, GroupConfig, PoolConfig
from blockyard.core.pool import Pool
from blockyard.server.journal.errors import DamagedJournal, NewerJournal
from blockyard.server.journal.pool_state import (
    decode_definition,
    decode_state,
    encode_definition,
    encode_state,
)
from blockyard.server.pool_config_body import PoolConfigBody

LAYER = {"kind": "full_attention", "block_size": 4, "num_kv_heads": 2, "head_size": 8, "dtype": "float16"}
BODY = json.dumps(
    {
        "plan": {
            "workers": [{"available_memory_bytes": 2**16, "layers": {"0": LAYER}}],
            "max_model_len": 64,
        }
    }
).encode()


def changed(definition: bytes, **config: Any) -> bytes:
    document = json.loads(definition)
    document["config"] |= config
    return json.dumps(document).encode()


def make_config(**options: Any) -> PoolConfig:
    return PoolConfig.of(num_blocks=8, groups=[GroupConfig(kind="full_attention", block_size=4)], **options)


def test_a_configuration_comes_back_with_all_its_options() -> None:
    config = make_config(hash_seed="secret", watermark_blocks=2, worker_timeout_ms=7, needs_all_workers=False)
    assert decode_definition("pool", encode_definition(config, None)) == (config, None)


def test_a_plan_is_made_once_more() -> None:
    config, plan = PoolConfigBody.model_validate_json(BODY).configure()
    assert decode_definition("pool", encode_definition(config, BODY)) == (config, plan)


def test_a_plan_that_comes_out_otherwise_is_refused() -> None:
    config, _ = PoolConfigBody.model_validate_json(BODY).configure()
    definition = changed(encode_definition(config, BODY), num_blocks=config.num_blocks - 1)
    with pytest.raises(NewerJournal, match="plans it otherwise"):
        decode_definition("pool", definition)


def test_a_pool_keeps_the_eviction_that_it_got_when_its_request_told_none() -> None:
    config, plan = PoolConfigBody.model_validate_json(BODY).configure()
    assert config.eviction is Eviction.ADAPTIVE
    definition = changed(encode_definition(config, BODY), eviction="lru")
    assert decode_definition("pool", definition) == (replace(config, eviction=Eviction.LRU), plan)


def test_a_configuration_of_another_version_is_refused() -> None:
    definition = changed(encode_definition(make_config(), None), colour="blue")
    with pytest.raises(NewerJournal, match="cannot read its configuration"):
        decode_definition("pool", definition)


def test_a_state_comes_back_as_it_was() -> None:
    pool = Pool(make_config())
    assert decode_state("pool", encode_state(pool)).snapshot() == pool.snapshot()


def test_a_state_of_another_version_is_refused() -> None:
    state = ormsgpack.packb(
        {**Pool(make_config()).snapshot(), "format": 1}, option=ormsgpack.OPT_NON_STR_KEYS
    )
    with pytest.raises(NewerJournal, match="taken by another version"):
        decode_state("pool", state)


def test_a_state_that_is_none_is_found() -> None:
    with pytest.raises(DamagedJournal):
        decode_state("pool", b"\xc1")
