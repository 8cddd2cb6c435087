"""Designs that differ in words are worked out as one group in the steady state, and each is what it is by itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_runs import iteration_time_batches as asked_first
from dse.evaluators.workloads.serving import serving_layout
from dse.space.chip import DATAFLOWS
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.mapping import ARRANGEMENTS, MESH_GEMMS, PLACEMENTS, STAGE_CUTS
from tests.samples import asked

LINE = ("chip=npu64", "workload=serving", "workload.requests=24", "workload.rate='3 Hz'", "workload.prompt=256",
        "workload.output=16", "model=qwen3_1b7", "model.qwen3_1b7.layers=6")  # fmt: skip


def drawn(base: Design, rng: np.random.Generator, partition: str) -> Design:
    tp, pp = int(rng.choice([2, 4])), int(rng.choice([2, 4, 8]))
    both = {
        "partition": partition,
        "placement": str(rng.choice(PLACEMENTS)),
        "stages": str(rng.choice(STAGE_CUTS)),
        "tp": tp,
        "pp": pp,
    }
    changes: dict[str, Any] = {
        f"mapping.{phase}.{word}": option for phase in ("prefill", "decode") for word, option in both.items()
    }
    changes |= {
        "mapping.serving.arrangement": str(rng.choice(ARRANGEMENTS)),
        "mapping.serving.prefill_cores": int(rng.choice([0, 8, 32])),
        "chip.hbm.channel_bandwidth": float(rng.choice([3e10, 1.2e11])),
    }
    return replace_leaves(base, changes)


@settings(max_examples=1, deadline=None)
@given(st.integers(0, 2**32))
def test_designs_whose_words_differ_are_what_each_is_by_itself(seed: int) -> None:
    question, rng = asked(*LINE), np.random.default_rng(seed)
    partitions = [str(rng.choice(["k", "mn"]))] * 10 + [MESH_GEMMS[0]] * 2  # of which one may clash with its placement
    designs = [drawn(question.base, rng, partition) for partition in partitions]
    groups = asked_first.merge_equal_groups(serving_layout, stack_designs(designs)).groups
    assert max(len(rows) for rows, _ in groups) == 10
    together = evaluate(stack_designs(designs), question.workload, fidelity="steady_state")
    for row in (0, 1, 2, 10):
        alone = evaluate(stack_designs([designs[row]]), question.workload, fidelity="steady_state")
        assert alone.limit[0] == together.limit[row]
        assert alone.excess[0] == pytest.approx(together.excess[row], rel=1e-12)
        assert alone.refused.get(0) == together.refused.get(row)
        for name, column in together.columns.items():
            value = alone.columns[name][0] if name in alone.columns else np.nan
            assert column[row] == pytest.approx(value, rel=1e-11, nan_ok=True), name


def test_arrays_in_which_something_else_stays_are_what_each_is_by_itself() -> None:
    question, rng = asked("chip=npu64", "mapping=flat_serving", *LINE[1:]), np.random.default_rng(3)
    designs = []
    for word in DATAFLOWS[:-1] * 2:
        side = int(rng.choice([16, 32, 64]))
        designs.append(
            replace_leaves(
                question.base,
                {
                    "chip.tile.matrix.dataflow": word,
                    "chip.tile.matrix.rows": side,
                    "chip.tile.matrix.cols": side,
                    "chip.tile.sram": float(rng.choice([1e6, 4e6])),
                    "chip.hbm.channel_bandwidth": float(rng.choice([1.5e10, 1.2e11])),
                },
            )
        )
    assert len(asked_first.merge_equal_groups(serving_layout, stack_designs(designs)).groups) == 1
    together = evaluate(stack_designs(designs), question.workload, fidelity="steady_state")
    assert together.feasible.any()
    for row, design in enumerate(designs[:3]):
        alone = evaluate(stack_designs([design]), question.workload, fidelity="steady_state")
        assert alone.limit[0] == together.limit[row]
        for name, column in alone.columns.items():
            assert together.columns[name][row] == pytest.approx(column[0], rel=1e-11, nan_ok=True), name
