"""Fitted constants of library kernels, one record per kind: optional parts of a stack (`space.stack`)."""
