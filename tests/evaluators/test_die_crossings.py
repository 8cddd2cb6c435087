"""Meshes of tiles on several dies: what crossings cost designs in time, energy, area and limits, and what refuses them."""

from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.silicon import area
from dse.evaluators.silicon.die_division import die_grid
from dse.evaluators.silicon.manufacturing_limits import silicon_limits
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from tests.samples import asked

LINKS = ("nv_hbi", "optical", "sow", "ucie_advanced", "ucie_standard")
FREE = ("chip.die_link.edge_bandwidth=1e9 TB/s/mm", "chip.die_link.latency=0 s")
TILING = ("mapping.rows=4", "mapping.cols=2", "mapping.queries=128", "mapping.keys=128")
"""Set, since the choice of a tiling is no exact one: with another link it may find a better one."""

WORKLOADS: dict[str, tuple[str, ...]] = {
    "model": ("model=llama3_8b", "workload.batch=16", "workload.prompt=512", "workload.output=64"),
    "product": ("workload=gemm", "workload.shapes=[512x2048x1024]", "chip.mesh.rows=8", "chip.mesh.cols=8"),
    "attention": ("workload=attention", "workload.keys=[512]", "chip.mesh.rows=8", "chip.mesh.cols=8", *TILING),
    "collective": ("workload=collective", "chip.mesh.rows=8", "chip.mesh.cols=8"),
}
"""Small questions of each kind that crosses dies."""


def metrics(*overrides: str, fidelity: str = "analytical") -> dict[str, float]:
    question = asked("chip=tile_gh200", "chip.die.is_wafer=true", *overrides)
    outcomes = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).require_compatible()
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


def link(name: str, dies: int = 4) -> tuple[str, ...]:
    return f"chip.die.dies={dies}", f"+die_link@chip.die_link={name}"


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_slower_link_between_dies_takes_longer(kind: str) -> None:
    whole, advanced, standard = (
        metrics(*WORKLOADS[kind], *how)["latency"]
        for how in (
            ("chip.die.dies=1",),
            link("ucie_advanced"),
            (*link("ucie_standard"), "chip.die_link.edge_bandwidth=30 GB/s/mm"),
        )
    )
    assert whole < advanced < standard


@pytest.mark.parametrize("fidelity", ["analytical", "events", "cycles"])
@pytest.mark.parametrize("kind", ["product", "attention", "collective"])
def test_links_without_cost_take_what_one_die_takes(kind: str, fidelity: str) -> None:
    whole, free = (metrics(*WORKLOADS[kind], *how, fidelity=fidelity) for how in (("chip.die.dies=1",), (*link("sow"), *FREE)))
    assert whole["latency"] == free["latency"]


def test_a_model_over_links_without_cost_takes_what_it_takes_on_one_die() -> None:
    whole, free = (metrics(*WORKLOADS["model"], *how) for how in (("chip.die.dies=1",), (*link("sow"), *FREE)))
    assert whole["ttft"] == free["ttft"]
    assert whole["tpot"] == free["tpot"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_link_that_nothing_crosses_changes_no_digit(kind: str) -> None:
    whole, linked = (metrics(*WORKLOADS[kind], "chip.die.dies=1", *how) for how in ((), link("optical", 1)))
    assert whole == linked


@pytest.mark.parametrize("kind", WORKLOADS)
def test_more_bandwidth_or_less_latency_never_hurts(kind: str) -> None:
    taken = [
        metrics(
            *WORKLOADS[kind], *link("sow"), f"chip.die_link.edge_bandwidth={rate} GB/s/mm", f"chip.die_link.latency={wait} ns"
        )
        for rate, wait in ((20, 40), (60, 40), (60, 5), (1000, 5))
    ]
    latencies = [result["latency"] for result in taken]
    assert latencies == sorted(latencies, reverse=True)


def test_many_designs_are_each_as_if_alone() -> None:
    designs = []
    for dies in (1, 2, 4, 8):
        for name in ("sow", "ucie_standard"):
            question = asked("chip=tile_gh200", "chip.die.is_wafer=true", *WORKLOADS["model"], *link(name, dies))
            designs.append(question.base)
    together = evaluate(stack_designs(designs), question.workload).columns
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload).columns
        for name in ("ttft", "tpot", "energy", "system_price", "die_mm2"):
            assert together[name][place] == pytest.approx(alone[name][0], rel=1e-12)


def test_bytes_that_cross_take_energy_of_the_link() -> None:
    """Of two links that are alike but for the energy of a byte."""
    each = [
        metrics(*WORKLOADS["collective"], *link("sow"), f"chip.die_link.energy_per_byte={value} pJ/B") for value in (0, 10, 20)
    ]
    none, some, more = (result["energy"] for result in each)
    assert none < some
    assert more - some == pytest.approx(some - none, rel=1e-6)


def test_links_take_the_area_of_their_interfaces_at_both_ends() -> None:
    chip = asked("chip=tile_gh200", *link("ucie_standard")).base.chip
    divided = area.divide_mesh(chip).die_link
    without = asked("chip=tile_gh200", *link("ucie_standard"), "chip.die_link.phy_area=0 mm2*s/GB").base.chip
    more = 2 * 64 * divided.link_bandwidth * chip.die_link.phy_area / (1 - chip.technology.other_area_share)
    assert area.total_area(chip) - area.total_area(without) == pytest.approx(more, rel=1e-9)


def test_a_link_has_the_edge_of_a_tile() -> None:
    chip = area.divide_mesh(asked("chip=tile_gh200", *link("sow")).base.chip)
    blocks = area.area_by_block(asked("chip=tile_gh200", "chip.die.dies=1").base.chip)
    edge = (sum(blocks.values()) / 1024) ** 0.5
    assert chip.die_link.link_bandwidth == pytest.approx(chip.die_link.edge_bandwidth * edge, rel=1e-9)
    assert (chip.die_link.die_rows, chip.die_link.die_cols) == (16, 16)


@pytest.mark.parametrize("name", LINKS)
def test_latency_is_whole_cycles_of_the_network(name: str) -> None:
    chip = area.divide_mesh(asked("chip=tile_gh200", *link(name)).base.chip)
    fabric = tile_fabric(chip)
    cycles = fabric.crossing * chip.clock
    assert cycles == pytest.approx(round(cycles))
    assert chip.die_link.latency <= fabric.crossing < chip.die_link.latency + 1 / chip.clock


@pytest.mark.parametrize(("rows", "cols", "dies"), [(32, 32, 6), (24, 16, 6), (7, 5, 5), (8, 8, 64)])
def test_dies_are_the_rectangles_nearest_to_squares(rows: int, cols: int, dies: int) -> None:
    grid = die_grid(rows, cols, dies)
    fits = [
        (down, dies // down)
        for down in range(1, dies + 1)
        if dies % down == 0 and rows % down == 0 and cols % (dies // down) == 0
    ]
    assert (grid is None) == (not fits)
    if grid:
        aspects = {fit: abs(np.log(rows / fit[0] * fit[1] / cols)) for fit in fits}
        assert aspects[grid] == min(aspects.values())


def limits(*overrides: str) -> dict[str, Any]:
    return {limit.address: limit for limit in silicon_limits(asked("chip=tile_gh200", *overrides).base.chip)}


def test_dies_that_do_not_divide_the_mesh_are_refused() -> None:
    limit = limits(*link("sow", 3))["chip.die.dies"]
    assert (limit.need, limit.have) == (3, 2)


def test_a_link_beyond_its_edge_is_refused() -> None:
    limit = limits(*link("sow"), "chip.die_link.link_bandwidth=90 GB/s")["chip.die_link.link_bandwidth"]
    assert limit.need > limit.have


def test_edges_between_dies_are_not_for_memory() -> None:
    open_, linked = (
        limits(*how)["chip.die.memory_edge_share"].have for how in (("chip.die.dies=16",), link("ucie_advanced", 16))
    )
    assert linked == pytest.approx(open_ / 4, rel=0.01)


RINGS = ("workload=collective", "workload.pattern=allgather", "workload.group_axis=rectangle", "workload.root=0")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("mapping=npu",), "not known to .* yet; use mapping=flat, or chip.die.dies=1"),
        ((*RINGS, "mapping.collective=rings"), "use mapping.collective=hardware, tree or sequential, or chip.die.dies=1"),
        (("workload=collective", "chip.noc.topology=torus"), "dies divide a mesh with free routes"),
    ],
)
def test_what_would_ignore_crossings_is_refused_by_name(overrides: tuple[str, ...], says: str) -> None:
    question = asked("chip=tile_gh200", *link("sow"), *overrides)
    with pytest.raises(DesignError, match=says):
        evaluate(stack_designs([question.base]), question.workload)


def test_a_part_of_the_mesh_is_refused_without_its_dies() -> None:
    question = asked("chip=tile_gh200", *link("sow"), "workload=gemm")
    with pytest.raises(DesignError, match="use fidelity=events"):
        evaluate(stack_designs([question.base]), question.workload, fidelity="events@8")


def test_served_requests_wait_for_crossings_at_a_steady_rate() -> None:
    load = ("workload=serving", "workload.rate=2 Hz", "workload.requests=16")
    free, slow = (metrics(*load, "chip.die.dies=4", *how, fidelity="steady_state") for how in ((), link("optical")))
    assert free["ttft"] < slow["ttft"]
    assert free["tpot"] < slow["tpot"]


def test_crossings_are_a_cause_of_a_collective() -> None:
    question = asked("chip=tile_gh200", *WORKLOADS["collective"], *link("sow"))
    breakdown = explain(question.base, question.workload.cases[0])
    (row,) = breakdown.rows
    assert row.parts["die crossings"] > 0
    assert sum(row.parts.values()) == pytest.approx(breakdown.seconds)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (link("sow", 3), "as 1, 2, 4, 8, 16 (up to 16); set one of these"),
        ((*link("sow", 4), "chip.die_link.die_rows=3"), "chip.die_link.die_rows and chip.die_link.die_cols, must divide"),
        ((*link("sow", 4), "chip.die_link.die_cols=2"), "set both to 0 to have them chosen"),
    ],
)
def test_dies_that_do_not_divide_the_mesh_say_which_setting_to_change(words: tuple[str, ...], text: str) -> None:
    question = asked("chip=tile_gh200", *WORKLOADS["collective"], *words)
    why = explain_infeasibility(question.base, question.workload)
    assert why is not None
    assert why.limit == "chip.die.dies"
    assert text in str(why)
