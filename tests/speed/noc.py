"""How fast routers are played: flits that cross a router a CPU second, beside those of a cycle-accurate simulator in C++.

Its figures are BookSim 2's, measured for this project on two cores like ours: whole runs, uniform traffic, four channels of 8.
"""

from dse.evaluators.machine.traffic_measurement import measure_traffic
from dse.space.chip import Router
from dse.space.workload import NocTrafficCase
from tests.speed.clock import cpu

PLAIN = Router(
    vcs=4,
    vc_depth=8,
    route_cycles=1,
    vc_alloc=1,
    switch_alloc=1,
    switch_traversal=1,
    link=1,
    credit=1,
    speculative=False,
    flit_x=1,
    flit_y=1,
    flit_bytes=16.0,
)
REFERENCE = (
    (8, 1, 0.025, 0.35),
    (8, 1, 0.1, 0.45),
    (8, 1, 0.3, 0.46),
    (8, 1, 0.4375, 0.31),
    (8, 5, 0.1, 0.77),
    (8, 5, 0.3, 0.68),
    (8, 5, 0.4125, 0.51),
    (16, 1, 0.0125, 0.11),
    (16, 1, 0.1, 0.23),
    (16, 1, 0.2, 0.27),
    (16, 5, 0.1, 0.35),
    (16, 5, 0.2, 0.36),
)
"""Side of the mesh, flits of a packet, flits a node and cycle, and the reference's millions a second."""

LARGE = (64, 1, 0.02, 0.075)
"""The largest mesh that it was run on."""


def routers() -> list[tuple[str, str, str]]:
    """A line for each load."""
    measure_traffic(PLAIN, 4, 4, "xy", _load(1, 0.1))
    lines = []
    for side, flits, rate, reference in (*REFERENCE, LARGE):
        crossed = 0

        def once(side: int = side, flits: int = flits, rate: float = rate) -> None:
            nonlocal crossed
            crossed = measure_traffic(PLAIN, side, side, "xy", _load(flits, rate)).crossed

        seconds = cpu(once)
        what = f"routers, {side} x {side}, packets of {flits}, {rate:g} flits a node and cycle"
        lines.append((what, f"{crossed / seconds / 1e6:.1f} M flit-hops/s", f"{reference:g} M BookSim 2"))
    return lines


def _load(flits: int, rate: float) -> NocTrafficCase:
    return NocTrafficCase("", "uniform", (), 0, rate, flits, 1000, 4000, 1)


if __name__ == "__main__":
    for line in routers():
        print("  ".join(line))
