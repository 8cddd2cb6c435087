"""Findings on GEMV: cycles by size, allreduce and cores, best cores, and share of products."""

from dse.studies.waferllm_gemm.finding import scaling_table

SIDES = (120, 240, 360, 480, 600, 720)


def finding() -> str:
    """One row per size and allreduce, in Markdown."""
    return scaling_table("waferllm_gemv", "mapping.gemv", SIDES)
