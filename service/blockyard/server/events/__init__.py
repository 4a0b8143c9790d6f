"""KV events: from a pool's batches to those who follow them, over ZeroMQ and as server-sent events."""
