"""Findings on dataflows by layer: bottleneck and its utilisation, with averages as in the paper."""

from typing import NamedTuple

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.evaluators.accounting.kernel_workloads.tile_attention import chosen_tiling
from dse.space.chip import Chip
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory
from dse.space.workload import AttentionCase, Workload
from dse.studies.markdown_table import table

VALUE = 2.0
"""Bytes of a value."""


class Roof(NamedTuple):
    """A layer under a chip's roofline: operations per byte, bound by compute or memory, least time [s]."""

    intensity: float
    compute: bool
    seconds: float


def roof(case: AttentionCase, chip: Chip) -> Roof:
    """Roofline of an attention layer: operands and results cross memory once, masked pairs excluded."""
    problems = case.batch * case.kv_heads
    seen = case.keys - (case.queries - 1) / 2 if case.causal else case.keys
    flop = 2.0 * case.batch * case.heads * case.queries * seen * (case.qk + case.v)
    columns = case.qk if case.latent else case.qk + case.v
    nbytes = VALUE * (case.batch * case.heads * case.queries * (case.qk + case.v) + problems * case.keys * columns)
    peak = 2.0 * chip.mesh.rows * chip.mesh.cols * chip.tile.matrix.rows * chip.tile.matrix.cols * chip.clock
    bandwidth = main_memory(chip).bandwidth
    return Roof(flop / nbytes, flop / peak > nbytes / bandwidth, max(flop / peak, nbytes / bandwidth))


def simulate_layer(base: Design, name: str, case: AttentionCase, fidelity: str) -> tuple[Design, dict[str, float]]:
    """One layer by one dataflow: its design and metrics."""
    design = replace_leaves(base, {"mapping.dataflow": name})
    evaluation = evaluate(stack_designs([design]), Workload("layer", (case,)), fidelity=fidelity)
    return design, {metric: float(values[0]) for metric, values in evaluation.columns.items()}


def finding() -> str:
    """One row per layer: simulated FlatAsync with its tiling, and other dataflows relative to it."""
    question = find_study("flat_fig12").question
    names = [name for name in question.space.knob("mapping.dataflow").values if name != "flat_async"]
    rows, used = [], {"C": [], "M": []}  # type: ignore[var-annotated]
    for case in question.workload.cases:
        design, metrics = simulate_layer(question.base, "flat_async", case, "events")
        bound = roof(case, design.chip)  # type: ignore[arg-type]
        letter, share = ("C", metrics["mfu"]) if bound.compute else ("M", metrics["hbm_utilisation"])
        used[letter].append(share)
        cut = chosen_tiling(design, case)
        closed = simulate_layer(question.base, "flat_async", case, "analytical")[1]["latency"]
        others = [simulate_layer(question.base, name, case, "analytical")[1]["latency"] / closed for name in names]
        rows.append(
            [
                case.label,
                f"{bound.intensity:.0f}",
                f"{cut.rows:.0f} x {cut.cols:.0f}, {cut.queries:.0f} x {cut.keys:.0f}",
                f"{metrics['latency'] * 1e6:.0f}",
                f"{letter}:{share:.0%}",
                *(f"{other:.2f}" for other in others),
            ]
        )
    head = ["layer", "op/B", "group, slice", "FlatAsync, us", "used", *names]
    both = " and ".join(
        f"{np.mean(shares):.0%} (up to {max(shares):.0%}) of {what}"
        for what, shares in (("the engines where they bind", used["C"]), ("HBM bandwidth where it does", used["M"]))
    )
    return "\n\n".join(
        [table(head, rows), f"On average {both}. The other dataflows: time over FlatAsync's, by the closed form."]
    )
