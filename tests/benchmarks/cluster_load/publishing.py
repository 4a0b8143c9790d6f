"""A message published to a stream at the sequence that is expected, as a batch is."""

import secrets
from statistics import median
from time import perf_counter

import nats
from nats.js.api import StreamConfig

NUM_PUBLISHES, MESSAGE_BYTES = 2_000, 1_024


async def publish_us(urls: str, num_replicas: int) -> tuple[float, float]:
    """Microseconds until it is acknowledged: the median, and the 99th percentile."""
    connection = await nats.connect(urls.split(","))
    try:
        context = connection.jetstream()
        name = f"measured-{secrets.token_hex(4)}"
        await context.add_stream(StreamConfig(name=name, subjects=[name], num_replicas=num_replicas))
        times = []
        for sequence in range(NUM_PUBLISHES):
            start = perf_counter()
            await context.publish(
                name, bytes(MESSAGE_BYTES), headers={"Nats-Expected-Last-Sequence": str(sequence)}
            )
            times.append(perf_counter() - start)
        await context.delete_stream(name)
    finally:
        await connection.close()
    times.sort()
    return median(times) * 1e6, times[len(times) * 99 // 100] * 1e6
