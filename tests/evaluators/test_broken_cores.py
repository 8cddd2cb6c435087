"""Meshes with a stated density of broken cores: spare cores of rows, what detours take, prices, limits and refusals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.broken_cores import repair_text
from dse.evaluators.machine.mesh_fabric import ramp_cycles
from dse.evaluators.silicon import price
from dse.evaluators.silicon.core_repair import repair_rows, row_repair, settle_detours
from dse.evaluators.silicon.manufacturing_limits import advice_text, exceeded_limits, repairing_cores
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

TILES = ("chip=tile_gh200", "chip.die.dies=1", "chip.die.is_wafer=true")
SMALL = (*TILES, "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.die.built_cores=128")
WAFER = ("chip=wse2", "workload=gemm", "workload.shapes=[256x256x256]")

KINDS: dict[str, tuple[str, ...]] = {
    "wafer model": ("chip=wse2", "model=llama3_8b", "workload.batch=1", "workload.prompt=512", "workload.output=64"),
    "wafer product": (*WAFER, "chip.mesh.rows=16", "chip.mesh.cols=16", "chip.die.built_cores=512"),
    "model": (
        *TILES,
        "chip.die.built_cores=2048",
        "model=llama3_8b",
        "workload.batch=16",
        "workload.prompt=512",
        "workload.output=64",
    ),
    "product": (*SMALL, "workload=gemm", "workload.shapes=[512x2048x1024]"),
    "attention": (
        *SMALL,
        *("workload=attention", "workload.keys=[512]"),
        *("mapping.rows=4", "mapping.cols=2", "mapping.queries=128", "mapping.keys=128"),
    ),
    "collective": (*SMALL, "workload=collective"),
}
"""Questions of each kind, with spare cores."""


def broken(density: float) -> str:
    return f"+chip.die.broken_density='{density} 1/cm2'"


def metrics(*overrides: str, fidelity: str = "analytical") -> dict[str, float]:
    question = asked(*overrides)
    outcomes = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).require_compatible()
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


def moved(sites: np.ndarray[Any, Any], cols: int) -> np.ndarray[Any, Any]:
    """Sites that each core of a mesh is moved by, of rows whose sites are broken or not."""
    return np.array([np.flatnonzero(~row)[:cols] for row in sites]) - np.arange(cols)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0.0, 0.3))
def test_no_message_of_a_repaired_mesh_takes_more_hops_than_bound(rows: int, cols: int, seed: int, share: float) -> None:
    """Messages along rows and columns of meshes with broken sites drawn at random, each repaired by itself."""
    sites = np.random.default_rng(seed).random((rows, 4 * cols + 40)) < share
    shift = moved(sites, cols)
    on_row = sites.sum(axis=1)
    assert np.all(np.diff(shift, axis=1).sum(axis=1) <= on_row)
    along = np.maximum(np.abs(np.diff(shift, axis=0)), 1) - 1
    assert np.all(along.sum(axis=0) <= np.maximum(np.maximum(on_row[1:], on_row[:-1]) - 1, 0).sum())


@pytest.mark.parametrize(("rows", "cells", "share"), [(8, 20, 0.002), (40, 60, 0.001), (30, 50, 0.02)])
def test_expected_hops_are_means_of_random_meshes(rows: int, cells: int, share: float) -> None:
    """Poisson's law is the limit of rare breaks, here within five standard errors."""
    draws = np.random.default_rng(7).binomial(cells, share, (20000, rows))
    found = repair_rows(rows * cells * share, float(rows), 3.0)
    for exact, drawn in (
        (found.row_hops, draws.max(axis=1)),
        (found.column_hops, np.maximum(np.maximum(draws[:, 1:], draws[:, :-1]) - 1, 0).sum(axis=1)),
        (found.repairable, draws.max(axis=1) <= 3),
    ):
        assert exact == pytest.approx(drawn.mean(), abs=5 * drawn.std() / len(draws) ** 0.5 + 0.03 * drawn.mean())


@given(st.floats(0.0, 500.0), st.floats(0.0, 500.0), st.integers(1, 1000), st.integers(0, 50))
def test_more_broken_cores_never_take_less(one: float, other: float, rows: int, spare: int) -> None:
    few, many = (repair_rows(count, float(rows), float(spare)) for count in sorted((one, other)))
    assert few.message_hops <= many.message_hops + 1e-9
    assert few.needed <= many.needed
    assert few.repairable >= many.repairable - 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_no_broken_cores_change_no_digit(kind: str) -> None:
    assert metrics(*KINDS[kind]) == metrics(*KINDS[kind], broken(0))


@pytest.mark.parametrize("kind", KINDS)
def test_more_broken_cores_are_never_faster(kind: str) -> None:
    taken = [metrics(*KINDS[kind], broken(density))["latency"] for density in (0, 0.1, 1, 5)]
    assert taken == sorted(taken)
    assert taken[0] < taken[-1]


@pytest.mark.parametrize("kind", ["wafer product", "product", "attention", "collective"])
def test_events_agree_as_without_broken_cores(kind: str) -> None:
    """Both take the same time of a hop; the ratio of events to the closed form stays within a hundredth."""
    ratios = []
    for density in (0, 5):
        closed, events = (metrics(*KINDS[kind], broken(density), fidelity=name)["latency"] for name in ("analytical", "events"))
        ratios.append(events / closed)
    assert ratios[0] == pytest.approx(ratios[1], rel=0.01)


def test_many_designs_are_each_as_if_alone() -> None:
    questions = [
        asked(*KINDS["wafer model"], broken(density), f"chip.die.built_cores={built}")
        for density in (0, 0.1, 2)
        for built in (849750, 916000)
    ]
    together = evaluate(stack_designs([question.base for question in questions]), questions[0].workload)
    for place, question in enumerate(questions):
        alone = evaluate(stack_designs([question.base]), question.workload)
        assert together.feasible[place] == alone.feasible[0]
        for name in ("ttft", "tpot", "system_price"):
            assert together.columns[name][place] == pytest.approx(alone.columns[name][0], rel=1e-12, nan_ok=True)


def test_spare_cores_pay_up_to_an_optimum() -> None:
    """Rows of 8 tiles at a high density: dies with few spare ones are lost, and those with many are large."""
    prices = []
    for spare in range(1, 13):
        chip = asked(*SMALL, "workload=collective", broken(20), f"chip.die.built_cores={8 * (8 + spare)}").base.chip
        chip = replace_leaves(chip, {"technology.defect_density": 20.0})
        prices.append(float(price.price_by_part(chip)["dies"]))
    best = int(np.argmin(prices))
    assert 0 < best < len(prices) - 1
    assert prices[: best + 1] == sorted(prices[: best + 1], reverse=True)
    assert prices[best:] == sorted(prices[best:])


def test_a_mesh_without_enough_spare_cores_says_how_many_do() -> None:
    chip = asked(*KINDS["wafer model"], broken(0.1), "chip.die.built_cores=849750").base.chip
    assert [limit.address for limit in exceeded_limits(chip)] == ["chip.die.built_cores"]
    cores = repairing_cores(chip)
    assert f"chip.die.built_cores={cores}" in advice_text("chip.die.built_cores", chip)
    assert not exceeded_limits(replace_leaves(chip, {"die.built_cores": float(cores)}))
    assert exceeded_limits(replace_leaves(chip, {"die.built_cores": float(cores - 1)}))


def test_a_density_that_no_spare_cores_repair_is_to_be_lowered() -> None:
    chip = asked(*KINDS["wafer model"], broken(1e6)).base.chip
    assert "chip.die.built_cores" in [limit.address for limit in exceeded_limits(chip)]
    assert advice_text("chip.die.built_cores", chip) == "lower chip.die.broken_density"


def test_broken_cores_of_a_wafer_are_as_many_as_published() -> None:
    """46 to 51 defects of a wafer with 7 % spare cores, at 0.1 /cm2 (assumed: no paper says)."""
    chip = asked(*KINDS["wafer model"], broken(0.1)).base.chip
    assert 44 < row_repair(chip).broken < 53
    assert row_repair(chip).repairable > 0.999


def test_the_answer_says_what_repair_costs() -> None:
    base = asked(*KINDS["wafer model"], broken(0.1)).base
    text = repair_text(base)
    assert all(part in text for part in ("broken cores expected", "hops more a message", "without spare cores", "USD/mm2"))
    assert not repair_text(asked(*KINDS["wafer model"]).base)


def test_a_message_between_cores_takes_what_its_bound_says() -> None:
    chip = settle_detours(asked(*KINDS["wafer model"], broken(0.1)).base.chip)
    more = 2 * (ramp_cycles(chip) - chip.noc.ramp_cycles)
    assert more == pytest.approx(row_repair(chip).message_hops * chip.noc.hop_cycles)
    with pytest.raises(ValueError, match="settle them first"):
        ramp_cycles(replace_leaves(chip, {"die.detour_hops": None}))


@pytest.mark.parametrize(
    ("overrides", "fidelity", "words"),
    [
        (("chip=h100", "model=llama3_8b"), "analytical", "of a mesh with a process node"),
        ((*KINDS["product"], "chip.faults=3-4"), "analytical", "chip.faults=none"),
        (KINDS["product"], "cycles", "use fidelity=events"),
        ((*KINDS["model"], "+die_link@chip.die_link=sow"), "analytical", "leave out chip.die_link"),
        ((*KINDS["collective"], "chip.noc.topology=torus"), "analytical", "chip.noc.topology=mesh"),
    ],
)
def test_what_would_ignore_broken_cores_is_refused(overrides: tuple[str, ...], fidelity: str, words: str) -> None:
    with pytest.raises(DesignError, match=words):
        metrics(*overrides, broken(0.1), fidelity=fidelity)
