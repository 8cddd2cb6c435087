"""Placements of the cores of a group: every reader puts them in one order, where routes are locked, too."""

from itertools import combinations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.partition.placement import placed, sides
from dse.evaluators.kernels.partition.sums import allreduce
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.passes.call import Group, Product
from dse.evaluators.program.rounds import Program, Slot
from dse.evaluators.readers import READERS, cycles, events
from dse.space.mapping import PLACEMENTS
from dse.studies.fidelity_gap.kernels import preset

MACHINES = {name: of_tiles(preset(name)) for name in ("npu64", "npu256")}
WAYS = [("k", "ring"), ("k", "turns"), ("k", "two_level"), ("mn", "ring")]
APART = 0.03
"""By which share two placements differ at least for their order to count."""

sizes = st.floats(0, 1).map(lambda share: int(4000**share))


@given(st.sampled_from(sorted(MACHINES)), st.sampled_from(WAYS), st.integers(2, 16), sizes, sizes, sizes, st.booleans())
@example("npu256", ("k", "turns"), 16, 1000, 152, 2560, True)  # an interleaved line of Qwen3-4B was said to be the quicker one
@example("npu256", ("k", "turns"), 5, 1211, 1, 36, True)
@settings(max_examples=25)
def test_placements_have_one_order_by_formula_and_by_events(
    chip: str, way: tuple[str, str], cores: int, m: int, k: int, n: int, locked: bool
) -> None:
    machine = MACHINES[chip]._replace(fabric=MACHINES[chip].fabric._replace(locked=float(locked)))

    def seconds(reader: str, placement: str) -> float:
        group = Group(way[0], placement, cores, way[1])
        return float(READERS[reader].product(group, Product(1.0, m, k * cores, n), machine, 2.0)[0])

    closed, played = ({name: seconds(reader, name) for name in PLACEMENTS} for reader in ("closed", "events"))
    for one, other in combinations(PLACEMENTS, 2):
        if played[one] > (1 + APART) * played[other]:
            assert closed[one] > closed[other], (one, other, closed, played)
        elif played[other] > (1 + APART) * played[one]:
            assert closed[other] > closed[one], (one, other, closed, played)


@given(st.sampled_from(PLACEMENTS), st.integers(2, 12), st.integers(1, 60), st.integers(1, 60), st.booleans())
@settings(max_examples=25)
def test_locked_messages_take_by_events_what_they_take_by_cycles(
    placement: str, cores: int, rows: int, width: int, divided: bool
) -> None:
    """Cores that are ahead ask first, and have channels of those that wait for two."""
    fabric = MACHINES["npu64"].fabric
    rounds = allreduce(placed(placement, cores, divided=divided), "c", rows)
    program = Program(*sides(placement, cores), (Slot("c", (rows, width), "float16", depth=2),), (rounds,))
    found, routed = (reader.play(program, fabric) for reader in (events, cycles))
    np.testing.assert_allclose(found.ready["c"], routed.ready["c"], rtol=1e-6)
