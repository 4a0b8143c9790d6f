"""Pools owned across several nodes, on NATS JetStream: see ``service/decisions/0010-cluster.md``."""
