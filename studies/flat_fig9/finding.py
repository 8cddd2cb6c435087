"""Findings on groups: utilisation by group and sequence with tilings, and the chosen strategy."""

from pathlib import Path

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators import evaluate
from dse.evaluators.accounting.kernel_workloads.tile_attention import chosen_tiling
from dse.space.design import stack_designs
from dse.studies.markdown_table import table

TOKENS, SIDES = (512, 1024, 2048, 4096), (4, 8, 16, 32)


def finding() -> str:
    """One row per sequence and group: tiling, engine and HBM utilisation; then the strategy's choice."""
    rows, chosen = [], []
    for tokens in TOKENS:
        for side in (*SIDES, 0):
            question = build_question(
                compose(["study=flat_fig9", f"workload.keys=[{tokens}]", f"mapping.rows={side}", f"mapping.cols={side}"]),
                Path(__file__).parent,
            )
            cut = chosen_tiling(question.base, question.workload.cases[0])
            columns = evaluate(stack_designs([question.base]), question.workload, fidelity="events").columns
            numbers = [f"{columns[name][0]:.1%}" for name in ("engine_utilisation", "mfu", "hbm_utilisation")]
            group, share = f"{cut.rows:.0f} x {cut.cols:.0f}", f"{cut.queries:.0f} x {cut.keys:.0f}"
            row = [f"{tokens}", group, share, f"{columns['cycles'][0]:,.0f}", *numbers]
            (rows if side else chosen).append(row)
    head = ["S", "group", "slice", "cycles", "engine at work", "mfu", "HBM bandwidth"]
    return "\n\n".join([table(head, rows), "What the strategy chooses:", table(head, chosen)])
