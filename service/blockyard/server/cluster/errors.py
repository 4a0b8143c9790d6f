"""Why a server cannot be a node of a cluster."""


class ClusterUnavailable(Exception):
    """The client of NATS is not installed, or a file for it cannot be used; the text says what to do."""
