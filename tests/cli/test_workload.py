from blockyard.server.commands.replay.workload import MAX_CONVERSATION_TOKENS, Workload


def make_workload(num_requests: int = 500, num_users: int = 20, seed: int = 0) -> Workload:
    return Workload(num_requests=num_requests, num_users=num_users, seed=seed)


def test_the_same_seed_makes_the_same_requests() -> None:
    assert list(make_workload().requests()) == list(make_workload().requests())


def test_another_seed_makes_other_requests() -> None:
    assert list(make_workload().requests()) != list(make_workload(seed=1).requests())


def test_there_are_as_many_requests_as_asked_for() -> None:
    assert len(list(make_workload(num_requests=123).requests())) == 123


def test_fewer_requests_are_the_beginning_of_more() -> None:
    assert list(make_workload(100).requests()) == list(make_workload(200).requests())[:100]


def test_every_full_block_has_a_hash() -> None:
    for request in make_workload().requests():
        assert len(request.block_hashes) == request.num_tokens // 16


def test_equal_blocks_follow_equal_prefixes() -> None:
    prefixes: dict[bytes, tuple[bytes, ...]] = {}
    for request in make_workload().requests():
        for position, block in enumerate(request.block_hashes):
            prefix = tuple(request.block_hashes[:position])
            assert prefixes.setdefault(block, prefix) == prefix


def test_a_conversation_grows_turn_by_turn() -> None:
    first, second = list(make_workload(num_requests=2, num_users=1).requests())
    assert second.block_hashes[: len(first.block_hashes)] == first.block_hashes
    assert second.num_tokens > first.num_tokens


def test_users_share_system_prompts() -> None:
    workload = Workload(num_requests=500, num_users=100, num_system_prompts=2)
    assert len({request.block_hashes[0] for request in workload.requests()}) == 2


def test_a_conversation_that_is_too_long_starts_anew() -> None:
    longest = max(request.num_tokens for request in make_workload(5_000, num_users=1).requests())
    assert longest < MAX_CONVERSATION_TOKENS + 1_000
