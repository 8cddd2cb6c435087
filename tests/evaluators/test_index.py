"""An index scores what its definition says, the largest scores are found, and closed forms count what is played."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.analytical_indexer import build_indexer_jobs, score_job
from dse.evaluators.cost_models.event_simulator import simulate_events as timed
from dse.evaluators.cost_models.submesh_jobs import job_on_submesh
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.evaluators.kernels.vector.sparse_indexer import IndexerShape, build_topk_kernel, score_kernel
from dse.evaluators.machine.memory_channels import ColumnMemory, mesh_channels
from dse.evaluators.program.activity import COUNTS
from dse.evaluators.program.kernel_ir import CoreIndex, LoadInstruction, Round
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.testing.functional_simulator import run_program
from tests.agreement.test_events import CYCLES
from tests.agreement.test_strands import ENGINES
from tests.samples import asked

MESH = CoreMesh(2, 3)


def drawn(shape: IndexerShape, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    v = {
        "q": rng.normal(size=(shape.sequences, shape.queries, shape.heads, shape.dim)),
        "w": rng.normal(size=(shape.sequences, shape.queries, shape.heads)),
    }
    return v | {
        "k": rng.normal(size=(shape.sequences, shape.keys, shape.dim)),
        "scale": rng.uniform(0.5, 2, (shape.sequences, shape.keys)),
    }


def told(shape: IndexerShape, v: dict[str, Array]) -> Array:
    """Scores as they are defined, shape (sequences, queries, keys or blocks)."""
    keys = v["k"] * v["scale"][..., None] if shape.scale else v["k"]
    result = np.einsum("bth,bths->bts", v["w"], np.maximum(np.einsum("bthd,bsd->bths", v["q"], keys), 0))
    return np.asarray(result.reshape(*result.shape[:2], -1, shape.block).max(axis=-1))


def played(shape: IndexerShape, v: dict[str, Array], queries: int, keys: int, change: Any = None) -> Array:
    """Scores by the program, of one sequence's queries and all its keys an item."""
    walk = score_kernel(shape, queries, keys, "float32")
    down, across, many = shape.queries // queries, shape.keys // keys, keys // shape.block
    blocks = (across,) * -(-shape.sequences * down // 6)
    q = v["q"].reshape(-1, 1, queries, shape.heads, shape.dim)
    w = np.moveaxis(v["w"].reshape(-1, 1, queries, shape.heads), 3, 2)[:, :, :, None, None]
    k = v["k"].reshape(shape.sequences, across, many, shape.block, shape.dim).swapaxes(2, 3)
    scale = v["scale"].reshape(shape.sequences, across, many, shape.block).swapaxes(2, 3)[:, :, None, ..., None]
    given = {"q": q, "w": w} | {
        name: np.repeat(x, down, axis=0) for name, x in (("k", k), ("scale", scale)) if name in walk.loads
    }
    program = walked.build_program(walk, len(q), blocks, MESH, channels=3)
    program = change(program) if change else program
    out = walked.gather_result(
        run_program(program, {}, walked.scatter_operands(given, walk, blocks, MESH)), walk.stored[0], walk, blocks
    )
    return (
        np.moveaxis(out, -1, 1).reshape(shape.sequences, shape.queries, across, -1, many).max(axis=3)
        if shape.block > 1
        else (np.moveaxis(out, -1, 1).reshape(shape.sequences, shape.queries, -1))
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_an_index_scores_what_its_definition_says(data: Any) -> None:
    def pick(*values: int) -> int:
        return int(data.draw(st.sampled_from(values)))

    queries, keys, block = pick(1, 2, 3), pick(4, 8), pick(1, 2, 4)
    shape = IndexerShape(
        pick(1, 3), 5, pick(1, 4, 9), queries * pick(1, 2), keys * pick(1, 2, 5), block=block, scale=pick(0, 4)
    )
    if pick(0, 1):
        shape = replace(shape, packed=0.53125, expand=3.0)
    v = drawn(shape, data.draw(st.integers(0, 99)))
    scores = played(shape, v, queries, keys)
    assert scores.reshape(told(shape, v).shape) == pytest.approx(told(shape, v), rel=1e-4, abs=1e-4)


def elsewhere(program: Any, slot: str) -> Any:
    """The program with blocks of a slot loaded to the tile beside the one that they are for."""

    def step(instruction: Any) -> Any:
        wrong = isinstance(instruction, LoadInstruction) and instruction.slot == slot
        return (
            replace(instruction, cores=CoreIndex(instruction.cores.row, (instruction.cores.col + 1) % MESH.cols))
            if wrong
            else instruction
        )

    def turn(loop: Any) -> Any:
        return (
            Round(tuple(map(step, loop.steps)), loop.wait)
            if isinstance(loop, Round)
            else replace(loop, body=tuple(map(turn, loop.body)))
        )

    return replace(program, strands=tuple(tuple(map(turn, strand)) for strand in program.strands))


@pytest.mark.parametrize("slot", ["q", "w", "k"])
def test_what_comes_to_another_tile_is_noticed(slot: str) -> None:
    shape = IndexerShape(3, 5, 6, 2, 12)
    v = drawn(shape, 1)
    right, wrong = (played(shape, v, 2, 4, change) for change in (None, lambda program: elsewhere(program, slot)))
    assert right.reshape(told(shape, v).shape) == pytest.approx(told(shape, v), abs=1e-4)
    assert np.abs(wrong.reshape(told(shape, v).shape) - told(shape, v)).max() > 1e-2


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_positions_of_the_largest_are_found(data: Any) -> None:
    """In one go, and of parts first."""
    rows, top, parts = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    part = data.draw(st.integers(top + 1, 12))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(rows, parts * part)).astype(np.float32)
    wanted = np.sort(np.argsort(-x, axis=1)[:, :top], axis=1)
    first = largest(x.reshape(-1, part)[None], build_topk_kernel(top, 40, carried=True), "x")
    at = first["chosen"].reshape(rows, parts, top) + part * np.arange(parts)[:, None]
    assert first["values"] == pytest.approx(np.take_along_axis(x, at.reshape(rows, -1).astype(int), axis=1).reshape(-1, top))
    again = largest(
        np.stack([first["values"].reshape(1, rows, -1), at.reshape(1, rows, -1)]),
        build_topk_kernel(top, 40, later=True),
        "x",
        "at",
    )
    assert np.sort(again["found"], axis=1).tolist() == wanted.tolist()


def test_the_largest_are_found_among_many_that_are_equal() -> None:
    """As scores are where no head is above zero: equal ones that come first leave no larger one out."""
    x = np.array([[0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 3.0]], np.float32)
    assert sorted(largest(x[None], build_topk_kernel(3, 16), "x")["chosen"][0].tolist()) == [0, 4, 6]


def largest(values: Array, recipe: streamed.RowKernel, *names: str) -> dict[str, Array]:
    given = dict(zip(names, values if len(names) > 1 else [values], strict=True))
    rows, width = values.shape[-2:]
    block = streamed.RowBlock(2, width)
    program = streamed.build_program(recipe, rows, block, MESH, "float32", channels=3)
    out = run_program(program, {}, streamed.scatter_operands(given, recipe, block, MESH))
    stored = {key: value for key, value in out.items() if "/" in key or rows > 12}
    return {name: streamed.gather_result(stored, name, rows) for name in recipe.stored}


@pytest.mark.parametrize(
    "shape",
    [
        IndexerShape(3, 5, 4, 2, 24),
        IndexerShape(2, 4, 13, 1, 24, scale=4),
        IndexerShape(2, 4, 3, 4, 24, block=4),
        IndexerShape(2, 4, 7, 2, 24, packed=0.53125, expand=3.0),
    ],
)
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_the_closed_form_counts_what_is_played(shape: IndexerShape, blocks: int) -> None:
    walk, items = score_kernel(shape, 2, 4, "float16"), 2 * shape.sequences
    program = walked.build_program(walk, items, (blocks,) * -(-items // 6), MESH, channels=3)
    memory = mesh_channels("south", 3, program.rows, 3, 100.0, 1.0)
    activity = timed(program, CYCLES, engines=ENGINES, memory=memory).activity
    hardware: Any = (MESH, CYCLES, ENGINES, ColumnMemory(3, 100.0, 1.0, 1.0))
    closed = walked.cost(walk, items, blocks, *hardware, items * blocks).activity
    for count in COUNTS:
        assert getattr(closed, count) == pytest.approx(getattr(activity, count)), count


def chip(name: str = "tile32") -> Chip:
    chip: Chip = asked(f"chip={name}", "workload=attention").base.chip
    return chip


@pytest.mark.sampled
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_closed_and_played_times_agree_on_random_sizes(data: Any) -> None:
    def pick(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    itemsize, sequences = pick(1.0, 2.0), data.draw(st.integers(1, 80))
    shape = IndexerShape(
        pick(32, 64), 128, sequences, pick(1, 2), pick(4096, 9000, 40000), scale=4 if itemsize == 1 else 0, block=pick(1, 128)
    )
    shape = replace(shape, sequences=1, queries=shape.keys, causal=True) if shape.keys == 4096 and pick(True, False) else shape
    for job in build_indexer_jobs(shape, 2048, chip(pick("tile32", "tile_gh200")), itemsize).jobs:
        closed, played = (jobs.job_cost(fidelity, job) for fidelity in ("analytical", "events"))
        # a few tiles by themselves have their channel's links alone
        assert closed.seconds == pytest.approx(played.seconds, rel=0.2 if sequences > 8 else 0.3)
        assert closed.activity.memory_bytes == pytest.approx(played.activity.memory_bytes, rel=1e-12)


def test_an_index_of_bytes_is_read_once_by_a_decode_step() -> None:
    """Of 132 B a position, and as many operations as 16,384 a position."""
    shape = IndexerShape(64, 128, 64, 1, 131072, scale=4)
    moved = jobs.job_cost("analytical", score_job(shape, chip(), 1.0)).activity.memory_bytes
    scores_and_queries = 64 * 131072 * 2 + 1024 * 64 * (128 + 4)
    assert moved == 64 * 131072 * 132 + scores_and_queries
    assert shape.product_flop == 64 * 131072 * 16384


def test_a_part_of_the_mesh_stands_for_all_of_it() -> None:
    for shape in (IndexerShape(64, 128, 64, 1, 16384), IndexerShape(64, 128, 2, 4096, 4096, causal=True)):
        job = build_indexer_jobs(shape, 2048, chip())
        part, times = job_on_submesh(job, 8)
        assert times * jobs.job_cost("events", part).seconds == pytest.approx(jobs.job_cost("events", job).seconds, rel=0.15)
