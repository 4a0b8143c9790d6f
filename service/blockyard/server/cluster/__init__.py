"""More than one server: nodes that share pools among them, each pool one node's at a time."""
