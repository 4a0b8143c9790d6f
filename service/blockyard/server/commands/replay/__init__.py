"""``blockyard replay``: requests from a trace or made up, driven against a server, and what came of them."""
