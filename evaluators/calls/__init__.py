"""Calls of kernels, and changes of calls for any chip.

The changes are prefetching during collectives, submeshes, and algorithm candidates.
"""
