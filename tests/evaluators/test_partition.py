"""Every way to divide a product: it computes the product, moves what its formula says, and takes what its closed form says."""

from dataclasses import replace
from itertools import product as combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.partition import PARTITION
from dse.evaluators.kernels.partition.group_placement import place_group, ring_grid
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Program, Round, SendInstruction
from dse.space.chip import MatrixEngine, VectorEngine
from dse.space.mapping import PARTITIONS, PLACEMENTS
from dse.testing.functional_simulator import run_program as by_numbers
from tests.agreement.test_events import CYCLES

ENGINES = TileEngines(
    1.0,
    MatrixEngine(dataflow="weight", rows=8, cols=8, depth=0, reload="hidden", fill=0.0, start=5.0),
    VectorEngine(lanes=16.0, special=4.0, start=3.0),
    1e6,
)
WORMHOLE = CYCLES._replace(post=3.0)
LOCKED = WORMHOLE._replace(locked=1.0)
ALL = list(combinations(sorted(PARTITIONS), PLACEMENTS))
CORES = (1, 2, 3, 4, 6, 7, 8, 16)
places = st.sampled_from(ALL)


def computed(name: str, placement: str, cores: int, shape: GemmShape, program: Program | None = None) -> bool:
    rng = np.random.default_rng(cores)
    a, w = (rng.normal(size=size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    kernel = PARTITION[name]
    tiles = by_numbers(
        program or kernel.build_program(shape, placement, cores), kernel.scatter_operands(a, w, placement, cores)
    )
    try:
        return bool(np.allclose(kernel.gather_result(tiles, placement, cores, shape), a @ w, atol=1e-3))
    except ValueError:
        return False


@pytest.mark.sampled
@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize(("name", "placement"), ALL)
def test_it_is_the_product(name: str, placement: str, cores: int) -> None:
    assert computed(name, placement, cores, GemmShape(12, 2 * cores, 3 * cores))


@given(places, st.sampled_from(CORES), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=80)
def test_sizes_that_do_not_divide_are_padded(which: tuple[str, str], cores: int, m: int, k: int, n: int) -> None:
    assert computed(*which, cores, GemmShape(m, k, n))


@pytest.mark.parametrize(("name", "placement"), [which for which in ALL if which[0] != "input_only"])
def test_a_wrong_destination_is_noticed(name: str, placement: str) -> None:
    shape = GemmShape(8, 16, 16)
    program = PARTITION[name].build_program(shape, placement, 8)
    (rounds,) = program.strands
    which = next(i for i, turn in enumerate(rounds) if any(isinstance(step, SendInstruction) for step in turn.steps))
    send = next(step for step in rounds[which].steps if isinstance(step, SendInstruction))
    target = replace(send.target, col=np.roll(np.broadcast_to(send.target.col, send.source.shape), 1))
    steps = tuple(replace(step, target=target) if step is send else step for step in rounds[which].steps)
    wrong = replace(program, strands=((*rounds[:which], Round(steps), *rounds[which + 1 :]),))
    assert not computed(name, placement, 8, shape, wrong)


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize(("name", "placement"), ALL)
def test_bytes_are_those_of_table_2(name: str, placement: str, cores: int) -> None:
    """Table 2 of [zhu2025]; its two-dimensional row, printed for squares, is the program's count."""
    kernel, shape = PARTITION[name], GemmShape(16 * cores, 2 * cores * cores, 3 * cores * cores)
    rings, members = ring_grid(placement, cores, divided=kernel.IS_TWO_DIMENSIONAL)
    assert rings * members == cores
    counted = count_activity(kernel.build_program(shape, placement, cores))
    assert counted.sent_bytes / 4 / cores == pytest.approx(kernel.values_sent(shape, rings, members))
    assert counted.macs == shape.m * shape.k * shape.n


@pytest.mark.sampled
@pytest.mark.parametrize("fabric", [WORMHOLE, LOCKED], ids=["wormhole", "locked"])
@pytest.mark.parametrize("cores", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(("name", "placement"), ALL)
def test_the_closed_form_is_the_program_played(name: str, placement: str, cores: int, fabric: object) -> None:
    """Turns on busy channels included; but for two dimensions on lines, whose weights and sums share links."""
    shape = GemmShape(16 * cores, 8 * cores, 8 * cores * cores)
    closed, engines = PARTITION[name].cost(shape, placement, cores, fabric, ENGINES, 4)
    played = simulate_events(PARTITION[name].build_program(shape, placement, cores), fabric, engines=ENGINES)  # type: ignore[arg-type]
    assert engines <= closed * (1 + 1e-9)
    assert played.engine_seconds == pytest.approx(engines)
    if name == "mn_k":
        known = placement == "mesh" or cores < 4 or (fabric is LOCKED and placement == "ring")
        assert 0.97 * closed <= played.seconds <= (1.05 if known else 1.7) * closed
    else:
        assert played.seconds == pytest.approx(closed, rel=1e-9 if placement == "ring" and cores != 2 else 0.01)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_batch_is_its_singles(name: str, placement: str) -> None:
    rng = np.random.default_rng(1)
    cores = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0], size=20)
    m, k, n = (rng.integers(1, 4000, size=20).astype(float) for _ in range(3))
    many = PARTITION[name].cost(GemmShape(m, k, n), placement, cores, LOCKED, ENGINES, 2)
    for i in range(20):
        cost = PARTITION[name].cost(GemmShape(m[i], k[i], n[i]), placement, cores[i], LOCKED, ENGINES, 2)
        assert [float(value[i]) for value in many] == pytest.approx([float(value) for value in cost])


@given(st.sampled_from(PLACEMENTS), st.integers(1, 40), st.booleans())
def test_every_core_of_a_group_is_in_its_place_once(placement: str, cores: int, divided: bool) -> None:
    group = place_group(placement, cores, divided=divided)
    assert len(set(zip(group.row.ravel().tolist(), group.col.ravel().tolist(), strict=True))) == cores


@pytest.mark.parametrize("cores", [8, 16, 32, 64])
def test_columns_of_a_grid_on_a_ring_go_no_further_than_by_the_other_numbering(cores: int) -> None:
    """The second line runs on around the ring or starts below the first, whichever has the shorter longest hop of a column."""

    def longest(row: np.ndarray, col: np.ndarray) -> int:
        return int(max((abs(row - np.roll(row, -1, 0)) + abs(col - np.roll(col, -1, 0))).flat))

    group = place_group("ring", cores, divided=True)
    flat, line = group.col.reshape(-1), cores // 2
    other = np.concatenate([flat[:line], flat[line:][::-1]]).reshape(group.col.shape)
    assert longest(group.row, group.col) <= longest(group.row, other)
