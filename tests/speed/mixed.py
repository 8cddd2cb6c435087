"""How fast designs of all kinds of chips are priced in one call, as a study over them all would ask."""

from typing import Any

import numpy as np

from dse.evaluators import evaluate
from dse.space.design import Designs
from dse.space.knobs import Choice, Interval, Knob, Space
from tests.samples import asked, wide
from tests.speed.clock import cpu

COUNT = 10_000
LOAD = ("model=qwen3_4b", "workload.batch=[16]", "workload.prompt=1024", "workload.output=256")

SIDES = tuple(range(300, 751, 30))

KNOBS: dict[tuple[str, ...], tuple[Knob, ...]] = {
    ("chip=npu64",): (
        Choice("chip.mesh.rows", (8, 16)),
        Choice("chip.tile.matrix.rows", (32, 64, 128)),
        Interval("chip.tile.sram", 1e6, 1e8, log=True),
        Interval("chip.hbm.channel_bandwidth", 3e10, 5e11, log=True),
        Interval("chip.noc.word_bytes", 8, 256, log=True),
        Choice("mapping.both.tp", (1, 2, 4, 8)),
        Choice("mapping.both.pp", (4, 8, 16)),
        Choice("mapping.both.partition", ("input_only", "mn", "k", "mn_k")),
        Choice("mapping.both.placement", ("linear_seq", "linear_interleave", "ring", "mesh")),
    ),
    ("chip=wse2",): (
        Choice("mapping.prefill.rows", SIDES),
        Choice("mapping.decode.rows", SIDES),
        Choice("mapping.both.gemm", ("meshgemm", "cannon", "summa", "allgather")),
        Choice("mapping.both.gemv", ("ktree", "ring", "pipeline")),
        Choice("mapping.kv", ("shift", "concat")),
        Interval("chip.core.sram", 3e4, 2e5, log=True),
        Interval("chip.core.launch", 10, 200),
    ),
    ("chip=tile_gh200", "mapping=flat"): (
        Interval("chip.tile.sram", 2e5, 2e6, log=True),
        Interval("chip.hbm.channel_bandwidth", 5e10, 2e11, log=True),
        Choice("chip.tile.matrix.rows", (16, 32, 64)),
        Choice("mapping.both.attention.dataflow", ("flat_async", "flat_hw", "flash2", "flash3")),
    ),
}
"""Of chips, beside dies with a cache."""


def mixed(count: int = COUNT) -> Designs:
    """Random designs of dies, NPUs, wafers and tiles, as many of each, as one."""
    spaces = [wide(asked(*LOAD).base), *(Space(asked(*LOAD, *chip).base, knobs) for chip, knobs in KNOBS.items())]
    rng, groups, each = np.random.default_rng(0), list[Any](), count // len(spaces)
    for number, space in enumerate(spaces):
        found = space.stack(space.sample(rng.random((each, len(space.knobs)))))
        groups += [(rows + number * each, design) for rows, design in found.groups]
    return Designs(each * len(spaces), tuple(groups))


def of_all() -> list[tuple[str, str, str]]:
    """Dies, NPUs, wafers and tiles in one call."""
    many, workload = mixed(), asked(*LOAD).workload
    first = cpu(lambda: evaluate(mixed(COUNT // 10), workload))
    seconds = cpu(lambda: evaluate(many, workload))
    rate = f"{len(many) / seconds:,.0f} designs/s"
    what = f"closed form, {len(many):,} designs of dies, NPUs, wafers and tiles in {len(many.groups)} groups"
    return [(what, rate, f"{len(many) / 10 / first:,.0f} of a tenth as many")]


if __name__ == "__main__":
    for line in of_all():
        print(*line, sep=" | ")
