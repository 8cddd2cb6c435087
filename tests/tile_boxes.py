"""Random boxes of tiles, of which no design beats its bound: python -m tests.tile_boxes [--count 10000] [--seed 0]

A draw is a chip of tiles, a model, a batch and words of mappings, with boxes over all numbers that have ranges. Of each box the
fastest corner, ends and random designs are evaluated. It prints designs that beat the bound of their box, and by how much the
fastest corner is above it.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.accounting.box_bounds import evaluate_box_bounds
from dse.evaluators.accounting.leaf_effects import MOST
from dse.evaluators.kernels.attention import ATTENTION
from dse.space.array_math import Array
from dse.space.design import Designs, stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

RANGES: dict[str, tuple[float, float, float]] = {
    "chip.tile.sram": (64 * 1024, 2**21, 1024),
    "chip.tile.sram_bandwidth": (64, 2048, 0),
    "chip.tile.matrix.rows": (8, 128, 1),
    "chip.tile.matrix.cols": (4, 64, 1),
    "chip.tile.vector.lanes": (16, 512, 0),
    "chip.tile.vector.special": (8, 256, 0),
    "chip.noc.word_bytes": (8, 256, 1),
    "chip.hbm.channel_bandwidth": (4e9, 400e9, 0),
    "chip.hbm.capacity": (4e12, 8e12, 0),
}
"""Numbers that have ranges: the least, the most, and what they are whole multiples of, if anything."""

MODELS = ("qwen3_1b7", "llama3_8b", "gemma2_9b", "qwen3_30b_a3b", "phi3_small", "gpt_oss_20b")
CHIPS = ("tile_gh200", "tile32", "npu64")
METRICS = (
    "ttft", "tpot", "latency", "throughput", "system_mm2", "throughput_per_system_mm2", "decode_throughput_per_die_mm2",
    "capital_per_mtoken",
)  # fmt: skip

ROUNDING = 1e-9


class DrawnBoxes(NamedTuple):
    """Boxes of one question.

    Attributes:
        question: what is evaluated, at the numbers of its chip.
        low, high: ends of ranges by address, shape (boxes,).
    """

    question: Question
    low: dict[str, Array]
    high: dict[str, Array]


class Checked(NamedTuple):
    """What came of boxes.

    Attributes:
        faults: designs that beat the bound of their box, as text.
        gaps: share by which the fastest corner of each box is above its bound, by ttft and tpot, shape (2, boxes).
    """

    faults: list[str]
    gaps: Array


def draw_boxes(rng: np.random.Generator, boxes: int, width: float) -> DrawnBoxes:
    """Boxes whose numbers have ranges of at most a factor, on random chips, models and mappings."""
    model, chip = rng.choice(MODELS), rng.choice(CHIPS)
    sides, channels = rng.integers(2, 20, 2).tolist(), int(rng.integers(1, 40))
    sizes = [int(np.exp(rng.uniform(0, np.log(most)))) for most in (128, 5000, 700)]
    flows = [rng.choice(list(ATTENTION)) for _ in range(2)]
    overrides = [
        f"chip={chip}", f"model={model}", "mapping=flat", "chip.die.dies=1", f"chip.mesh.rows={sides[0]}",
        f"chip.mesh.cols={sides[1]}", f"chip.hbm.channels={channels}",
        f"workload.batch=[{sizes[0]}]", f"workload.prompt=[{sizes[1]}]", f"workload.output=[{sizes[2] + 1}]",
        f"chip.tile.matrix.dataflow={rng.choice(['ce', 'weight', 'output', 'input'])}",
        f"chip.tile.matrix.reload={rng.choice(['tile', 'hidden'])}",
        *(f"mapping.{phase}.attention.dataflow={flow}" for phase, flow in zip(("prefill", "decode"), flows, strict=True)),
    ]  # fmt: skip
    if rng.random() < 0.3:
        overrides.append("++chip.tile.gemm_engine=either")
    if rng.random() < 0.3:
        overrides.append(f"mapping.precision.weights={rng.choice(['int8', 'mxfp4'])}")
    if rng.random() < 0.3:
        overrides.append(f"mapping.precision.kv={rng.choice(['fp8', 'int8'])}")
    if rng.random() < 0.2:
        overrides.append(f"mapping.both.gemm.{rng.choice(['m', 'k', 'n'])}={rng.choice([16, 32, 64])}")
    if rng.random() < 0.2:
        overrides.append(f"mapping.both.attention.{rng.choice(['queries', 'keys'])}={rng.choice([16, 48, 64])}")
    low, high = {}, {}
    for address, (least, most, step) in RANGES.items():
        ends = np.exp(rng.uniform(np.log(least), np.log(most), boxes))
        ends = np.round(ends / step) * step if step else ends
        larger = ends * np.where(rng.random(boxes) < 0.7, width ** rng.random(boxes), 1.0)
        low[address], high[address] = ends, np.maximum(np.floor(larger / step) * step, ends) if step else larger
    return DrawnBoxes(asked(*overrides), low, high)


def check_boxes(drawn: DrawnBoxes, rng: np.random.Generator, inside: int = 3) -> Checked:
    """Evaluate the fastest corner of each box and some designs inside, and compare them with its bound."""
    question, low, high = drawn
    count = len(next(iter(low.values())))

    def stack(columns: dict[str, Array]) -> Designs:
        rows = [dict(zip(columns, row, strict=True)) for row in np.column_stack(list(columns.values())).tolist()]
        return stack_designs([replace_leaves(question.base, row) for row in rows])

    columns = {}
    for address, (_, _, step) in RANGES.items():
        share = np.clip(rng.uniform(-0.5, 1.5, (inside, count)), 0.0, 1.0)  # ends often
        values = low[address] + share * (high[address] - low[address])
        values = np.clip(np.round(values / step) * step if step else values, low[address], high[address])
        columns[address] = np.concatenate([high[address], values.ravel()])
    bounds = evaluate_box_bounds(stack(high), stack(low), stack(high), question.workload, METRICS)
    points = evaluate(stack(columns), question.workload, metrics=METRICS)
    feasible = points.limit.reshape(-1, count) < 0
    faults = ["a feasible design in a box that is dropped" for _ in range(int((feasible & (bounds.limit >= 0)).sum()))]
    gaps = np.full((2, count), np.nan)
    for metric in METRICS:
        values, bound = points.columns[metric].reshape(-1, count), bounds.columns[metric]
        ratios = np.where(feasible, bound / values if metric in MOST else values / bound, np.inf)
        for box in np.flatnonzero(ratios.min(axis=0) < 1 - ROUNDING):
            faults.append(
                f"{metric} {ratios[:, box].min():.6f}: {[(name, low[name][box], high[name][box]) for name in RANGES]}"
            )
        if metric in ("ttft", "tpot"):
            gaps[("ttft", "tpot").index(metric)] = np.where(feasible[0], ratios[0] - 1, np.nan)
    return Checked(faults, gaps)


BOXES_PER_DRAW = 64
"""Boxes on one chip with one model and one mapping, at most."""


def draws(count: int, seed: int, width: float) -> Iterator[tuple[DrawnBoxes, Checked]]:
    """Draws of boxes, `count` in all or a few more, and what came of them; few boxes are of several draws as well."""
    rng, boxes = np.random.default_rng(seed), min(max(count // 8, 1), BOXES_PER_DRAW)
    for _ in range(-(-count // boxes)):
        drawn = draw_boxes(rng, boxes, width)
        yield drawn, check_boxes(drawn, rng)


def main() -> int:
    """Check as many boxes as are asked for; 1 if a design beats the bound of its box."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=float, default=3.0, help="most factor between the ends of a range; 1 for points")
    typed = parser.parse_args()
    faults, gaps, boxes = 0, [], 0
    for drawn, checked in draws(typed.count, typed.seed, typed.width):
        boxes += checked.gaps.shape[1]
        gaps.append(checked.gaps)
        faults += len(checked.faults)
        for fault in checked.faults:
            print(drawn.question.base.mapping, drawn.question.workload, fault, sep="\n")
    for metric, row in zip(("ttft", "tpot"), np.concatenate(gaps, axis=1), strict=True):
        known = row[np.isfinite(row)]
        median, most = np.quantile(known, (0.5, 0.9))
        print(f"{metric}: the fastest corner of {len(known)} boxes is above their bound by {median:.2%}, a tenth by {most:.2%}")
    print(f"{boxes} boxes, {faults} designs beat the bound of their box")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
