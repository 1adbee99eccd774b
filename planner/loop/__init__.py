"""The compiled replay loop: clock, queues, admission, KV blocks, preemption, fleets."""
