"""Findings on GEMM: cycles by size, algorithm and cores, best cores, and share of products."""

from typing import Any

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.array_math import Array
from dse.studies.markdown_table import table

SIDES = (360, 480, 600, 720)


def finding() -> str:
    """One row per size and algorithm, in Markdown."""
    return scaling_table("waferllm_gemm", "mapping.gemm", SIDES)


def scaling_table(study: str, algorithm: str, sides: tuple[int, ...]) -> str:
    """Cycles of a product on square meshes, by size and algorithm (and K), from a study's grid."""
    question = find_study(study).question
    size = question.space.combinations
    assert size is not None
    columns = question.space.grid(0, size)
    cases = evaluate(question.space.stack(columns), question.workload, cases=True).cases
    rows = []
    for number, case in enumerate(question.workload.cases):
        for name, mask in variants(question.space, algorithm, columns):
            side, cycles, share = (
                columns["mapping.rows"][mask],
                cases["cycles"][number][mask],
                cases["compute_share"][number][mask],
            )
            best = f"{side[cycles.argmin()]:.0f}" if cases["fits"][number][mask].any() else "none fits"
            at = [f"{cycles[side == single_side][0]:,.0f}" for single_side in sides]
            rows.append([case.label, name, best, *at, f"{share[side == sides[-1]][0]:.0%}"])
    head = [
        "product",
        "algorithm",
        "best side",
        *(f"{side} x {side}" for side in sides),
        f"products, {sides[-1]} x {sides[-1]}",
    ]
    return table(head, rows)


def variants(space: Any, algorithm: str, columns: dict[str, Array]) -> list[tuple[str, Array]]:
    """Each algorithm with the rows of a grid that use it; the K-tree once for each K."""
    variants = []
    for code, name in enumerate(space.knob(algorithm).values):
        mask = np.asarray(columns[algorithm]) == code
        depths = sorted(set(columns["mapping.ktree_k"][mask])) if name == "ktree" else []
        variants += [(f"{name}, K = {k:.0f}", mask & (columns["mapping.ktree_k"] == k)) for k in depths] or [(name, mask)]
    return variants
