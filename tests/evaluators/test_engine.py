"""Engines of a tile: the published identity, products as they would be counted by hand, peaks that nothing exceeds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.machine.compute_engines import TileEngines, pipelined_element_cycles, systolic_cycles
from dse.evaluators.machine.mesh_fabric import with_vector_reduction
from dse.space.chip import DATAFLOWS, MatrixEngine, VectorEngine
from dse.space.fields import replace_leaves
from tests.samples import asked

VECTOR = VectorEngine(lanes=128.0, special=64.0, start=20.0)
ARRAY = MatrixEngine(dataflow="weight", rows=32, cols=32, depth=0, reload="hidden", fill=0.0, start=0.0)
CE = MatrixEngine(dataflow="ce", rows=32, cols=16, depth=3, reload="hidden", fill=10.0, start=0.0)

sizes = st.tuples(st.integers(1, 700), st.integers(1, 700), st.integers(1, 700))


def engines(matrix: MatrixEngine, bandwidth: float = 1e9, clock: float = 1.0) -> TileEngines:
    return TileEngines(clock, matrix, VECTOR, bandwidth)


def counted(m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Cycles of a weight-stationary array, tile by tile: weights in, skewed rows through, the last sum out."""
    clock = 0
    for _ in range(-(-k // rows)):
        for _ in range(-(-n // cols)):
            clock += rows  # weights move down, a row a cycle
            clock += m + (rows - 1) + (cols - 1)  # the last row of inputs enters skewed and its sums leave skewed
    return clock - 1


@given(sizes, st.integers(1, 128), st.integers(1, 128))
def test_weights_reloaded_per_tile_take_the_published_identity(shape: tuple[int, int, int], rows: int, cols: int) -> None:
    m, k, n = shape
    identity = -(-k // rows) * -(-n // cols) * (2 * rows + cols + m - 2) - 1
    given_engines = engines(replace(ARRAY, rows=rows, cols=cols, reload="tile"))
    assert given_engines.product(m, k, n, 2) == identity == counted(m, k, n, rows, cols)


@given(sizes, st.integers(1, 128), st.integers(1, 128))
def test_hidden_loading_saves_all_but_one(shape: tuple[int, int, int], rows: int, cols: int) -> None:
    m, k, n = shape
    tiles = -(-k // rows) * -(-n // cols)
    seen, hidden = (systolic_cycles((k, n), m, rows, cols, how) for how in ("tile", "hidden"))
    assert seen - hidden == (tiles - 1) * rows


@given(sizes)
def test_what_stays_decides_which_sizes_are_padded(shape: tuple[int, int, int]) -> None:
    """Inputs that stay are the weights that stay of the transposed product."""
    m, k, n = shape
    weight, inputs = (engines(replace(ARRAY, dataflow=name)) for name in ("weight", "input"))
    assert weight.product(m, k, n, 2) == inputs.product(n, k, m, 2)
    output = engines(replace(ARRAY, dataflow="output"))
    assert output.product(m, k, n, 2) == systolic_cycles((m, n), k, 32, 32, "hidden")


@given(st.sampled_from(DATAFLOWS), sizes, st.sampled_from(["tile", "hidden"]), st.floats(1, 4096))
def test_no_engine_exceeds_its_peak(dataflow: str, shape: tuple[int, int, int], reload: str, bandwidth: float) -> None:
    given_engines = engines(replace(CE if dataflow == "ce" else ARRAY, dataflow=dataflow, reload=reload), bandwidth)
    assert 0 < given_engines.utilisation(*shape, 2) <= 1


@given(st.sampled_from(DATAFLOWS), sizes, st.floats(1, 64))
def test_a_slow_memory_bounds_a_product(dataflow: str, shape: tuple[int, int, int], bandwidth: float) -> None:
    matrix = replace(CE if dataflow == "ce" else ARRAY, dataflow=dataflow)
    m, k, n = shape
    assert engines(matrix, bandwidth).product(m, k, n, 2) >= 2 * (m * k + k * n + m * n) / bandwidth


def test_slices_of_128_nearly_fill_the_array_and_small_ones_do_not() -> None:
    """[zhang2026] section V-B: up to 98 % on slices of 128 x 128 with a head of 128; over-flattening below."""
    given_engines = engines(CE, 512.0)
    assert given_engines.utilisation(128, 128, 128, 2) == pytest.approx(0.98, abs=0.005)
    shares = [given_engines.utilisation(side, 128, side, 2) for side in (16, 32, 64, 128, 256)]
    assert shares == sorted(shares)
    assert shares[0] < 0.2


def test_elements_stream_a_long_product_without_loss_but_the_fill() -> None:
    assert pipelined_element_cycles(32, 1600, 64, 32, 16, 3, 0) == 64 * 100
    assert pipelined_element_cycles(32, 1600, 64, 32, 16, 3, 10) == 64 * 100 + 10


def test_vector_instructions_wait_for_lanes_specials_or_memory() -> None:
    given_engines = engines(CE, 512.0, 2.0)
    assert given_engines.instruction(1280.0, 0.0, 0.0) == 10 / 2
    assert given_engines.instruction(1280.0, 1280.0, 0.0) == 20 / 2
    assert given_engines.instruction(1280.0, 0.0, 51200.0) == 100 / 2


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_a_batch_is_its_singles(dataflow: str) -> None:
    rng = np.random.default_rng(3)
    m, k, n, rows, cols, bandwidth = (rng.integers(1, 300, size=50).astype(float) for _ in range(6))
    base = replace(CE if dataflow == "ce" else ARRAY, dataflow=dataflow)
    many: Any = engines(replace(base, rows=rows, cols=cols), bandwidth).product(m, k, n, 2)
    for i in range(50):
        single = engines(replace(base, rows=rows[i], cols=cols[i]), bandwidth[i]).product(m[i], k[i], n[i], 2)
        assert many[i] == pytest.approx(single, rel=1e-12)


@pytest.mark.parametrize("chip", ["npu64", "npu256"])
def test_memory_binds_sums_of_cores_whose_lanes_run_products(chip: str) -> None:
    """So that it does not matter whether a multiply-add is one operation of theirs or two."""
    given_chip = asked(f"chip={chip}").base.chip
    assert given_chip.tile.gemm_engine == "either"
    assert (
        with_vector_reduction(replace_leaves(given_chip, {"tile.vector.lanes": 2 * given_chip.tile.vector.lanes})).combine
        == with_vector_reduction(given_chip).combine
    )
