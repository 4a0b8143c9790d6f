"""``blockyard top``: what a server's pools are doing, in a terminal.

command      the line, and where to: a terminal or a pipe
frames       look after look, over a server that goes away and comes back
pools_table  a row a pool, and its rates
pool_watch   how one pool is looked at
pool_view    all of one pool
pool_map     its blocks, in a few lines
members      who holds them, who serves them, and how long calls take
"""
