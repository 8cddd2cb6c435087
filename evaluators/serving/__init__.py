"""Requests that are served as they come: queues, policies, caches, the loop that plays them, and their steady state."""
