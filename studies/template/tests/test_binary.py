"""The kernel computes what it should, and its closed form takes as long as its program."""

import dse
import numpy as np
import pytest
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.testing.functional_simulator import run_program

from my_mesh import binary


@pytest.mark.parametrize(("rows", "cols", "k", "n"), [(1, 1, 5, 3), (2, 3, 8, 8), (11, 5, 90, 70), (16, 16, 100, 33)])
def test_its_program_is_the_product(rows: int, cols: int, k: int, n: int) -> None:
    shape, mesh, rng = GemmShape(1, k, n), CoreMesh(rows, cols), np.random.default_rng(3)
    x, w = rng.normal(size=(1, k)).astype("f4"), rng.normal(size=(k, n)).astype("f4")
    out = binary.gather_result(
        shape, mesh, run_program(binary.build_program(shape, mesh), binary.scatter_operands(shape, mesh, x, w))
    )
    assert np.abs(out - x @ w).max() < 1e-4


@pytest.mark.parametrize("rows", [4, 8, 16])
def test_its_cost_is_that_of_its_program(rows: int) -> None:
    words = ("chip=wse2", "workload=gemv", "workload.shapes=[1x512x700]", f"mapping.rows={rows}", "mapping.gemv=binary")
    closed, events = (dse.evaluate(*words, f"fidelity={fidelity}").metrics["latency"] for fidelity in ("analytical", "events"))
    assert closed == pytest.approx(events, rel=1e-9)
