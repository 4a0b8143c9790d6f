"""``blockyard cluster``: a cluster to try out on one machine, and what a node knows of its cluster."""
