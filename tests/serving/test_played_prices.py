"""Prices of iterations as a loop plays them, by its tables and as they are: what a table is off by where it is looked up."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances import IterationCounts
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.serving.iteration_time import axis_points, dealt_request_counts, geometric_axes, prefix_axis, tabulate_time
from dse.evaluators.serving.iteration_time_lookup import table_at_composition
from dse.evaluators.workloads.serving import deploy_load, instance_layout
from dse.space.array_math import Array
from dse.space.design import Design, stack_designs
from dse.space.lazy_metrics import compute_all
from dse.space.workload import ServingLoad, Workload
from tests.samples import load_of

CHIPS = {
    "h200": ((), ("llama3_8b", "qwen3_30b_a3b", "gemma3_12b")),
    "tile_gh200": (("mapping=flat_serving",), ("llama3_8b", "qwen3_8b")),
    "npu_dse": ((), ("qwen3_4b", "qwen3_30b_a3b")),
    "h800_ep": (("chip.dies.rows=1", "mapping.both.ep=8"), ("deepseek_v2_lite", "qwen3_30b_a3b")),
    "cm384": ((), ("deepseek_v3",)),
}
"""By chip, what its mapping is, and models that it serves."""

EACH = 6
"""Deployments of a chip."""

LOOKED_AT = 100
"""Iterations of a run."""


class Off(NamedTuple):
    """How far a table is off, relative to what iterations take.

    Attributes:
        whole: all iterations together.
        each: the mean of iterations, by the time that they take, either way.
    """

    whole: float
    each: float


def _drawn(chip: str, rng: np.random.Generator) -> tuple[Design, ServingLoad]:
    """A random deployment: requests of one length, all at once or at a rate, by any policy."""
    words, models = CHIPS[chip]
    prompt, output = (int(10 ** rng.uniform(*ends)) for ends in ((1.3, 4.0), (0.5, 2.2)))
    batch = () if chip == "npu_dse" else (f"mapping.serving.max_batch_size={rng.choice([8, 32, 128])}",)
    arrivals = "workload.arrivals=offline" if rng.random() < 0.6 else f"workload.rate={10 ** rng.uniform(-1, 2):.3g} Hz"
    return load_of(
        f"chip={chip}", *words, f"model={rng.choice(models)}", "workload=serving", f"workload.prompt={prompt}", *batch,
        f"workload.output={output}", f"workload.requests={rng.integers(20, 150)}", arrivals,
        f"mapping.serving.policy={rng.choice(['chunked_prefill', 'orca', 'prefill_first'])}",
    )  # fmt: skip


def _off(chip: str, rng: np.random.Generator) -> Off:
    """Of a random deployment."""
    design, load = _drawn(chip, rng)
    deployment, (table,) = deploy_load(design, load, "analytical")
    run = served.run_load(lambda requests: deployment, load, 4000)
    assert run is not None
    log = run.log[np.sort(rng.permutation(len(run.log))[:LOOKED_AT])]
    made_of = _compositions(log)
    taken: Array = np.ravel(np.asarray(table.pricing(*made_of), float))
    tables = np.array([table_at_composition(table.price, *composition) for composition in zip(*made_of, strict=True)])
    return Off(float(tables.sum() / taken.sum() - 1), float(np.abs(tables - taken).sum() / taken.sum()))


def _compositions(log: Array) -> tuple[Array, ...]:
    """Counts of iterations that a run has kept."""
    tokens, requests = log["prompt"].astype(float), log["requests"].astype(float)
    attended, read = log["pairs"] / np.maximum(tokens, 1), log["positions"] / np.maximum(requests, 1)
    return tokens, attended, requests, read, np.zeros(len(log))


@pytest.mark.parametrize("chip", CHIPS)
def test_iterations_that_are_played_take_what_they_take_as_they_are(chip: str) -> None:
    rng = np.random.default_rng(15)
    errors = [_off(chip, rng) for _ in range(EACH)]
    assert max(abs(error.whole) for error in errors) < 0.03
    assert float(np.median([error.each for error in errors])) < 0.005


USES = {
    "mi300x": ("model=qwen3_30b_a3b", "mapping.serving.policy=prefill_first"),
    "h800_ep": (*CHIPS["h800_ep"][0], "model=deepseek_v2_lite", "mapping.serving.policy=orca"),
    "wafer64": (
        "mapping=flat_dies_serving",
        "model=deepseek_v3",
        "mapping.serving.policy=orca",
        "mapping.serving.max_batch_size=8",
    ),
}
"""By chip, loads of which what the mean iteration uses is far from the mean of what iterations use."""


@pytest.mark.parametrize("chip", USES)
def test_what_a_run_uses_is_what_its_iterations_use_one_by_one(chip: str, tmp_path: Path) -> None:
    """Of prompts that differ: weights are read once an iteration, activations have room up to some tokens, experts fill up."""
    rng = np.random.default_rng(7)
    prompts, outputs = np.clip(rng.lognormal(5.5, 1.5, 60), 1, 7000).astype(int), rng.integers(2, 40, 60)
    rows = [f"{prompt},{output}\n" for prompt, output in zip(prompts, outputs, strict=True)]
    trace = tmp_path / "lengths.csv"
    trace.write_text("".join(["prompt,output\n", *rows]))
    words = f"workload.trace={trace}", "workload.requests=60", "workload.arrivals=offline"
    design, load = load_of(f"chip={chip}", "workload=serving", *USES[chip], *words)
    deployment, _ = deploy_load(design, load, "analytical")
    run = served.run_load(lambda requests: deployment, load, 1 << 14)
    assert run is not None
    assert run.total["iterations"] == len(run.log)
    each: IterationCounts = [
        [(1.0, composition) for composition in zip(*(column.tolist() for column in _compositions(run.log)), strict=True)]
    ]
    alone = compute_all(
        instance_layout(design).usage_metrics(design, load, each, served.run_duration(run), "analytical", float)
    )
    columns = evaluate(stack_designs([design]), Workload("serving", (load,))).require_compatible().columns
    for name in ("energy", "hbm_utilisation", "mfu"):
        assert float(np.squeeze(columns[name])) == pytest.approx(float(np.squeeze(alone[name])), rel=0.03), name


@pytest.mark.parametrize("copies", [2, 3, 8, 20])
def test_a_request_more_than_copies_have_turns_for_gives_one_of_them_another(copies: int) -> None:
    """Prompts and decodes that are dealt to copies of attention take as long as those of the fullest one."""

    def fullest(prompt: Array, context: Array, decodes: Array, read: Array, spilled: Array) -> Array:
        own = np.maximum(2 * context - 1, 1.0)
        prompts = np.ceil(np.rint(prompt / own) / copies)
        return np.asarray(1e-3 + prompts * own + np.ceil(decodes / copies) * read + 0 * spilled)

    table = tabulate_time(fullest, geometric_axes(1 << 16, 1 << 10, 1 << 8, 1 << 10, copies=copies))
    for turn in range(1, 8):
        for more in (0, 1, copies // 2):
            number = turn * copies + more
            assert table_at_composition(table, 512.0 * number, 256.5, 0.0, 0.0, 0.0) == pytest.approx(
                512 * -(-number // copies), rel=0.01 if more < 2 else 0.04
            )
            assert table_at_composition(table, 0.0, 0.0, float(number), 512.0, 0.0) == pytest.approx(
                512 * -(-number // copies), rel=1e-3
            )


def test_points_of_several_prompts_are_whole_numbers_of_them() -> None:
    for copies in (1, 3, 16):
        several = prefix_axis(100.0, prompts=500, copies=copies)
        numbers = 1 / (1 + several[several < 0])
        assert numbers == pytest.approx(np.rint(numbers))
        assert set(dealt_request_counts(copies, numbers.max())) <= set(np.rint(numbers).tolist()) | {1.0}
        _tokens, context, *_ = axis_points([np.array([0.0, 4096.0]), several, *[np.zeros(1)] * 3])
        own = np.ravel(2 * context[1, several < 0] - 1)
        assert own == pytest.approx(np.maximum(4096 / numbers, 1.0))
