"""Kernels: one file per algorithm, each with `cost` (closed form) and `steps` (what the cores do)."""
