"""A request that meets no other takes what a batch of one takes, on every chip that serves, wherever prices jump."""

from typing import Any

import numpy as np
import pytest

from dse.evaluators.accounting import regions
from dse.evaluators.accounting.serving_instances import regions as served_regions
from tests.samples import load_of, metrics

EXACT = 1e-9

SLOTS = ("mapping.serving.max_batch_size=1", "mapping.serving.max_batched_tokens=4096")

CHIPS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]] = {
    "h200": (SLOTS, (("mapping.both.tp=1",), ("mapping.both.tp=2",), ("mapping.both.tp=8",))),
    "h800_ep": (
        ("mapping.both.dp=1", *SLOTS),
        (
            ("mapping.both.ep=1", "mapping.both.pp=2", "mapping.both.tp=4"),
            ("mapping.both.ep=1", "mapping.both.pp=1", "mapping.both.tp=8"),
        ),
    ),
    "npu64": (
        ("mapping.serving.residency=by_phase", "mapping.serving.block_size=1", "+mapping.both.allreduce.algorithm=ring"),
        (
            ("mapping.both.tp=4", "mapping.both.pp=4"),
            ("mapping.both.tp=16", "mapping.both.pp=4"),
            ("mapping.both.tp=8", "mapping.both.pp=2"),
        ),
    ),
    "tile32": (SLOTS, ((), ("chip.tile.matrix.rows=16",), ("chip.mesh.rows=16",))),
    "wafer64": (
        ("mapping.both.dp=1", "mapping.both.ep=1", *SLOTS),
        (("mapping.both.pp=1", "mapping.both.tp=1"), ("mapping.both.pp=2", "mapping.both.tp=4")),
    ),
    "wse2": (
        SLOTS,
        (
            ("mapping.prefill.rows=360",),
            ("mapping.prefill.rows=480", "mapping.decode.rows=480"),
            ("mapping.prefill.rows=360", "+part@chip=wafers_ethernet", "chip.chain.chips=3"),
        ),
    ),
}
"""By chip, what makes the two ways to ask alike, and designs.

A batch has no blocks of caches, and its local memory is by phase. Dies whose copies of attention have different numbers of
requests are left out: a batch counts each copy as the fullest one, a served iteration counts each as what it has.
"""

WAYS = {"tile32": (("mapping=flat",), ("mapping=flat_serving",))}
"""Mappings of a batch and of a load, where they are not the chip's own."""

LINEAR = {"h200", "h800_ep", "npu64", "wse2"}
"""Chips on which attention takes time in proportion to its context: the step at the mean context is the mean step. Tiles work
on whole slices of keys, so that many steps are only near it.
"""

EXACT_STEPS = {"tile32": 1, "wafer64": 0}
"""Decode steps up to which the others are exact: times of dies of tiles are tables, linear between contexts."""

NEAR = 5e-3


def compared(chip: str, seed: int, steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of a request served alone and of a batch of one, of lengths at no point of a table of even ratios."""
    rng = np.random.default_rng([seed, *map(ord, chip)])
    common, designs = CHIPS[chip]
    words = [f"chip={chip}", f"model={rng.choice(['qwen3_1b7', 'qwen3_4b'])}", *designs[seed % len(designs)]]
    words += [f"workload.prompt={int(rng.integers(33, 500)) | 1}", f"workload.output={1 + steps}"]
    of_batch, of_load = WAYS.get(chip, ((), ()))
    both = [word for word in common if not word.startswith("mapping.serving.")]
    load = ("workload=serving", "workload.arrivals=offline", "workload.requests=1", "mapping.serving.policy=prefill_first")
    batch_words = [word.removeprefix("+") for word in both] if chip == "npu64" else both
    return metrics(*words, *load, *common, *of_load), metrics(*words, "workload.batch=[1]", *batch_words, *of_batch)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chip", CHIPS)
def test_a_request_alone_takes_what_a_batch_of_one_takes(chip: str, seed: int) -> None:
    """Without decode steps, with one, and with several."""
    for steps in (0, 1, 5 + 9 * seed):
        alone, batch = compared(chip, seed, steps)
        assert alone["ttft"] == pytest.approx(batch["ttft"], rel=EXACT)
        within = EXACT if chip in LINEAR or steps <= EXACT_STEPS[chip] else NEAR
        assert alone["latency"] == pytest.approx(batch["latency"], rel=within)
        if steps:
            assert alone["tpot"] == pytest.approx(batch["tpot"], rel=within)
        assert np.isnan(batch["tpot"]) == np.isnan(batch["decode_throughput"]) == (steps == 0)


def moves(*overrides: str) -> list[float]:
    """Times of the ways to the layout of prefill and back, of a prompt alone. [s]"""
    design, load = load_of(*overrides)
    prompt = np.array([float(load.requests.prompt.max())])
    job: Any = served_regions._prompt_job(load, prompt, (prompt + 1) / 2)
    ways = served_regions._transition_jobs(load, job)
    return [float(np.max(regions.layout_transition(design, way, "analytical").seconds)) for way in ways]


@pytest.mark.parametrize("rows", [(660, 360), (480, 600)])
def test_a_wafer_that_serves_comes_from_decode_and_a_batch_begins_in_prefill(rows: tuple[int, int]) -> None:
    """Both ways are in the TTFT of a request; a batch changes once, after its first token."""
    words = ("chip=wse2", "model=qwen3_1b7", "workload.prompt=300", "workload.output=20")
    words += (f"mapping.prefill.rows={rows[0]}", f"mapping.decode.rows={rows[1]}")
    load = ("workload=serving", "workload.arrivals=offline", "workload.requests=1", "mapping.serving.policy=prefill_first")
    alone, batch, (there, back) = metrics(*words, *load), metrics(*words, "workload.batch=[1]"), moves(*words, *load)
    assert min(there, back) > 0
    assert batch["relayout_time"] == pytest.approx(back, rel=EXACT)
    assert batch["latency"] == pytest.approx(batch["ttft"] + back + 19 * batch["tpot"], rel=EXACT)
    assert alone["ttft"] == pytest.approx(batch["ttft"] + there + back, rel=EXACT)
    assert alone["latency"] == pytest.approx(batch["latency"] + there, rel=EXACT)
