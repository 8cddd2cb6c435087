"""Products of a wafer's mesh as partitions of a group: they are the product, and closed forms are what events play."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.kernels.gemm.tiling import GemmShape, matrix_blocks
from dse.evaluators.kernels.partition import PARTITION
from dse.evaluators.kernels.partition.group_placement import group_sides
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity_counts import count_activity
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.mapping import MESH_GEMMS
from dse.testing.functional_simulator import run_program as by_numbers
from tests.evaluators.test_partition import ENGINES, LOCKED, WORMHOLE, computed
from tests.samples import asked, typed

CORES = (1, 2, 3, 4, 6, 8, 9, 12, 16)
SIZES = st.integers(1, 40)
WORDS = st.sampled_from(MESH_GEMMS)


@given(WORDS, st.sampled_from(CORES), SIZES, SIZES, SIZES)
@settings(max_examples=60, deadline=None)
def test_it_is_the_product(name: str, cores: int, m: int, k: int, n: int) -> None:
    assert computed(name, "mesh", cores, GemmShape(m, k, n))


@given(WORDS, st.sampled_from([4, 6, 8, 16]), SIZES, SIZES, SIZES, SIZES)
@settings(max_examples=30, deadline=None)
def test_a_core_leaves_the_block_that_the_next_product_finds(name: str, cores: int, m: int, k: int, n: int, last: int) -> None:
    """Rows and columns of blocks are those of the two-dimensional partition, however they are cut further."""
    rng, kernel, (rows, cols) = np.random.default_rng(m), PARTITION[name], group_sides("mesh", cores)
    a, w, v = (rng.integers(1, 9, size).astype(float) for size in ((m, k), (k, n), (n, last)))
    tiles = by_numbers(kernel.build_program(GemmShape(m, k, n), "mesh", cores), kernel.scatter_operands(a, w, "mesh", cores))
    whole = matrix_blocks(a @ w, rows, cols)
    blocks = kernel.scatter_operands(a @ w, v, "mesh", cores)["a"]
    for r, c in np.ndindex(rows, cols):
        for values in (tiles["c"][r, c], blocks[r, c]):
            assert np.array_equal(np.sort(values[values != 0]), np.sort(whole[r, c][whole[r, c] != 0]))


@given(WORDS, st.sampled_from(CORES), SIZES, SIZES, SIZES)
@settings(max_examples=30, deadline=None)
def test_values_that_are_sent_on_are_counted(name: str, cores: int, m: int, k: int, n: int) -> None:
    kernel, shape, (rows, cols) = PARTITION[name], GemmShape(m, k, n), group_sides("mesh", cores)
    counted = count_activity(kernel.build_program(shape, "mesh", cores, "float16"))
    assert kernel.values_sent(shape, rows, cols) * cores == pytest.approx(counted.hop_bytes / 2)


NPU = tile_core_machine(asked("chip=npu64", "model=qwen3_1b7").base.chip)
FABRICS = {"cycles": (WORMHOLE, ENGINES), "npu64": (NPU.fabric._replace(locked=0.0), NPU.engines)}


def ratios(name: str, locked: bool, cores: tuple[int, ...]) -> np.ndarray:
    """Of what is played to what the closed form says, on random shapes."""
    rng, ratios = np.random.default_rng(7), []
    for fabric, engines in FABRICS.values():
        given_fabric = fabric._replace(locked=float(locked))
        for count in cores:
            for _ in range(4):
                shape = GemmShape(*(int(2**size) for size in rng.uniform(2, 11, 3)))
                played = simulate_events(
                    PARTITION[name].build_program(shape, "mesh", count, "float16"), given_fabric, engines=engines
                )
                closed, busy = PARTITION[name].cost(shape, "mesh", count, given_fabric, engines, 2)
                assert played.engine_seconds == pytest.approx(busy)
                ratios.append(played.seconds / closed)
    return np.array(ratios)


@pytest.mark.sampled
@pytest.mark.parametrize("locked", [False, True], ids=["wormhole", "locked"])
@pytest.mark.parametrize("name", MESH_GEMMS)
def test_the_closed_form_is_the_program_played(name: str, locked: bool) -> None:
    """Where messages of a round do not meet, on 1, 2 and 4 cores, to 1 % in the median; locked ones of a ring always do."""
    few, many = ratios(name, locked, (1, 2, 4)), ratios(name, locked, (3, 8, 9, 12, 16))
    assert np.median(np.abs(few - 1)) < 0.01
    assert np.abs(few - 1).max() < 0.2
    assert np.median(np.abs(many - 1)) < 0.06
    assert np.abs(many - 1).max() < 0.25


@pytest.mark.parametrize("name", MESH_GEMMS)
def test_a_batch_is_its_singles(name: str) -> None:
    rng = np.random.default_rng(1)
    cores = rng.choice([1.0, 2.0, 4.0, 6.0, 8.0, 16.0], size=20)
    m, k, n = (rng.integers(1, 4000, size=20).astype(float) for _ in range(3))
    many = PARTITION[name].cost(GemmShape(m, k, n), "mesh", cores, LOCKED, ENGINES, 2)
    for i in range(20):
        cost = PARTITION[name].cost(GemmShape(m[i], k[i], n[i]), "mesh", cores[i], LOCKED, ENGINES, 2)
        assert [float(value[i]) for value in many] == pytest.approx([float(value) for value in cost])


@pytest.mark.parametrize("name", MESH_GEMMS)
def test_a_model_takes_it_by_name_and_a_group_that_is_no_mesh_does_not(name: str) -> None:
    words = ("chip=npu64", "model=qwen3_1b7", "workload.batch=[8]", "workload.prompt=200", "workload.output=4")
    question = asked(*words, "mapping.both.tp=4", f"mapping.both.partition={name}", "mapping.both.placement=mesh")
    closed, events = (
        float(evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns["latency"][0])
        for word in ("analytical", "events")
    )
    assert events == pytest.approx(closed, rel=0.1)
    line = asked(*words, f"mapping.both.partition={name}", "mapping.both.placement=ring")
    with pytest.raises(
        DesignError, match=f"{name} needs a group that is a mesh, got placement=.*; set mapping.both.placement=mesh"
    ):
        typed(line)
