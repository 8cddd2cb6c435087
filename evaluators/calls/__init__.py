"""Passes from calls to calls, on any chip that has the parts: what is prefetched while a collective runs."""
