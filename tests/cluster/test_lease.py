"""A node's lease: it is over by its own clock before anybody else may think so."""

from blockyard.server.cluster.lease import Lease, boot_time_ns


class Time:
    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms * 1_000_000


def test_a_lease_lasts_from_when_its_heartbeat_was_sent_and_not_from_when_it_was_stored() -> None:
    time = Time()
    lease = Lease(500, time)
    assert not lease.holds
    sent = time()
    time.now_ms += 400  # the acknowledgement comes late
    lease.renew(sent)
    assert lease.holds
    assert lease.left_ms == 100
    time.now_ms += 99
    assert lease.holds
    time.now_ms += 1
    assert not lease.holds
    assert lease.left_ms == 0


def test_a_late_acknowledgement_does_not_shorten_a_lease() -> None:
    time = Time()
    lease = Lease(500, time)
    earlier = time()
    time.now_ms += 200
    lease.renew(time())
    lease.renew(earlier)
    assert lease.left_ms == 500


def test_a_lease_that_was_ended_is_over_until_it_is_renewed() -> None:
    lease = Lease(60_000)
    lease.renew(boot_time_ns())
    lease.end()
    assert not lease.holds
    lease.renew(boot_time_ns())
    assert lease.holds
