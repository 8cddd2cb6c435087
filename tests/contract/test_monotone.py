"""More bandwidth, cores or local memory never make the best of many mappings slower, in the closed form, on random chips.

CHIPS=50 pytest tests/contract/test_monotone.py draws as many of each kind; the suite four.
"""

import os
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.space.design import Design, stack_designs
from dse.space.fields import leaf_at, replace_leaves
from tests.marks import slow_if
from tests.samples import asked

CHIPS = int(os.environ.get("CHIPS", "4"))
LOAD = ("model=qwen3_4b", "workload.batch=[8]", "workload.prompt=[700]", "workload.output=[40]")


@dataclass(frozen=True)
class Kind:
    """A kind of chip.

    Attributes:
        said: what is asked of it.
        grid: the mappings that are enumerated.
        finer: values beside them where there is more: a share of twice as much is as much as before.
        more: what there can be twice as much of.
    """

    said: tuple[str, ...]
    grid: dict[str, tuple[Any, ...]]
    finer: dict[str, tuple[Any, ...]]
    more: tuple[str, ...]


DIES = (
    {
        "mapping.both.tp": (1, 2, 3, 4, 6, 8, 12, 16, 32),
        "mapping.both.allreduce": ("ring", "bidirectional_ring", "full_mesh", "ktree", "two_level"),
        "mapping.both.prefetch": ("none", "whole", "partial"),
        "mapping.both.prefetch_share": (0.0, 0.5, 1.0),
    },
    {"mapping.both.prefetch_share": (0.25,)},
    (
        "chip.cores",
        "chip.core.matrix",
        "chip.core.vector",
        "chip.l2.size",
        "chip.l2.bandwidth",
        "chip.hbm.bandwidth",
        "chip.hbm.capacity",
        "chip.network.bandwidth",
        "chip.network.ports",
    ),
)

TILES = (
    "chip.hbm.channel_bandwidth",
    "chip.hbm.capacity",
    "chip.tile.sram",
    "chip.tile.vector.lanes",
    "chip.tile.vector.special",
    "chip.noc.word_bytes",
)
"""Of meshes whose tiles all work on one operator, and none of which a mapping leaves idle. So sides are not among these: ways
to memory at the edge grow with them, and a small product is cut more finely than engines are large."""

GROUPS = {
    "mapping.both.tp": (1, 2, 4, 8, 16),
    "mapping.both.pp": (1, 2, 4, 6),
    "mapping.both.partition": ("input_only", "mn", "k", "mn_k"),
    "mapping.both.placement": ("linear_seq", "linear_interleave", "ring", "mesh"),
}
"""Of pipelines of groups of cores."""

REGIONS = {
    "mapping.both.rows": (120, 240, 360, 480, 600),
    "mapping.both.regions": (1, 2, 4),
    "mapping.both.gemm": ("meshgemm", "cannon", "summa", "allgather"),
    "mapping.both.gemv": ("ktree", "ring", "pipeline"),
    "mapping.kv_placement": ("shift", "concat"),
}
"""Of regions of a wafer."""

KINDS = {
    "dies": Kind(("chip=npu_dse",), *DIES),
    "dies, experts and latents": Kind(("chip=npu_dse", "model=deepseek_v2_lite"), *DIES),
    "GPUs of several nodes": Kind(("chip=h200", "model=qwen3_30b_a3b"), *DIES[:2], (*DIES[2], "chip.network.nodes.bandwidth")),
    "npus": Kind(
        ("chip=npu64",),
        GROUPS,
        {},
        (*TILES, "chip.mesh.rows"),
    ),
    "npus with a cache": Kind(
        ("chip=npu64", "+part@chip.l2=l2_256mb"),
        GROUPS,
        {},
        ("chip.l2.size", "chip.l2.bandwidth", "chip.hbm.channel_bandwidth", "chip.hbm.capacity", "chip.tile.sram"),
    ),
    "wafers": Kind(
        ("chip=wse2", "workload.batch=[1]"),
        REGIONS,
        {},
        ("chip.core.sram", "chip.noc.word_bytes", "chip.noc.routing_paths", "chip.mesh.cols", "chip.mesh.rows"),
    ),
    "wafers in a chain": Kind(
        ("chip=wse2", "+part@chip=wafers_ethernet", "chip.chain.chips=3", "chip.chain.bandwidth='2 GB/s'"),
        REGIONS,
        {},
        ("chip.core.sram", "chip.noc.word_bytes", "chip.noc.routing_paths", "chip.chain.bandwidth"),
    ),
    "wafers with memory at their edge": Kind(
        ("chip=wse2_hbm", "workload.batch=[1]", "chip.core.sram='16 KiB'"),
        {
            "mapping.both.rows": (240, 300, 360, 480, 600, 700),
            "mapping.both.regions": (1, 2, 4),
            "mapping.both.gemm": ("meshgemm", "cannon", "summa", "allgather"),
            "mapping.both.gemv": ("ktree", "ring", "pipeline"),
        },
        {},
        ("chip.core.sram", "chip.hbm.channel_bandwidth", "chip.hbm.capacity", "chip.noc.word_bytes", "chip.noc.routing_paths"),
    ),
    "tiles": Kind(
        ("chip=tile_gh200", "mapping=flat"),
        {
            "mapping.both.attention.dataflow": ("flat_async", "flat_hw", "flat_tree", "flat_rows", "flash3"),
            "mapping.both.attention.rows": (0, 4, 8, 16),
            "mapping.both.attention.cols": (0, 4, 8, 16),
            "mapping.both.gemm.rows": (0, 1, 2),
        },
        {},
        TILES,
    ),
    "boxes of GPUs": Kind(
        ("chip=h200", "+part@chip=node_nvlink4", "model=deepseek_v2_lite", "workload.batch=[64]", "mapping.both.ep=8"),
        {
            "mapping.both.ep": (1, 2, 4, 8),
            "mapping.both.pp": (1, 2, 4, 8),
            "mapping.both.tp": (1, 2, 4, 8),
            "mapping.both.placement": ("linear", "interleave", "blocks", "snake"),
        },
        {},
        (*(address for address in DIES[2] if ".network." not in address), "chip.d2d.bandwidth"),
    ),
    "wafers of dies": Kind(
        ("chip=wafer64", "model=deepseek_v2_lite", "workload.batch=[512]"),
        {
            "mapping.both.pp": (1, 2, 4, 8),
            "mapping.both.ep": (1, 2, 4, 8, 16, 32, 64),
            "mapping.both.tp": (1, 2, 4),
            "mapping.both.placement": ("linear", "snake", "blocks", "interleave"),
        },
        {},
        (*TILES, "chip.d2d.bandwidth"),
    ),
}


def drawn(kind: Kind, seed: int) -> Question:
    """A chip of a kind, of which there is more or less of everything."""
    question, rng = asked(*LOAD, *kind.said), np.random.default_rng([seed, 11])
    changes = {}
    for address in kind.more:
        value = leaf_at(question.base, address)
        whole = isinstance(value, int) or address.endswith(("rows", "cols", "cores", "ports", "routing_paths"))
        times = rng.choice((0.5, 1.0, 2.0)) if whole else 4.0 ** rng.uniform(-1, 1)
        changes[address] = max(float(value * times), 1.0)
    if "chip.l2.bandwidth" in changes:  # nobody builds a cache that is slower than the memory behind it
        behind = next(value for address, value in changes.items() if address.startswith("chip.hbm.") and "bandwidth" in address)
        changes["chip.l2.bandwidth"] = max(changes["chip.l2.bandwidth"], behind)
    # more of everything is more silicon than can be made or cooled, which is another question
    changes |= {"chip.die.reticle": 1e9, "chip.die.max_power_density": 1e9}
    if question.base.chip.dram is not None:
        changes["chip.dram.edge_length"] = 0.0
    return Question(replace_leaves(question.base, changes), question.workload, question.space, question.sources)


def mappings(kind: Kind, base: Design, finer: bool) -> list[Design]:
    """A chip with each mapping of the grid, or of the finer one."""
    grid = {address: (*values, *(kind.finer.get(address, ()) if finer else ())) for address, values in kind.grid.items()}
    mappings = []
    for values in product(*grid.values()):
        changes: dict[str, Any] = {}
        for address, value in zip(grid, values, strict=True):
            both = [address.replace(".both.", f".{phase}.") for phase in ("prefill", "decode")]
            changes |= dict.fromkeys(both if ".both." in address else [address], value)
        mappings.append(replace_leaves(base, changes))
    return mappings


def least(kind: Kind, question: Question, base: Design, *, finer: bool) -> dict[str, float]:
    """Of each metric, the least of all mappings that fit."""
    evaluation = evaluate(stack_designs(mappings(kind, base, finer)), question.workload)
    fits = evaluation.limit < 0
    return {name: float(evaluation.columns[name][fits].min()) if fits.any() else np.inf for name in ("ttft", "tpot", "latency")}


@slow_if(lambda name: name not in ("dies", "wafers in a chain"))
@pytest.mark.parametrize("name", KINDS)
def test_more_of_anything_never_makes_the_best_mapping_slower(name: str) -> None:
    kind, answered = KINDS[name], 0
    for seed in range(CHIPS):
        question = drawn(kind, seed)
        assert len(mappings(kind, question.base, finer=False)) >= 200
        before = least(kind, question, question.base, finer=False)
        answered += bool(np.isfinite(before["latency"]))
        for address in kind.more:
            after = least(
                kind, question, replace_leaves(question.base, {address: leaf_at(question.base, address) * 2}), finer=True
            )
            worse = {metric: value / before[metric] for metric, value in after.items() if value > before[metric] * (1 + 1e-9)}
            assert not worse, (seed, address, worse)
    assert answered >= CHIPS // 2
