"""How fast designs of all kinds of chips are priced in one call, as a study over them all would ask."""

from typing import Any

import numpy as np

from dse.evaluators import evaluate
from dse.space.column_parts import split_columns
from dse.space.design import Designs
from dse.space.knobs import ChoiceKnob, Columns, IntervalKnob, Knob, Space
from dse.space.workload import Workload
from tests.samples import asked, wide
from tests.speed.clock import cpu

COUNT = 10_000
LOAD = ("model=qwen3_4b", "workload.batch=[16]", "workload.prompt=1024", "workload.output=256")

SIDES = tuple(range(300, 751, 30))

KNOBS: dict[tuple[str, ...], tuple[Knob, ...]] = {
    ("chip=npu64",): (
        ChoiceKnob("chip.mesh.rows", (8, 16)),
        ChoiceKnob("chip.tile.matrix.rows", (32, 64, 128)),
        IntervalKnob("chip.tile.sram", 1e6, 1e8, log=True),
        IntervalKnob("chip.hbm.channel_bandwidth", 3e10, 5e11, log=True),
        IntervalKnob("chip.noc.word_bytes", 8, 256, log=True),
        ChoiceKnob("mapping.both.tp", (1, 2, 4, 8)),
        ChoiceKnob("mapping.both.pp", (4, 8, 16)),
        ChoiceKnob("mapping.both.partition", ("input_only", "mn", "k", "mn_k")),
        ChoiceKnob("mapping.both.placement", ("linear_seq", "linear_interleave", "ring", "mesh")),
    ),
    ("chip=wse2",): (
        ChoiceKnob("mapping.prefill.rows", SIDES),
        ChoiceKnob("mapping.decode.rows", SIDES),
        ChoiceKnob("mapping.both.gemm", ("meshgemm", "cannon", "summa", "allgather")),
        ChoiceKnob("mapping.both.gemv", ("ktree", "ring", "pipeline")),
        ChoiceKnob("mapping.kv_placement", ("shift", "concat")),
        IntervalKnob("chip.core.sram", 3e4, 2e5, log=True),
        IntervalKnob("chip.core.launch", 10, 200),
    ),
    ("chip=tile_gh200", "mapping=flat"): (
        IntervalKnob("chip.tile.sram", 2e5, 2e6, log=True),
        IntervalKnob("chip.hbm.channel_bandwidth", 5e10, 2e11, log=True),
        ChoiceKnob("chip.tile.matrix.rows", (16, 32, 64)),
        ChoiceKnob("mapping.both.attention.dataflow", ("flat_async", "flat_hw", "flash2", "flash3")),
    ),
}
"""Of chips, beside dies with a cache."""


def mixed(count: int = COUNT) -> Designs:
    """Random designs of dies, NPUs, wafers and tiles, as many of each, as one."""
    spaces = [wide(asked(*LOAD).base), *(Space(asked(*LOAD, *chip).base, knobs) for chip, knobs in KNOBS.items())]
    rng, groups, each = np.random.default_rng(0), list[Any](), count // len(spaces)
    for number, space in enumerate(spaces):
        found_space = space.stack(space.sample(rng.random((each, len(space.knobs)))))
        groups += [(rows + number * each, design) for rows, design in found_space.groups]
    return Designs(each * len(spaces), tuple(groups))


BLOCK, PART, NAMES = 131_072, 8_192, ("throughput_per_system_mm2", "tpot")
"""Rows of a screen's file, those that it evaluates at once, and metrics that a study asks for."""

STRUCTURES: dict[str, tuple[tuple[str, ...], tuple[Knob, ...]]] = {
    "dies: TP, prefetch, format of weights": (
        (),
        (
            ChoiceKnob("chip.cores", tuple(range(100, 600, 20))),
            IntervalKnob("chip.l2.size", 8e6, 256e6),
            IntervalKnob("chip.l2.bandwidth", 4e12, 20e12),
            IntervalKnob("chip.hbm.bandwidth", 1e12, 4e12),
            IntervalKnob("chip.network.bandwidth", 1e10, 2e11),
            ChoiceKnob("mapping.both.tp", (1, 2, 4, 8, 16, 32)),
            ChoiceKnob("mapping.both.prefetch", ("none", "whole", "partial")),
            ChoiceKnob("mapping.precision.weights", ("int8", "bf16")),
        ),
    ),
    "dies: every word and number": ((), wide(asked(*LOAD).base).knobs),
    "pipelines: TP, PP, partition": (
        ("chip=npu64",),
        (
            *(knob for knob in KNOBS["chip=npu64",] if isinstance(knob, IntervalKnob)),
            ChoiceKnob("mapping.both.tp", (1, 2, 4, 8)),
            ChoiceKnob("mapping.both.pp", (4, 8, 16)),
            ChoiceKnob("mapping.both.partition", ("input_only", "mn", "k", "mn_k")),
        ),
    ),
    "pipelines: placement, mesh and array as well": (("chip=npu64",), KNOBS["chip=npu64",]),
}
"""Words of chips, and knobs that make several structures beside those that are rates and sizes."""


def of_screens() -> list[tuple[str, str, str]]:
    """A screen's block of one kind of chip whose designs have several structures, in parts, as a screen does."""
    lines = []
    for what, (words, knobs) in STRUCTURES.items():
        question = asked(*LOAD, *words)
        space = Space(question.base, knobs)
        columns = space.sample(np.random.default_rng(0).random((BLOCK, len(knobs))))

        def work(space: Space = space, columns: Columns = columns, workload: Workload = question.workload) -> int:
            groups = 0
            for part in split_columns(columns, space.parts(columns, PART)):
                selected_space = space.stack(part)
                groups += len(selected_space.groups)
                evaluate(selected_space, workload, metrics=NAMES)
            return groups

        groups = work()
        seconds, (flop, nbytes) = cpu(work), np.random.default_rng(0).random((2, PART))
        roofs = cpu(lambda: [np.maximum(flop * 2.0, nbytes * 3.0) for _ in range(30)], 20)  # noqa: B023
        name = f"closed form, a screen's block of {BLOCK:,} {what}, {groups:,} groups"
        lines.append((name, f"{BLOCK / seconds:,.0f} designs/s", f"{PART / roofs:,.0f} rooflines/s"))
    return lines


def of_all() -> list[tuple[str, str, str]]:
    """Dies, NPUs, wafers and tiles in one call."""
    many, workload = mixed(), asked(*LOAD).workload
    first = cpu(lambda: evaluate(mixed(COUNT // 10), workload))
    seconds = cpu(lambda: evaluate(many, workload))
    rate = f"{len(many) / seconds:,.0f} designs/s"
    what = f"closed form, {len(many):,} designs of dies, NPUs, wafers and tiles in {len(many.groups)} groups"
    return [(what, rate, f"{len(many) / 10 / first:,.0f} of a tenth as many")]


if __name__ == "__main__":
    for line in (*of_all(), *of_screens()):
        print(*line, sep=" | ")
