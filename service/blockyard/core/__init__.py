"""The allocator itself: a deterministic state machine with no I/O, clock or randomness.

Nothing here imports more than the standard library and hashing packages.
"""
