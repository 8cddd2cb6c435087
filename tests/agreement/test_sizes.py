"""Routers of any mesh: links lead where they should, whatever the sides, and what has no room is refused in a line."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.machine import free_memory
from dse.evaluators.machine import router_state as net
from dse.evaluators.machine.traffic_measurement import measure_traffic
from dse.space.errors import DesignError
from dse.space.noc_router import router_cycles
from tests.agreement.test_cycles import ON, PLAIN, load
from tests.agreement.test_events import sends

DELAYS: dict[str, Any] = {"route": 1, "forward": 2, "credit": 2, "inject": 1, "local": 1}
STEPS = {0: (0, 1), 1: (0, -1), 2: (1, 0), 3: (-1, 0)}
"""Rows and columns from a router to that behind each of its ports."""


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 2, 4, 16]), st.booleans())
@example(41, 41, 4, False)
@example(1, 70_000, 1, False)
@example(33_000, 1, 2, True)
@settings(max_examples=15)
def test_a_port_leads_to_the_router_behind_it(rows: int, cols: int, vcs: int, memory: bool) -> None:
    """Beyond 2^8 and 2^16 rows, columns, routers, ports and channels."""
    router_tables = net.make_router_tables(rows, cols, vcs, 1, memory=memory, packets=1, **DELAYS)
    row, col = np.divmod(np.arange(rows * cols), cols)
    assert (router_tables.router["row"] == row).all()
    assert (router_tables.router["col"] == col).all()
    port = router_tables.port.reshape(rows * cols, router_tables.ports)
    for way, (down, across) in STEPS.items():
        to_row, to_col = row + down, col + across
        mask = np.flatnonzero((to_row >= 0) & (to_row < rows) & (to_col >= 0) & (to_col < cols))
        neighbours = to_row[mask] * cols + to_col[mask]
        first = port["onward"][mask, way].astype(np.int64)
        assert (first >> router_tables.shift == neighbours * router_tables.ports + (way ^ 1)).all()
        assert (first & router_tables.within == 0).all()
        back = port["back"][neighbours, way ^ 1].astype(np.int64) >> router_tables.shift
        assert (router_tables.router_of[back] == mask).all()
        assert (router_tables.number[back] == way).all()
    assert (port["onward"][:, net.CORE :].astype(np.int64) >= router_tables.channels).all()


LINES = [((1, 70_000), (0, 69_990), (0, 69_999)), ((66_000, 1), (65_999, 0), (65_990, 0)), ((300, 290), (0, 289), (299, 0))]


@pytest.mark.parametrize(("sides", "source", "target"), LINES, ids=str)
def test_a_message_in_a_large_mesh_takes_what_events_say(sides: tuple[int, int], source: Any, target: Any) -> None:
    program, fabric = sends(CoreMesh(*sides), (source, target, 5)), ON._replace(hop=3.0, ramp=6.0, vcs=1)
    assert cycles.simulate_cycles(program, fabric).seconds == pytest.approx(events.simulate_events(program, fabric).seconds)


@pytest.mark.parametrize(("rows", "cols"), [(48, 48), (3, 700)])
def test_packets_in_a_large_mesh_take_the_stages_of_their_routers(rows: int, cols: int) -> None:
    traffic = measure_traffic(PLAIN, rows, cols, "xy", load("neighbour", 0.0005, period=200, packets=200))
    assert traffic.latency == pytest.approx(traffic.hops * router_cycles(PLAIN).hop + 1 + PLAIN.link, rel=0.01)


KERNELS = {
    "ktree": lambda: GEMV["ktree"].build_program(GemmShape(1, 42, 84), CoreMesh(42, 42), phases=2),
    "cannon": lambda: GEMM["cannon"].build_program(GemmShape(48, 48, 48), CoreMesh(48, 48)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_large_meshes_are_played(name: str) -> None:
    """A K-tree and a whole product, whose flits arrive where they are waited for."""
    fabric, program = ON._replace(hop=3.0, ramp=6.0), KERNELS[name]()
    assert cycles.simulate_cycles(program, fabric).seconds == pytest.approx(
        events.simulate_events(program, fabric).seconds, rel=0.2
    )


@pytest.mark.parametrize(
    ("sides", "options", "line"),
    [
        ((40_000, 40_000), {}, r"chip\.mesh: fidelity=cycles has no numbers for as many routers: "),
        ((20_000, 13_000), {}, r"chip\.mesh: .*(channels|packets|GB)"),
        (
            (2, 2),
            {"depth": 16_384, "inject": 60_000, "roomy": True},
            r"chip\.noc\.ramp_cycles: .* flits of a channel: 76,385 .* 65,535",
        ),
        ((2, 2), {"width": np.full((4, 5), 2**33)}, r"chip\.noc\.word_cycles: .* cycles of a flit: 8,589,934,592 "),
    ],
    ids=["routers", "channels", "flits", "width"],
)
def test_what_records_have_no_bits_for_is_refused(sides: tuple[int, int], options: dict[str, Any], line: str) -> None:
    given_ = DELAYS | {"vcs": 4, "depth": 8} | options
    with pytest.raises(DesignError, match=line):
        net.make_router_tables(*sides, given_.pop("vcs"), given_.pop("depth"), **given_)


def test_routers_that_take_more_memory_than_is_free_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "free_memory", lambda: 1e6)
    with pytest.raises(DesignError, match=r"chip\.mesh: routers of 64 x 64 cores need .* GB of memory, 0\.0 GB are free"):
        net.make_router_tables(64, 64, 4, 8, **DELAYS)
    monkeypatch.undo()
    assert 1e6 < free_memory.free_memory() < float("inf")
