"""How fast models on many dies are priced: a wafer's grid by the closed form, and one step by events."""

from time import process_time

import numpy as np

from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

BATCHES = (64, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 49152)
WORDS = ("chip=wafer64", "model=deepseek_v3", "workload.prompt=4096", "workload.output=2", "workload.expert_load=even")
RATES = ",".join(f"{rate:.0f} GB/s" for rate in np.geomspace(50, 4000, 16))
KNOBS = (
    "+space.mapping.both.pp=choice(1,2,4,8,16,32,64)",
    "+space.mapping.both.ep=choice(1,2,4,8,16,32,64)",
    "+space.mapping.both.placement=choice(linear,snake,blocks,interleave)",
    "+space.chip.d2d.topology=choice(mesh,torus,ring,full,switch)",
    f"+space.chip.d2d.bandwidth=choice({RATES})",
    "+space.chip.d2d.latency=choice(10 ns,100 ns,256 ns,1 us)",
)


def priced() -> list[tuple[str, str, str]]:
    """Of a grid of 7 splits of 64 dies, 4 placements, 5 topologies, 16 bandwidths and 4 latencies, at ten batches."""
    _grid(96)  # imports, and what no batch is new to
    begun, count = process_time(), 0
    for batch in BATCHES:
        count += _grid(batch)
    taken = process_time() - begun
    step = ("mapping.both.ep=32", "workload.batch=[16384]")
    question = asked(*WORDS, *step)
    evaluate(
        stack_designs([asked(*WORDS, *step, "chip.clock=1.8 GHz").base]), question.workload, fidelity="events"
    )  # compiled loops
    begun = process_time()
    evaluate(stack_designs([question.base]), question.workload, fidelity="events")
    played = process_time() - begun
    alone, many = (_random(*words) for words in (ALONE, (*WORDS, *step)))
    return [
        (
            "closed form, the same on 1,024 random dies, of the time that one such die and its share of requests takes",
            f"{many / alone:.2f}",
            "",
        ),
        ("closed form, DeepSeek-V3 on a wafer of 64 dies, a grid of 89,600 designs", f"{count / taken:,.0f} designs/s", ""),
        ("events, the same on one new chip: prefill and decode, kernels and exchanges", f"{played:.1f} s CPU", ""),
    ]


ALONE = (
    "chip=tile_gh200", "chip.clock=1.9 GHz", *WORDS[1:], "workload.batch=[256]", "mapping.precision.weights=fp8",
    "mapping.precision.activations=fp8", "mapping.precision.kv=fp8",
)  # fmt: skip
"""One die of the wafer by itself, with the requests that it has there."""


def _random(*words: str) -> float:
    """CPU seconds for 1,024 random dies: the median of three times, of new ones each. [s]"""
    question, rng, taken = asked(*words), np.random.default_rng(0), []
    usual = question.base.chip.hbm.channel_bandwidth, question.base.chip.clock
    for count in (1, 1024, 1024, 1024):  # the first one loads what is loaded
        rates = zip(rng.uniform(0.5, 2.0, count) * usual[0], rng.uniform(0.6, 1.2, count) * usual[1], strict=True)
        designs = [replace_leaves(question.base, {"chip.hbm.channel_bandwidth": a, "chip.clock": b}) for a, b in rates]
        begun = process_time()
        evaluate(stack_designs(designs), question.workload)
        taken.append(process_time() - begun)
    return float(np.median(taken[1:]))


def _grid(batch: int) -> int:
    question = asked(*WORDS, f"workload.batch=[{batch}]", *KNOBS)
    columns = question.space.grid(0, question.space.combinations or 0)
    kept = columns["mapping.both.pp"] * columns["mapping.both.ep"] == 64
    evaluate(question.space.stack({name: column[kept] for name, column in columns.items()}), question.workload)
    return int(kept.sum())
