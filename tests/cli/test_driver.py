import pytest

from blockyard.client import Client
from blockyard.core.errors import InvalidRequest
from blockyard.server.commands.replay.driver import Driver, InSteps, ManyAtATime, one_at_a_time
from blockyard.server.commands.replay.request import Request
from blockyard.server.commands.replay.tally import Tally


@pytest.mark.parametrize("drive", [one_at_a_time, ManyAtATime(2), InSteps(2)])
def test_a_request_refused_for_another_reason_than_blocks_ends_the_run_and_holds_nothing(
    drive: Driver, url: str
) -> None:
    requests = [Request(num_tokens=16, block_hashes=[]), Request(num_tokens=33, block_hashes=[])]
    with Client(url) as client:
        pool = client.create_pool("short", num_blocks=101, block_size=16, max_model_len=32)
        with pytest.raises(InvalidRequest, match="max_model_len"):
            drive(pool, requests, Tally(requests, on_progress=lambda _: None))
        stats = pool.stats()
        assert (stats.num_held_blocks, stats.num_leases) == (0, 0)
