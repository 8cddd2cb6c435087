"""How fast engines, products over groups and models on a mesh of tiles are priced.

``python -m tests.speed.tiles layers`` plays one layer of each kind alone.
"""

import sys
from dataclasses import replace

import numpy as np

from dse.evaluators import evaluate
from dse.evaluators.cost_models import simulated_attention as events_attention
from dse.evaluators.cost_models.analytical_attention import AttentionJob
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling
from dse.evaluators.machine.compute_engines import tile_engines
from dse.space.design import Designs, stack_designs
from dse.space.fields import replace_leaves
from dse.space.layers import layers
from tests.samples import asked
from tests.speed.clock import cpu

DESIGNS, LARGE = 100_000, 49_152


def attended() -> list[tuple[str, str, str]]:
    """Attention by itself: by formulas many at a time, and the largest layer of a study by each dataflow played."""
    rng = np.random.default_rng(0)
    question = asked("chip=tile32", "workload=attention", "mapping.queries=128", "mapping.keys=128")
    knobs = {"rows": (1, 4, 8, 16, 32), "cols": (4, 8, 16, 32), "queries": (16, 32, 64, 128), "keys": (16, 32, 64, 128)}
    rates = rng.uniform(3e10, 1e11, 8192)
    sides = [{f"mapping.{name}": float(rng.choice(knob)) for name, knob in knobs.items()} for _ in rates]
    designs = stack_designs(
        [
            replace_leaves(question.base, {"chip.hbm.channel_bandwidth": float(rate), **side})
            for rate, side in zip(rates, sides, strict=True)
        ]
    )
    evaluate(designs, question.workload)
    closed = cpu(lambda: evaluate(designs, question.workload))
    open_ = asked("chip=tile32", "workload=attention", "mapping=attention")
    # memory is in no structure, a clock is: chips of another one have structures that nobody has met
    clocks = [
        stack_designs([replace_leaves(open_.base, changed(rng) | {"chip.clock": clock}) for _ in rates]) for clock in (9e8, 1e9)
    ]
    evaluate(clocks[0], open_.workload)
    new, again = (cpu(lambda: evaluate(clocks[1], open_.workload)) for _ in range(2))
    single_designs = stack_designs([question.base])
    single = cpu(lambda: evaluate(single_designs, question.workload), 20)
    chip = question.base.chip
    played = {}
    for name, dataflow in ATTENTION.items():
        tiling = AttentionTiling(32, 32, 128, 128) if dataflow.grouped else AttentionTiling(1, 1, 128, 128)
        for batch in (1, 2):  # the first one compiles
            job = AttentionJob(dataflow, AttentionShape(batch, 32, 32, 4096, 4096, 128, 128), tiling, chip)
            played[name] = cpu(lambda job=job: events_attention.EVENTS.job_cost(job))  # type: ignore[misc]
    slowest = max(played, key=lambda name: played[name])
    median = sorted(played.values())[len(played) // 2]
    return [
        (
            "closed form, attention on tiles, 8,192 groups, slices and bandwidths at a time",
            f"{len(rates) / closed:,.0f} designs/s",
            f"{1 / single:,.0f} one at a time",
        ),
        (
            "closed form, the same on 8,192 new chips of 81 structures, groups and slices chosen",
            f"{len(rates) / new:,.0f} designs/s",
            f"{len(rates) / again:,.0f} the same chips again",
        ),
        (
            f"events, attention of 64 heads and 4,096 tokens on 32 x 32 tiles, slowest ({slowest}) of six dataflows",
            f"{played[slowest]:.2f} s",
            f"{median:.2f} s median",
        ),
    ]


MEMORY = ("chip.tile.sram", "chip.hbm.channel_bandwidth")
"""Leaves of `changed` that structures have nothing of."""


def changed(rng: np.random.Generator) -> dict[str, float]:
    """Leaves of a chip of tiles, none like another's."""
    sides = {f"chip.mesh.{side}": float(rng.choice((8, 16, 32))) for side in ("rows", "cols")}
    array = {f"chip.tile.matrix.{side}": float(rng.choice((16, 32, 64))) for side in ("rows", "cols")}
    return {**sides, **array, "chip.tile.sram": rng.uniform(1e5, 8e5), "chip.hbm.channel_bandwidth": rng.uniform(3e10, 1e11)}


def flattened() -> list[tuple[str, str, str]]:
    """Products from memory, and whole models one operator after the other: by formulas on many chips, and played."""
    lines, rng = [], np.random.default_rng(0)
    for what, *overrides in (
        ("a product of 4096 x 4096 x 4096", "workload=gemm", "mapping=summa", "workload.shapes=[4096x4096x4096]"),
        ("Qwen3-8B, prefill and decode", "model=qwen3_8b", "mapping=flat", "workload.batch=[16]"),
    ):
        question = asked("chip=tile_gh200", *overrides)
        chips, warm = (
            stack_designs([replace_leaves(question.base, changed(rng) | {"chip.clock": clock}) for _ in range(1024)])
            for clock in (1e9, 9e8)
        )
        evaluate(stack_designs([question.base]), question.workload, fidelity="events")
        evaluate(warm, question.workload)
        closed = cpu(lambda: evaluate(chips, question.workload))  # noqa: B023
        again = cpu(lambda: evaluate(chips, question.workload))  # noqa: B023
        # memory is in no structure
        memories = [{address: changed(rng)[address] for address in MEMORY} for _ in range(1024)]
        alike = stack_designs([replace_leaves(question.base, memory) for memory in memories])
        evaluate(alike, question.workload)
        same = cpu(lambda: evaluate(alike, question.workload))  # noqa: B023
        other = stack_designs([replace_leaves(question.base, {"chip.hbm.channel_bandwidth": 6e10})])
        single = cpu(lambda: evaluate(other, question.workload))  # noqa: B023
        played = cpu(lambda: evaluate(other, question.workload, fidelity="events"))  # noqa: B023
        lines += [
            (
                f"closed form, {what}, 1,024 new chips of tiles at a time",
                f"{1024 / closed:,.0f} designs/s",
                f"{1 / single:,.0f} one",
            ),
            (
                f"closed form, {what}, the same chips again, and 1,024 of one structure",
                f"{1024 / again:,.0f} and {1024 / same:,.0f} designs/s",
                f"{1 / single:,.0f} one",
            ),
            (f"events, {what}, 32 x 32 tiles, a new chip", f"{played:.2f} s CPU", ""),
        ]
    return lines


def priced() -> list[tuple[str, str, str]]:
    """Products of random sizes on a tile's engine; a model on tiles, by formulas and played."""
    rng = np.random.default_rng(0)
    m, k, n = (rng.integers(1, 4096, DESIGNS).astype(float) for _ in range(3))
    engines = tile_engines(asked("chip=tile32", "workload=collective").base.chip)
    roofline = cpu(lambda: m * k * n / 512 / 965e6)
    engine = cpu(lambda: engines.product(m, k, n, 2))
    question = asked("chip=npu64", "model=qwen3_4b", "workload.batch=[16]", "workload.prompt=1024", "workload.output=256")
    designs = stack_designs(
        [replace_leaves(question.base, {"chip.hbm.channel_bandwidth": float(rate)}) for rate in rng.uniform(3e10, 5e11, 4096)]
    )
    evaluate(designs, question.workload)
    closed = cpu(lambda: evaluate(designs, question.workload))
    rates = {"chip.hbm.channel_bandwidth": rng.uniform(3e10, 5e11, LARGE), "chip.tile.sram": rng.uniform(1e6, 1e8, LARGE)}
    block = Designs(LARGE, ((np.arange(LARGE), replace_leaves(question.base, rates)),))
    evaluate(block, question.workload)
    large = cpu(lambda: evaluate(block, question.workload), 5)
    flop, nbytes = rng.random((2, LARGE))
    roofs = cpu(lambda: [np.maximum(flop * 2.0, nbytes * 3.0) for _ in range(30)], 5)
    single_designs = stack_designs([question.base])
    single = cpu(lambda: evaluate(single_designs, question.workload), 20)
    warm, new = (
        asked(
            "chip=npu64", "model=qwen3_4b", "workload.batch=[16]", f"workload.prompt={tokens}", "workload.output=200"
        ).workload
        for tokens in (512, 1000)
    )
    evaluate(single_designs, warm, fidelity="events")
    events = cpu(lambda: evaluate(single_designs, new, fidelity="events"))
    return [
        (
            "a tile's engine, 100,000 products at a time",
            f"{DESIGNS / engine:,.0f} /s",
            f"{DESIGNS / roofline:,.0f} rooflines/s",
        ),
        (
            "closed form, Qwen3-4B on tiles, 4,096 at a time",
            f"{4096 / closed:,.0f} designs/s",
            f"{1 / single:,.0f} one at a time",
        ),
        (
            f"closed form, Qwen3-4B on tiles, {LARGE:,} of one structure at a time",
            f"{LARGE / large:,.0f} designs/s",
            f"{LARGE / roofs:,.0f} rooflines/s",
        ),
        ("events, Qwen3-4B on tiles, new prompts", f"{1 / events:,.0f} designs/s", f"{1 / single:,.0f} closed"),
    ]


LAYERS = {
    "grouped heads": ("llama3_8b", 0), "experts": ("qwen3_30b_a3b", 0), "window and sinks": ("gpt_oss_120b", 0),
    "window and soft cap": ("gemma2_9b", 0), "chunks": ("llama4_scout", 0), "latents": ("deepseek_v3", 0),
    "latents and indexer": ("deepseek_v32", 0), "blocks picked": ("minimax_m3", 1), "Gated DeltaNet": ("qwen3_next_80b_a3b", 0),
    "Mamba-2": ("nemotron_h_56b", 0), "entries picked": ("deepseek_v4_flash", 1), "entries": ("deepseek_v4_flash", 2),
}  # fmt: skip
"""A model that has each kind of layers, and which of its kinds it is."""


def layered() -> list[tuple[str, str, str]]:
    """One layer of each kind with embedding and head, on 32 x 32 tiles: a prompt of 4,096 tokens and decode behind it, played.

    A shorter prompt has compiled what is compiled; nothing of the longer one is known.
    """
    lines = []
    for name, (preset, kind) in LAYERS.items():
        question = asked("chip=tile_gh200", "mapping=flat", f"model={preset}", "workload.batch=[1]")
        (case,) = question.workload.cases
        model, designs = replace(layers(case.model).mixings[kind].of, layers=1), stack_designs([question.base])  # type: ignore[union-attr]
        short, new = (
            replace(question.workload, cases=(replace(case, model=model, requests=((1, prompt, 64),)),))  # type: ignore[arg-type]
            for prompt in (1024, 4096)
        )
        evaluate(designs, short, fidelity="events")
        played = cpu(lambda: evaluate(designs, new, fidelity="events"))  # noqa: B023
        closed = cpu(lambda: evaluate(designs, new))  # noqa: B023
        lines.append((f"events, a layer of {name} ({preset}), 32 x 32 tiles", f"{played:.2f} s CPU", f"{closed:.3f} s closed"))
    return lines


if __name__ == "__main__":
    of = sys.argv[1:] == ["layers"]
    for line in layered() if of else (*attended(), *flattened(), *priced()):
        print(*line, sep=" | ")
