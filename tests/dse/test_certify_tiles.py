"""Boxes of tiles: no design of a box beats its bound, and certified fronts are those of the whole grid."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.metric_expressions import evaluate_with_derived
from dse.evaluators.cost_models import analytical_attention, analytical_rows
from dse.evaluators.kernels.vector.row_kernels import WAVES
from dse.evaluators.machine import compute_engines
from dse.evaluators.machine.compute_engines import (
    least_element_cycles,
    least_systolic_cycles,
    pipelined_element_cycles,
    systolic_cycles,
)
from dse.evaluators.tuning.fastest_candidate import find_fastest_sizes
from dse.execution.certify import Certificate, Certifier, make_box_space
from dse.execution.study import Study, build_study
from dse.search.pareto import front_mask
from dse.space.errors import DesignError
from tests.dse.test_certify import count_violations
from tests.marks import slow_if
from tests.tile_boxes import draws

TILES = (
    "name=tiles",
    "chip=tile_gh200",
    "model=qwen3_1b7",
    "chip.mesh.rows=8",
    "chip.mesh.cols=8",
    "workload.batch=[8]",
    "workload.prompt=[500]",
    "workload.output=[20]",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "search=certify",
)
GRID = (
    "+space.chip.tile.sram='tag(KiB, range(96, 353, 64))'",
    "+space.chip.tile.matrix.rows=range(16, 49, 16)",
    "+space.chip.tile.matrix.cols=range(8, 25, 8)",
    "+space.chip.hbm.channel_bandwidth='tag(GB/s, choice(30, 60, 120))'",
    "+space.mapping.both.attention.dataflow=choice(flat_async, flat_tree)",
)


def study_of(folder: Path, *words: str) -> Study:
    return build_study(compose([*TILES, *words]) | {"run_dir": str(folder)}, folder)


NUMBERS = (
    "+space.chip.tile.sram='tag(KiB, log, interval(64, 1024))'",
    "+space.chip.tile.sram_bandwidth='tag(B/cycle, interval(64, 1024))'",
    "+space.chip.tile.matrix.rows=range(8, 65)",
    "+space.chip.tile.matrix.cols=range(4, 65)",
    "+space.chip.tile.vector.lanes='tag(op/cycle, interval(32, 512))'",
    "+space.chip.noc.word_bytes='tag(B, range(16, 257))'",
    "+space.chip.hbm.channel_bandwidth='tag(GB/s, log, interval(10, 200))'",
    "+objectives.ttft=min",
)
QUESTIONS = {
    "two heads at a time": ("mapping.prefill.attention.dataflow=flat_async",),
    "software collectives": ("mapping.prefill.attention.dataflow=flat_tree", "mapping.decode.attention.dataflow=flat_seq"),
    "shared keys, split keys": (
        "mapping.prefill.attention.dataflow=flat_rows",
        "mapping.decode.attention.dataflow=flash_split",
    ),
    "systolic arrays, few channels": (
        "chip.tile.matrix.dataflow=weight",
        "chip.tile.matrix.reload=tile",
        "chip.hbm.channels=5",
    ),
}


@slow_if(lambda count: count == 10_000)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("count", [40, 10_000])
def test_no_design_of_a_random_box_of_tiles_beats_its_bound(question: str, count: int, tmp_path: Path) -> None:
    better, lost, lead = count_violations(study_of(tmp_path, *NUMBERS, *QUESTIONS[question]), count, seed=count)
    assert (better, lost) == (0, 0)
    assert 0 < lead < 1


@slow_if(lambda count: count == 10_000)
@pytest.mark.parametrize(("count", "width"), [(32, 3.0), (10_000, 3.0)])
def test_bounds_hold_on_random_chips_and_models(count: int, width: float) -> None:
    assert [checked.faults for _, checked in draws(count, count, width) if checked.faults] == []


def test_the_bound_of_one_design_of_tiles_is_near_its_value() -> None:
    """A bound has the fastest of all tilings, of which a design leaves out what is hardly worth its memory."""
    gaps = np.concatenate([checked.gaps for _, checked in draws(24, 3, 1.0)], axis=1)
    assert np.nanmedian(gaps) < 0.005
    assert np.nanmax(gaps) < 0.1


ARRAYS = (
    "+space.chip.tile.sram='tag(KiB, range(64, 513, 16))'",
    "+space.chip.tile.matrix.rows=range(8, 65, 8)",
    "+space.chip.tile.matrix.cols=range(8, 41, 8)",
)
MEMORIES = (
    "workload.prompt=[2000]",
    "workload.batch=[2]",
    "mapping.prefill.attention.dataflow=flat_tree",
    "+space.chip.tile.sram='tag(KiB, range(64, 513))'",
    "+space.chip.hbm.channel_bandwidth='tag(GB/s, range(20, 121))'",
)
FAULTS: dict[str, tuple[Any, str, Any, tuple[str, ...]]] = {
    "padding of the largest array": (
        compute_engines, "least_element_cycles",
        lambda m, k, n, ends, depth, fill: pipelined_element_cycles(m, k, n, ends[0], ends[2], depth, fill),
        (*ARRAYS, *QUESTIONS["two heads at a time"]),
    ),
    "cycles of the largest array": (
        compute_engines, "least_systolic_cycles",
        lambda stays, streams, ends, reload: systolic_cycles(stays, streams, ends[0], ends[2], reload),
        (*ARRAYS, *QUESTIONS["systolic arrays, few channels"]),
    ),
    "chosen tilings": (analytical_attention, "find_least_sizes", find_fastest_sizes, MEMORIES),
    "blocks of the largest memory": (
        analytical_rows, "_least_of_box",
        lambda recipe, *sizes: analytical_rows._least(recipe, *sizes, list(product(recipe.slices, WAVES))),
        MEMORIES,
    ),
}  # fmt: skip
"""What is wrong of a bound: where, the function, what it would be of the fastest corner as a design, and a space."""


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fastest_corner_as_a_design_is_no_bound(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, name, wrong, words = FAULTS[fault]
    monkeypatch.setattr(module, name, wrong)
    assert count_violations(study_of(tmp_path, "+objectives.ttft=min", *words), 300, seed=1)[0] > 0


SIDES = st.integers(1, 200)
ENDS = st.tuples(SIDES, SIDES).map(sorted)


@given(SIDES, SIDES, SIDES, ENDS, ENDS, st.data())
def test_no_array_of_a_box_takes_fewer_cycles(m: int, k: int, n: int, rows: Any, cols: Any, data: st.DataObject) -> None:
    row, col = (data.draw(st.integers(*side)) for side in (rows, cols))
    ends = rows[1], rows[0], cols[1], cols[0]
    depth, fill = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 30))
    assert least_element_cycles(m, k, n, ends, depth, fill) <= pipelined_element_cycles(m, k, n, row, col, depth, fill)
    for reload in ("tile", "hidden"):
        assert least_systolic_cycles((k, n), m, ends, reload) <= systolic_cycles((k, n), m, row, col, reload)
        assert least_systolic_cycles((k, n), m, (row, row, col, col), reload) == systolic_cycles((k, n), m, row, col, reload)
    assert least_element_cycles(m, k, n, (row, row, col, col), depth, fill) == pipelined_element_cycles(
        m, k, n, row, col, depth, fill
    )


def _certify(study: Study) -> Certificate:
    return Certifier(study).run(lambda gap, boxes, open_boxes: None)


@pytest.mark.parametrize("gap", ["0", "2%"])
def test_a_certified_front_of_tiles_is_that_of_the_whole_grid(gap: str, tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, f"search.gap={gap}")
    certificate, space = _certify(study), study.question.space
    assert certificate.is_reached
    columns = space.grid(0, space.combinations)
    outcomes = evaluate_with_derived(space.stack(columns), study.question.workload, {})
    values = np.column_stack([outcomes.columns[name] for name in study.objectives])[outcomes.limit < 0]
    exact = values[front_mask(values, study.directions)]
    members = np.array([[row["metrics"][name] for name in study.objectives] for row in certificate.record["front"]])
    signs = np.array([-1.0 if way == "max" else 1.0 for way in study.directions])
    front = np.log(members) * signs
    worst = max(float((front - design).max(axis=1).min()) for design in np.log(exact) * signs)
    assert worst <= np.log1p(study.search.gap) + 1e-9
    if gap == "0":
        assert len(members) == len(exact)
    else:
        assert certificate.record["evaluated_designs"] < space.combinations / 2


def test_what_tiles_have_no_bounds_of_is_refused(tmp_path: Path) -> None:
    for words, named in (
        (("+space.chip.clock='tag(GHz, interval(0.5, 1))'",), "chip.clock"),
        (("+space.chip.tile.sram='tag(KiB, interval(96, 512))'", "+objectives.energy=min"), "objectives.energy"),
        (("+space.chip.tile.sram='tag(KiB, interval(96, 512))'", "mapping=flat_prefetch"), "prefetch"),
        (
            (
                "+space.chip.tile.sram='tag(KiB, interval(96, 512))'",
                "mapping=flat_prefetch",
                "mapping.both.prefetch.policy=none",
                "+space.mapping.both.prefetch.policy=choice(none, whole)",
            ),
            "prefetch",
        ),
        (("+space.chip.tile.sram='tag(KiB, interval(96, 512))'", "+part@chip.l2=l2_256mb"), "chip.l2"),
        (("+space.chip.tile.sram='tag(KiB, interval(96, 512))'", "model=deepseek_v2_lite"), "model.latent"),
    ):
        with pytest.raises(DesignError, match=named):
            Certifier(study_of(tmp_path, *words))


def test_numbers_of_tiles_without_a_bound_are_options(tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, "+space.chip.hbm.channels=choice(4, 8)", "+space.chip.clock='tag(GHz, choice(0.5, 1))'")
    space, effects = make_box_space(study)
    assert len(space.active) == 2 * 2 * 2
    assert set(effects) == {
        "chip.tile.sram", "chip.tile.matrix.rows", "chip.tile.matrix.cols", "chip.hbm.channel_bandwidth",
    }  # fmt: skip
