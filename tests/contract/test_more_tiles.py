"""Chips of tiles have no cliffs: not by a token more, not by chunks, not by more tiles, and not by one die in the place of two.

TILES=50 pytest tests/contract/test_more_tiles.py draws as many chips; the suite a few.
"""

import os
from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.cost_models import cost_model
from dse.evaluators.cost_models.call_cost import block_timeline
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.whole_chip import ChipContext, chip_blocks
from dse.evaluators.machine.machine import tile_core_machine
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

CHIPS = int(os.environ.get("TILES", "4"))

DENSE = ("qwen3_1b7", "llama3_8b", "gemma2_9b")

MODELS = (*DENSE, "qwen3_30b_a3b")

FARTHER = 1.06
"""Of the time on fewer columns: a row along which blocks go is longer, and a block has one channel where it had several.
No groups share out columns, so that experts, which have few, take up to 8 % longer on four times as many."""

NEARER = 1.015
"""Likewise of rows, whose ways stay as long as they were: candidates are not all that there are."""


def drawn(rng: np.random.Generator, models: tuple[str, ...] = MODELS) -> tuple[Design, Any]:
    """A chip of tiles, and prompts of a model."""
    model, batch, prompt = str(rng.choice(models)), int(rng.choice([1, 3, 16])), int(np.exp(rng.uniform(3, 8)))
    question = asked(
        "chip=tile_gh200", f"model={model}", "mapping=flat", f"workload.batch=[{batch}]", f"workload.prompt=[{prompt}]",
        "workload.output=[8]",
    )  # fmt: skip
    changes = {
        "chip.mesh.rows": int(rng.choice([6, 8, 12, 16, 20, 32])),
        "chip.mesh.cols": int(rng.choice([8, 16, 32])),
        "chip.hbm.channels": int(rng.choice([8, 16, 32])),
        "chip.hbm.channel_bandwidth": 10 ** rng.uniform(10, 11.5),
        "chip.tile.sram": 10 ** rng.uniform(5.2, 6.2),
        "chip.tile.matrix.rows": int(rng.choice([16, 32])),
    }
    return replace_leaves(question.base, changes), question.workload


def times(design: Design, workload: Any) -> np.ndarray:
    """Of prompts, and of a token."""
    columns = evaluate(stack_designs([design]), workload).columns
    return np.array([float(columns[name][0]) for name in ("ttft", "tpot")])


@pytest.mark.parametrize(("side", "most"), [("rows", NEARER), ("cols", FARTHER)])
@pytest.mark.parametrize("more", [1.5, 2, 4])
def test_more_tiles_are_never_slower(side: str, most: float, more: float) -> None:
    rng = np.random.default_rng(int(10 * more))
    for _ in range(CHIPS):
        design, workload = drawn(rng, MODELS if side == "rows" else DENSE)
        size = getattr(design.chip.mesh, side)
        wider = replace_leaves(design, {f"chip.mesh.{side}": int(size * more)})
        assert (times(wider, workload) <= times(design, workload) * most).all(), (design, workload)


def passed(design: Design, workload: Any, new: int, past: int = 0) -> float:
    """Time of a pass over a stretch of one prompt, with so many tokens before it."""
    model, mapping = workload.cases[0].model, design.mapping
    context = ChipContext(model, design.chip, mapping.prefill, mapping.precision, {})
    (turn,) = IterationWork(model, "prefill", "prefill", 1, new, past, 0, 0.0).turns()
    parts = block_timeline(
        list(chip_blocks(turn.at, turn.attend, context)), tile_core_machine(design.chip), cost_model("analytical")
    )
    return float(sum(part.block.times * sum(part.durations) for part in parts))


def test_a_token_more_costs_no_more_than_a_pass_over_it() -> None:
    rng = np.random.default_rng(1)
    for _ in range(CHIPS):
        design, workload = drawn(rng)
        side = design.chip.mesh.rows
        for tokens in (side * 16 * int(rng.integers(1, 5)), int(rng.integers(2, 3000))):
            single, before, after = (passed(design, workload, *lengths) for lengths in ((1, tokens), (tokens,), (tokens + 1,)))
            assert after <= (before + single) * NEARER, (tokens, design, workload)


def test_chunks_are_never_quicker_than_the_whole() -> None:
    rng = np.random.default_rng(2)
    for _ in range(CHIPS):
        design, workload = drawn(rng)
        chunk = design.chip.mesh.rows * 16 * int(rng.choice([1, 2]))
        tokens = chunk * int(rng.integers(1, 3)) + int(rng.integers(1, chunk))
        several = [(min(chunk, tokens - past), past) for past in range(0, tokens, chunk)]
        assert passed(design, workload, tokens) <= sum(passed(design, workload, *lengths) for lengths in several) * NEARER, (
            tokens, chunk, design, workload,
        )  # fmt: skip


def test_two_dies_with_free_links_are_no_faster_than_one_of_twice_the_size() -> None:
    rng = np.random.default_rng(3)
    for _ in range(CHIPS):
        batch, prompt = int(rng.choice([1, 16])), int(rng.choice([128, 1024]))
        question = asked(
            "chip=wafer64", "model=llama3_8b", "mapping.both.pp=1", "mapping.both.ep=1", f"workload.batch=[{batch}]",
            f"workload.prompt=[{prompt}]", "workload.output=[8]", "chip.d2d.latency='0 ns'", "chip.d2d.barrier='0 us'",
            "chip.d2d.bandwidth='1000000 TB/s'", "chip.dies.rows=1", "chip.dies.cols=2", "mapping.both.tp=2",
        )  # fmt: skip
        rows, cols, channels = int(rng.choice([16, 32])), int(rng.choice([16, 32])), int(rng.choice([16, 64]))
        sizes = {"chip.mesh.rows": rows, "chip.mesh.cols": cols, "chip.hbm.channels": channels}
        two = replace_leaves(question.base, sizes)
        side = "rows" if rng.random() < 0.5 else "cols"
        double = {f"chip.mesh.{side}": 2 * sizes[f"chip.mesh.{side}"], "chip.hbm.channels": 2 * channels, "chip.dies.cols": 1}
        split = {f"mapping.{phase}.tp": 1 for phase in ("prefill", "decode")}
        leaves = replace_leaves(two, {**double, **split, "chip.hbm.capacity": 2 * two.chip.hbm.capacity})
        assert (times(leaves, question.workload) <= times(two, question.workload) * NEARER).all(), (sizes, side)
