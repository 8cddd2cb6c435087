"""Serving of request streams: queues, scheduling, KV memory, event simulation and steady state."""
