"""Pins and bulk prefixes as both clients see them."""

import asyncio

import pytest

from blockyard.client import AsyncClient, Client, InvalidRequest, PinNotFound, Pool, Prefix, PrefixNotCached

HASHES = [bytes([number]) * 32 for number in range(1, 5)]


def make_pool(client: Client, name: str) -> Pool:
    """Of the prompt of four blocks, three are cached."""
    pool = client.create_pool(name, num_blocks=100, block_size=4)
    with pool.lease("me") as lease:
        lease.allocate("s", 13, block_hashes=HASHES[:3])
        lease.commit("s", 13)
    return pool


def test_a_prefix_is_pinned_renewed_and_given_up(server_url: str, pool_name: str) -> None:
    with Client(server_url) as client:
        pool = make_pool(client, pool_name)
        hard = pool.pin(60_000, block_hashes=HASHES[:3], hard=True)
        assert (hard.num_tokens, hard.num_cached_tokens, hard.num_blocks) == (12, 12, 3)
        soft = pool.pin(60_000, block_hashes=HASHES)
        assert [(pin.pin_id, pin.num_held_blocks) for pin in pool.pins()] == [
            (hard.pin_id, 3),
            (soft.pin_id, 0),
        ]
        assert pool.renew_pin(soft.pin_id).ttl_ms == 60_000
        assert pool.renew_pin(soft.pin_id, ttl_ms=90_000).ttl_ms == 90_000
        with pytest.raises(PrefixNotCached):
            pool.pin(60_000, block_hashes=HASHES, hard=True)
        for pin in (hard, soft):
            pool.unpin(pin.pin_id)
        with pytest.raises(PinNotFound):
            pool.unpin(soft.pin_id)


def test_many_prefixes_are_looked_for_in_one_call(server_url: str, pool_name: str) -> None:
    with Client(server_url) as client:
        pool = make_pool(client, pool_name)
        asked = [
            Prefix(block_hashes=HASHES),
            Prefix(block_hashes=HASHES, num_tokens=9),
            Prefix(token_ids=range(8)),
        ]
        assert pool.cached_prefixes(asked).num_cached_tokens == [12, 8, 0]
        with pytest.raises(InvalidRequest, match=r"^prefixes\.1\.token_ids"):
            pool.cached_prefixes([Prefix(), Prefix(token_ids=[-1])])


def test_the_asynchronous_client_does_the_same(server_url: str, pool_name: str) -> None:
    async def run() -> None:
        async with AsyncClient(server_url) as client:
            pool = await client.create_pool(pool_name, num_blocks=100, block_size=4)
            pin = await pool.pin(60_000, block_hashes=HASHES)
            assert (await pool.renew_pin(pin.pin_id)).pin_id == pin.pin_id
            assert [each.pin_id for each in await pool.pins()] == [pin.pin_id]
            assert (await pool.cached_prefixes([Prefix(block_hashes=HASHES)])).num_cached_tokens == [0]
            await pool.unpin(pin.pin_id)
            assert await pool.pins() == []

    asyncio.run(run())
