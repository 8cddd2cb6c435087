"""Calls of a step that read the same share what that takes, and candidates of meshes what does not depend on chips."""

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.call_cost import call_cost
from dse.evaluators.tuning import fastest_candidate as quickest
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked


@pytest.mark.parametrize("seed", range(3))
def test_a_step_costs_what_its_calls_cost_one_by_one(seed):
    rng, question = np.random.default_rng(seed), asked("chip=npu64", "model=qwen3_4b", "workload.batch=[16]")
    words = {"mapping.both.tp": float(rng.choice((1, 2, 4))), "mapping.both.partition": str(rng.choice(("mn", "k", "mn_k")))}
    both = {a.replace("both", phase): value for a, value in words.items() for phase in ("prefill", "decode")}
    chip = {"chip.tile.sram": rng.uniform(1e5, 1e8, 5), "chip.hbm.channel_bandwidth": rng.uniform(3e10, 5e11, 5)}
    (job,) = arrays_by_model(question.workload)
    design = replace_leaves(question.base, both | chip)
    for phase in layout_of(design).phases(design, job, "analytical", detailed=True):
        for block, shares in zip(phase.timed, phase.away, strict=True):
            for call, cost, away in zip(block.block.calls, block.costs, shares, strict=True):
                alone = call_cost(call, phase.machine, READERS["analytical"], away)
                for name in ("need", "read", "per_byte", "memory"):
                    assert np.array_equal(getattr(cost, name), getattr(alone, name)), (call.name, name)


def test_chips_get_the_same_whatever_was_asked_before():
    question = asked("chip=tile32", "workload=attention", "mapping=attention")
    rng = np.random.default_rng(0)

    def chips(clock: float) -> list[object]:
        sides = {f"chip.{side}": float(rng.choice((8, 16, 32))) for side in ("mesh.rows", "mesh.cols", "tile.matrix.rows")}
        return [replace_leaves(question.base, {**sides, "chip.clock": clock, "chip.tile.sram": rng.uniform(1e5, 8e5)})]

    selected_chips = [chip for number in range(6) for chip in chips(8e8 + 1e6 * number)]
    for others in (selected_chips[::-1], selected_chips[:3]):
        evaluate(stack_designs([replace_leaves(design, {"chip.clock": 9e8}) for design in others]), question.workload)
    after = evaluate(stack_designs(selected_chips), question.workload)
    for kept in (quickest._useful, quickest._tried):
        kept._results.clear()
    first = evaluate(stack_designs(selected_chips), question.workload)
    assert all(np.array_equal(column, first.columns[name], equal_nan=True) for name, column in after.columns.items())
