"""Norms, rotations, activations and routing from memory compute what they say, and take what their closed form says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models.analytical_rows import RowJob, local_bytes
from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector.row_kernels import (
    RowBlock,
    RowKernel,
    build_convolution_kernel,
    build_expert_choice_kernel,
    build_expert_combine_kernel,
    build_gate_kernel,
    build_norm_kernel,
    build_program,
    build_rotary_kernel,
    build_softcap_kernel,
    copy_kernel,
    cost,
    gather_result,
    row_waves,
    scatter_operands,
)
from dse.evaluators.layouts.tensor_formats import BYTES_BY_FORMAT
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.space.array_math import Array
from dse.space.fields import replace_leaves
from dse.space.number_formats import FORMATS
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.samples import asked

RECIPES: dict[str, RowKernel] = {
    "norm": build_norm_kernel(),
    "rotation": build_rotary_kernel(normed=False),
    "normed rotation": build_rotary_kernel(normed=True),
    "gate": build_gate_kernel(),
    "copy": copy_kernel(),
    "choice": build_expert_choice_kernel(2),
    "combination": build_expert_combine_kernel(3),
    "cap": build_softcap_kernel(),
    "convolution alone": build_convolution_kernel(3, alone=True),
}
MESH, WIDTH = CoreMesh(2, 3), 5
ROWS = (1, 4, 13, 37, 60)


def expected(name: str, v: dict[str, Array]) -> dict[str, Array]:
    x = v["x"][0] if "x" in v else np.array(0.0)
    if name == "norm":
        return {"out": x / np.sqrt((x * x).sum(axis=1, keepdims=True)) * 3}
    if name.endswith("rotation"):
        both = np.concatenate([x, v["y"][0]], axis=1)
        both = both / np.sqrt((both * both).sum(axis=1, keepdims=True)) * 3 if name.startswith("normed") else both
        x, y = both[:, :WIDTH], both[:, WIDTH:]
        return {"left": 0.6 * x - 0.8 * y, "right": 0.6 * y + 0.8 * x}
    if name == "cap":
        return {"out": np.tanh(x)}
    if name == "convolution alone":
        y = 2 * v["x0"][0] + 3 * v["x1"][0] - v["x2"][0]
        return {"out": y / (1 + np.exp(-y)), "x2": v["x2"][0]}
    if name == "gate":
        return {"out": x / (1 + np.exp(-x)) * v["y"][0]}
    if name == "choice":
        return {"chosen": -np.sort(-np.exp(x), axis=1)[:, :2]}
    return {"x": x} if name == "copy" else {"out": (v["x"] * v["score"]).sum(axis=0)}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", RECIPES)
def test_it_computes_what_it_says(name: str, rows: int) -> None:
    recipe, block, rng = RECIPES[name], RowBlock(2, WIDTH), np.random.default_rng(rows)
    times = {slot: recipe.loads.count(slot) for slot in recipe.loads}
    v = {slot: rng.normal(size=(n, rows, 1 if slot == "score" else WIDTH)) for slot, n in times.items()}
    program = build_program(recipe, rows, block, MESH, "float64", channels=3)
    known = {"weight": 3.0, "cos": 0.6, "sin": 0.8, "minus": -0.8, "w0": 2.0, "w1": 3.0, "w2": -1.0}
    tiles = {slot.name: np.full((program.rows, 3, *slot.shape), known.get(slot.name, 1.0)) for slot in program.slots}
    out = run_program(program, tiles, scatter_operands(v, recipe, block, MESH))
    # slots keep their names beside the streams of the same name: what was stored in full turns is there only if there were any
    full = [name for name in (*recipe.stored,) if rows > 12]
    stored = {key: value for key, value in out.items() if key in full or key.endswith("/last")}
    for slot, wanted in expected(name, v).items():
        assert gather_result(stored, slot, rows) == pytest.approx(wanted), slot


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", RECIPES)
def test_the_closed_form_counts_what_is_played(name: str, rows: int) -> None:
    recipe, block = RECIPES[name], RowBlock(2, WIDTH)
    program = build_program(recipe, rows, block, MESH, channels=3)
    memory = mesh_channels("south", 3, program.rows, 3, 100.0, 1.0)
    played = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    hardware: Any = (CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0), "float16")
    closed = cost(recipe, rows, block, MESH, *hardware).activity
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(played, count)), count


@pytest.mark.parametrize("rows", ROWS)
def test_a_convolution_reads_the_rows_before_a_block_once_more(rows: int) -> None:
    """Of a sequence whose rows are cut into blocks of two, each block with the two rows before it."""
    recipe, block, rng = build_convolution_kernel(3, alone=False), RowBlock(2, WIDTH), np.random.default_rng(rows)
    x = rng.normal(size=(rows, WIDTH))
    blocks = row_waves(rows, block, MESH).blocks
    padded = np.concatenate([np.zeros((2, WIDTH)), x, np.zeros((2 * blocks - rows, WIDTH))])
    windows = np.stack([padded[2 * turn : 2 * turn + 4] for turn in range(blocks)]).reshape(-1, WIDTH)
    program = build_program(recipe, rows, block, MESH, "float64", channels=3)
    known = {"w0": 2.0, "w1": 3.0, "w2": -1.0}
    tiles = {slot.name: np.full((program.rows, 3, *slot.shape), known.get(slot.name, 1.0)) for slot in program.slots}
    out = run_program(program, tiles, scatter_operands({"x": windows[None]}, recipe, RowBlock(4, WIDTH), MESH))
    stored = {key: value for key, value in out.items() if key.endswith("/last") or (rows > 12 and key == "out")}
    y = 2 * padded[:rows] + 3 * padded[1 : rows + 1] - x
    assert gather_result(stored, "out", rows) == pytest.approx(y / (1 + np.exp(-y)))
    hardware: Any = (CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0), "float16")
    assert cost(recipe, rows, block, MESH, *hardware).activity.memory_bytes == blocks * (4 + 2) * WIDTH * 2


@pytest.mark.parametrize("name", RECIPES)
def test_a_block_takes_its_rows_beside_what_it_takes_without_any(name: str) -> None:
    rng = np.random.default_rng(0)
    chip, recipe = asked("chip=tile_gh200", "workload=gemm", "mapping=summa").base.chip, RECIPES[name]
    packed = [replace(recipe, packed=tuple((slot, BYTES_BY_FORMAT[word]) for slot, _ in recipe.slots[:1])) for word in FORMATS]
    for variant in (recipe, *packed):
        rows, width = rng.integers(1, 1 << 20, 64).astype(float), rng.integers(1, 1 << 14, 64).astype(float)
        none, single, several = (local_bytes(RowJob(variant, rows, RowBlock(count, width), chip)) for count in (0, 1, rows))
        np.testing.assert_array_equal(several, none + (single - none) * rows)


@pytest.mark.parametrize("name", RECIPES)
def test_blocks_of_many_designs_are_those_of_a_few(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled loop chooses the very blocks that arrays of what is tried lead to, with the very times."""
    rng, chip = np.random.default_rng(len(name)), asked("chip=tile32", "workload=attention").base.chip
    many = {
        "mesh.rows": rng.choice([4.0, 8.0, 32.0], 90),
        "tile.sram": 10 ** rng.uniform(2, 6, 90),
        "tile.vector.lanes": rng.choice([16.0, 64.0, 512.0], 90),
        "hbm.channel_bandwidth": 10 ** rng.uniform(9, 12, 90),
        "clock": rng.uniform(5e8, 2e9, 90),
    }
    for rows, width in ((1, 64), (16, 4096), (700, 151_936), (40_000, 4096)):
        jobs = []
        for few in (64, 1 << 30):
            monkeypatch.setattr(closed_streamed, "MAX_LOOP_DESIGNS", few)
            jobs.append(closed_streamed.propose_row_job(RECIPES[name], rows, width, replace_leaves(chip, many)))
        first_job, other = ((job.rows, *job.block, job.taken) for job in jobs)
        assert all(map(np.array_equal, first_job, other)), (rows, width)
