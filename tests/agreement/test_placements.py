"""Placements of the cores of a group: every reader puts them in one order, where routes are locked, too."""

from itertools import combinations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators.calls.call import CallProduct, CoreGroupSplit
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.kernels.partition.group_placement import group_sides, place_group
from dse.evaluators.kernels.partition.ring_allreduce import allreduce_rounds
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.kernel_ir import Buffer, Program
from dse.space.mapping import PLACEMENTS
from dse.studies.fidelity_gap.kernels import preset

MACHINES = {name: tile_core_machine(preset(name)) for name in ("npu64", "npu256")}
WAYS = [("k", "ring"), ("k", "overlapped_ring"), ("k", "two_level"), ("mn", "ring")]
APART = 0.03
"""By which share two placements differ at least for their order to count."""

sizes = st.floats(0, 1).map(lambda share: int(4000**share))


@given(st.sampled_from(sorted(MACHINES)), st.sampled_from(WAYS), st.integers(2, 16), sizes, sizes, sizes, st.booleans())
@example(
    "npu256", ("k", "overlapped_ring"), 16, 1000, 152, 2560, True
)  # an interleaved line of Qwen3-4B was said to be the quicker one
@example("npu256", ("k", "overlapped_ring"), 5, 1211, 1, 36, True)
@settings(max_examples=25)
def test_placements_have_one_order_by_formula_and_by_events(
    chip: str, way: tuple[str, str], cores: int, m: int, k: int, n: int, locked: bool
) -> None:
    machine = MACHINES[chip]._replace(fabric=MACHINES[chip].fabric._replace(locked=float(locked)))

    def seconds(reader: str, placement: str) -> float:
        group = CoreGroupSplit(way[0], placement, cores, way[1])
        return float(READERS[reader].product(group, CallProduct(1.0, m, k * cores, n), machine, 2.0)[0])

    closed, played = ({name: seconds(reader, name) for name in PLACEMENTS} for reader in ("analytical", "events"))
    for placement, other in combinations(PLACEMENTS, 2):
        if played[placement] > (1 + APART) * played[other]:
            assert closed[placement] > closed[other], (placement, other, closed, played)
        elif played[other] > (1 + APART) * played[placement]:
            assert closed[other] > closed[placement], (placement, other, closed, played)


@given(st.sampled_from(PLACEMENTS), st.integers(2, 12), st.integers(1, 60), st.integers(1, 60), st.booleans())
@settings(max_examples=25)
def test_locked_messages_take_by_events_what_they_take_by_cycles(
    placement: str, cores: int, rows: int, width: int, divided: bool
) -> None:
    """Cores that are ahead ask first, and have channels of those that wait for two."""
    fabric = MACHINES["npu64"].fabric
    rounds = allreduce_rounds(place_group(placement, cores, divided=divided), "c", rows)
    program = Program(*group_sides(placement, cores), (Buffer("c", (rows, width), "float16", depth=2),), (rounds,))
    simulated, routed = (play(program, fabric) for play in (events.simulate_events, cycles.simulate_cycles))
    np.testing.assert_allclose(simulated.ready["c"], routed.ready["c"], rtol=1e-6)
