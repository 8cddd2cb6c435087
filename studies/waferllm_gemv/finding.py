"""Cycles by size, allreduce and cores, the best cores, and the share that products take."""

from dse.studies.waferllm_gemm.finding import scaled

SIDES = (120, 240, 360, 480, 600, 720)


def finding() -> str:
    """One row a size and allreduce."""
    return scaled("waferllm_gemv", "mapping.gemv", SIDES)
