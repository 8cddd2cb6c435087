"""Designs of several structures whose prices are worked out at once are what each of them is by itself."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting import die_batches as shared_dies
from dse.evaluators.accounting import tile_dies as dies
from dse.evaluators.accounting.serving_instances import whole_chip_iterations
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.workload import Workload
from tests.samples import asked

MESH = ("chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
SERVED = ("workload=serving", "workload.requests=24", "workload.rate='3 Hz'", "workload.prompt=256", "workload.output=16")
MODEL = ("model=qwen3_1b7", "model.qwen3_1b7.layers=3")
KINDS = {
    "whole chip": ("chip=tile_gh200", "mapping.serving.max_batched_tokens=512"),
    "dies": ("chip=wafer64", "chip.dies.rows=2", "chip.dies.cols=2", "mapping.both.pp=1", "mapping.both.ep=1"),
}
"""Layouts that say first what they will ask."""


def drawn(kind: str, seed: int, count: int) -> tuple[list[Design], Workload]:
    """Designs with few numbers and words, so that some are asked the same; one breaks a limit of memory."""
    question, rng = asked(*KINDS[kind], *MESH, *SERVED, *MODEL), np.random.default_rng(seed)
    designs = []
    for number in range(count):
        changes: dict[str, Any] = {
            "chip.tile.sram": float(rng.choice([2.0**18, 2.0**20])),
            "chip.hbm.channel_bandwidth": float(rng.choice([3e10, 1.2e11])),
            "chip.clock": float(rng.choice([0.5e9, 1e9])),
            "mapping.serving.max_batch_size": int(rng.choice([4, 16])),
            "mapping.prefill.attention.dataflow": "flash3" if number == 2 else "flat_async",
        }
        changes |= {"chip.hbm.capacity": 1e6} if number == 1 else {}
        if kind == "dies":
            tp = 1 + int(number == 2)
            changes |= {f"mapping.{phase}.tp": tp for phase in ("prefill", "decode")}
        designs.append(replace_leaves(question.base, changes))
    return designs, question.workload


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=1, deadline=None)
@given(st.integers(0, 2**32))
def test_designs_of_several_structures_are_what_each_is_by_itself(kind: str, seed: int) -> None:
    """Metrics and limits, whatever is priced at once."""
    designs, workload = drawn(kind, seed, 5)
    together = evaluate(stack_designs(designs), workload, fidelity="steady_state")
    assert 0 < together.feasible.sum() < len(designs)
    for row, design in enumerate(designs[:3]):  # one that shares its prices, one that breaks a limit, one of its own
        alone = evaluate(stack_designs([design]), workload, fidelity="steady_state")
        assert alone.limit[0] == together.limit[row]
        assert alone.excess[0] == pytest.approx(together.excess[row], rel=1e-12)
        for name, column in together.columns.items():
            value = alone.columns[name][0] if name in alone.columns else np.nan
            assert column[row] == pytest.approx(value, rel=1e-12, nan_ok=True), name


def test_what_is_asked_of_several_is_worked_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of structures that are served in three ways, and of dies that are asked alike."""
    prices, several, sizes = whole_chip_iterations._price_parts, dies._several, list[int]()

    def priced(design: Design, *others: Any) -> Any:
        sizes.append(whole_chip_iterations.design_count(design))
        return prices(design, *others)

    def worked(asked_: Any, batch: Any, selected_batch: shared_dies.DieBatch, *others: Any) -> Any:
        sizes.append(np.size(selected_batch.die.clock))
        return several(asked_, batch, selected_batch, *others)

    monkeypatch.setattr(whole_chip_iterations, "_price_parts", priced)
    monkeypatch.setattr(dies, "_several", worked)
    for kind in KINDS:
        designs, workload = drawn(kind, 5, 4)
        leaves = [
            replace_leaves(designs[0], {"chip.clock": 0.61e9 + 1e7 * number, "mapping.serving.max_batch_size": 2 + number})
            for number in range(3)
        ]
        sizes.clear()
        evaluate(stack_designs(leaves), workload, fidelity="steady_state")
        assert max(sizes) == 3, kind
