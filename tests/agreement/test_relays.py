"""Messages that cores on the way store and send on: what closed forms, events and routers say of random shapes."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.kernels.gemm import allgather_gemm as allgather
from dse.evaluators.kernels.gemm import t10
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.mesh_fabric import mesh_fabric, tile_fabric
from dse.studies.fidelity_gap.kernels import preset

DOJO = mesh_fabric(preset("dojo", "workload=gemm"))
NPU = tile_fabric(preset("npu64"))
shapes = st.builds(GemmShape, *(st.integers(2, 300) for _ in range(3)))


@given(shapes, st.integers(3, 6), st.integers(3, 6))
@example(GemmShape(97, 292, 220), 5, 4)  # a core starts a message while words of another leave: events said 21 % more
@settings(max_examples=12)
def test_a_core_starts_a_message_while_words_of_another_leave(shape: GemmShape, rows: int, cols: int) -> None:
    program = allgather.build_program(shape, CoreMesh(rows, cols), "float16")
    played, routed = (play(program, DOJO).seconds for play in (events.simulate_events, cycles.simulate_cycles))
    assert played == pytest.approx(routed, rel=0.1)
    assert allgather.cost(shape, CoreMesh(rows, cols), DOJO).seconds == pytest.approx(played, rel=0.2)


@given(st.builds(GemmShape, *(st.integers(40, 400) for _ in range(3))), st.integers(4, 10))
@example(GemmShape(37, 281, 8), 10)  # each hop has a handshake of its own: the closed form said 47 % less
@settings(max_examples=15)
def test_relays_on_locked_routes_have_a_handshake_for_each_hop(shape: GemmShape, side: int) -> None:
    """Where chunks have few words they meet more often in the alignment than its closed form counts."""
    program = t10.build_program(shape, CoreMesh(side, side), "float16")
    assert t10.cost(shape, CoreMesh(side, side), NPU).seconds == pytest.approx(
        events.simulate_events(program, NPU).seconds, rel=0.3
    )
