"""Two processes serve a small transformer: one has a scheduler and no tensors, the other tensors and no plan.

    scheduler process                          worker process
    queues, budgets, preemption                the model and the memory of all blocks
         |          |                               ^         |
         |          +--- token ids, block ids ------+         |   heartbeats
         |                                                    |
         +---------------- blockyard server ------------------+

The scheduler process asks the server for blocks (`blockyard.client.Scheduler`), and never imports torch. The
worker process (`blockyard.worker.Worker`) is told block ids, and decides nothing.
"""
