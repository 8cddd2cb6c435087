"""Groups of tiles whose rows do not divide the mesh's: what the product may choose may be said, and is the same then."""

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels.attention.tiling_candidates import _rows
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from dse.space.limits import is_row_count
from tests.samples import asked


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_a_product_chooses_may_be_said(seed: int) -> None:
    """Of any mesh: what is chosen fits as it is said, takes as long, and all that is tried is no more than the rows."""
    rng = np.random.default_rng((77, seed))
    side, sizes = int(rng.integers(3, 49)), [int(2 ** rng.uniform(low, high)) for low, high in ((0, 10), (8, 12), (8, 12))]
    shapes = f"workload.shapes=[{'x'.join(map(str, sizes))}]"
    free = asked("chip=tile32", "workload=gemm", "mapping=summa", f"chip.mesh.rows={side}", shapes)
    plan = free.base.mapping.kernel
    tried = closed_summa._options(GemmShape(*sizes), 1, (side, 32), plan)
    for rows in np.unique(tried.rows):
        assert is_row_count(rows, side), rows
        design = replace_leaves(free.base, {"mapping.rows": int(rows)})
        refused = explain_infeasibility(design, free.workload)
        assert refused is None or refused.limit == "chip.tile.sram", rows
    for split in np.unique(tried.split):
        assert is_row_count(split, side), split
    best = closed_summa.propose_summa_job(GemmShape(*sizes), free.base.chip, plan).part
    leaves = replace_leaves(free.base, {"mapping.rows": int(best.rows), "mapping.split_k": int(best.split)})
    taken = [float(evaluate(stack_designs([design]), free.workload).columns["latency"][0]) for design in (free.base, leaves)]
    assert taken[1] == pytest.approx(taken[0], rel=1e-9)


@pytest.mark.parametrize("side", [3, 12, 24, 33, 48])
def test_rows_that_attention_chooses_may_be_said(side: int) -> None:
    words = ("chip=tile32", "workload=attention", "mapping=attention", f"chip.mesh.rows={side}", "workload.keys=[2048]")
    free = asked(*words)
    for rows in _rows(side, 1e9):
        refused = explain_infeasibility(replace_leaves(free.base, {"mapping.rows": rows}), free.workload)
        assert refused is None or refused.limit == "chip.tile.sram", rows
    beyond = explain_infeasibility(replace_leaves(free.base, {"mapping.rows": 64}), free.workload)
    assert beyond is not None
    assert beyond.limit == "mapping.rows"
