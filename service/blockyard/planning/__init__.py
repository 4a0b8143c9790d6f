"""The planner: from a model's layers and a memory size to blocks, groups of layers, and tensors.

Pure: no torch, environment, clock or I/O. `blockyard.planning.planner.plan` is the way in.
"""
