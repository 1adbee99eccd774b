"""The compiled replay loop: the clock, the queues, the KV blocks, the budgets and preemption."""
