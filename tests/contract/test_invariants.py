"""Ten thousand random designs from every shipped space: finite, ordered, never above a peak, and sums that add up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.evaluators import METRICS, evaluate, explain
from dse.space.design import Design, Designs
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.knobs import Space
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.parameter_counts import active_parameter_count
from dse.space.workload import Workload
from tests.marks import slow_if
from tests.samples import asked, wide

SPACES = sorted(
    path.stem
    for path in (Path(__file__).resolve().parents[2] / "conf/space").glob("*.yaml")
    if path.stem not in ("empty", "hbm_patterns", "tile_attention")
    and not path.stem.startswith(("serving", "best", "capacity"))
)
"""Of models and products; those of memories are in tests/evaluators/test_stream.py, of attention in tests/agreement;
designs that serve are below, and those that
`dse compare` and `dse capacity` look at in tests/dse/test_compare.py and tests/serving."""


def drawn(name: str, count: int) -> tuple[Designs, Workload]:
    """Random designs of a space, and what is asked of them."""
    chips = {
        "wafer": ("chip=wse2", "workload.batch=[1,4]"),
        "npu": ("chip=npu64", "model=qwen3_4b"),
        "tile": ("chip=tile_gh200", "mapping=flat"),
    }
    count = count // 10 if name == "tile_model" else count  # each looks for the slices of ten products
    chip: tuple[str, ...] = chips.get(name.split("_")[0], ()) if name != "npu_cluster" else ()
    if name == "npu_prefetch":
        chip = (*chip, "mapping=npu_prefetch")
    if name.startswith("product"):
        chip = ("chip=wse2", f"workload={'gemm' if name == 'product_gemm' else 'gemv'}")
    question = asked(*chip, f"space={name}") if name != "wide" else asked()
    space: Space = question.space if name != "wide" else wide(question.base)
    columns = space.sample(np.random.default_rng(1).random((count, len(space.knobs))))
    return space.stack(columns), question.workload


@slow_if(lambda name: name in ("npu_memory", "npu_prefetch", "tile_model", "wafer_autotune", "wafer_sides", "wide"))
@pytest.mark.sampled
@pytest.mark.parametrize("name", [*SPACES, "wide"])
def test_random_designs_are_answered(name: str) -> None:
    designs, workload = drawn(name, 10_000)
    outcomes = evaluate(designs, workload)
    metrics = [metric for metric in METRICS if not np.isnan(outcomes.columns[metric]).all()]
    phases = {"throughput", "ttft", "tpot"} if not name.startswith("product") else {"cycles", "compute_share", "cores"}
    assert {"latency", "system_mm2", *phases} <= set(metrics)
    for metric in metrics:
        assert np.isfinite(outcomes.columns[metric]).all(), metric
        if metric not in ("relayout_time", "kv_capacity", "hbm_used"):  # nothing to move, no room, or room for everything
            assert (outcomes.columns[metric] > 0).all(), metric
    columns = outcomes.columns
    if name.startswith("product"):
        assert (columns["mfu"] <= columns["compute_share"] + 1e-12).all()
        assert (columns["compute_share"] <= 1).all()
    else:
        moved = np.nan_to_num(columns["relayout_time"])
        assert np.allclose(columns["latency"], columns["ttft"] + moved + columns["tpot"] * 2730)  # 2731 tokens
    assert (outcomes.excess[~outcomes.feasible] > 0).all()
    assert (outcomes.columns["system_mm2"] >= outcomes.columns["die_mm2"]).all()


@slow_if(lambda name: name in ("tile_model", "wafer_autotune", "wafer_sides", "wide"))
@pytest.mark.sampled
@pytest.mark.parametrize("name", [*(name for name in SPACES if not name.startswith("product")), "wide"])
def test_no_engine_and_no_memory_is_used_above_its_peak(name: str) -> None:
    """What the layers' weights alone ask of engines and HBM, counted from the model's dimensions; of designs that fit."""
    designs, workload = drawn(name, 10_000)
    outcomes = evaluate(designs, workload, cases=True)
    uses = 0
    for rows, design in designs.groups:
        fits = outcomes.feasible[rows]
        for place, case in enumerate(workload.cases):
            model = case.model
            weights = active_parameter_count(model) - 2 * model.vocab * model.hidden
            for phase, tokens, metric in (("prefill", case.prompt_tokens, "ttft"), ("decode", case.batch, "tpot")):
                seconds = outcomes.cases[metric][place][rows]
                for need, rate in peaks(design, phase, weights, tokens):
                    used = np.broadcast_to(need / rate / seconds, rows.shape)[fits]
                    assert (used <= 1).all(), (phase, case.label, used.max())
                    uses += len(used)
    assert uses


def peaks(design: Design, phase: str, weights: float, tokens: float) -> list[tuple[float, Any]]:
    """What must be done, and how fast all devices together could: operations, and bytes of weights once."""
    chip, plan = design.chip, getattr(design.mapping, phase)
    if chip.mesh and chip.core:
        return [(weights * tokens, chip.mesh.rows * chip.mesh.cols * chip.clock / chip.core.mac)]
    if chip.tile:
        engine = np.maximum(chip.tile.matrix.rows * chip.tile.matrix.cols, chip.tile.vector.lanes)
        return [(weights * tokens, chip.mesh.rows * chip.mesh.cols * chip.clock * engine)]
    nbytes = weights * BYTES_BY_FORMAT[design.mapping.precision.weights]
    return [(2 * weights * tokens, plan.tp * chip.cores * chip.core.matrix), (nbytes, plan.tp * chip.hbm.bandwidth)]


@slow_if(lambda name: "prefetch" in name or "l2" in name or name in ("devices", "npu_cluster", "wafer_autotune"))
@pytest.mark.sampled
@pytest.mark.parametrize("name", [*SPACES, "wide"])
def test_the_operators_of_a_design_add_up_to_its_time(name: str) -> None:
    designs, workload = drawn(name, 60)
    latency = evaluate(designs, workload, cases=True).cases["latency"][0]
    for rows, group in designs.groups:
        for place, row in enumerate(rows):
            design = replace_leaves(
                group, {a: float(np.ravel(v)[place]) for a, v, _ in iterate_leaves(group) if isinstance(v, np.ndarray)}
            )
            parts = explain(design, workload.cases[0], decode_context=workload.decode_context)
            assert parts.seconds == pytest.approx(latency[row], rel=1e-9)
            assert sum(row.seconds for row in parts.rows) == pytest.approx(latency[row], rel=1e-9)
            for found_row in parts.rows:
                assert sum(found_row.parts.values()) == pytest.approx(found_row.seconds, rel=1e-6, abs=1e-12)


@slow_if(lambda chip: chip == "npu64")
@pytest.mark.parametrize(("chip", "model"), [("npu64", "qwen3_4b"), ("npu256", "qwen3_30b_a3b")])
def test_random_designs_that_serve_are_answered(chip: str, model: str) -> None:
    question = asked(
        f"chip={chip}", f"model={model}", "workload=serving", "space=serving_npu", "workload.requests=12", "workload.output=20"
    )
    columns = question.space.sample(np.random.default_rng(1).random((20, len(question.space.knobs))))
    outcomes = evaluate(question.space.stack(columns), question.workload)
    for metric in (
        "ttft",
        "tbt_p99",
        "tpot",
        "latency",
        "throughput",
        "energy_per_token",
        "system_mm2",
        "iteration_time_error",
    ):
        assert (outcomes.columns[metric][outcomes.feasible] > 0).all(), metric
        assert np.isfinite(outcomes.columns[metric][outcomes.feasible]).all(), metric
        assert np.isnan(outcomes.columns[metric][~outcomes.feasible]).all() or metric == "system_mm2", metric
    assert 0 < outcomes.feasible.sum() < len(outcomes.feasible)
    found_columns = {name: column[outcomes.feasible] for name, column in outcomes.columns.items()}
    assert (found_columns["latency"] >= found_columns["ttft"]).all()
    assert (found_columns["tbt_p50"] <= found_columns["tbt_p99"]).all()
    for share in ("kv_spilled_share", "prefill_busy_share", "decode_busy_share", "kv_utilisation_peak"):
        assert (found_columns[share] <= 1 + 1e-9).all(), share
    assert (outcomes.excess[~outcomes.feasible] > 0).all()
