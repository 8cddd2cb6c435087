"""What is left to choose takes the least time: as fast as the best that could be said, and never slower with more memory.

CHOICES=1000 pytest tests/evaluators/test_quickest.py draws so many layers and chips.
"""

import os
from itertools import product
from typing import Any

import numpy as np
import pytest

from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.analytical_attention import TilingChoice, propose_tiling, resolve_job
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import SAME_AS_ACTIVATIONS, AttentionShape, AttentionTiling
from dse.evaluators.kernels.attention.dataflow import Dataflow
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling, WeightStorage
from dse.evaluators.kernels.gemm.summa_diagonal import buffers as held
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.vector.row_kernels import build_norm_kernel
from dse.evaluators.tuning import fastest_candidate as quickest
from dse.evaluators.tuning.design_groups import group_designs, interval_index
from dse.evaluators.tuning.fastest_candidate import BETWEEN, MEMORY_SIZES, MIN_SPEEDUP, ROOM, memory_steps
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.mapping import AttentionPlan, TileGemmPlan
from tests.samples import asked

DRAWS = int(os.environ.get("CHOICES", "12"))
SLICES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
RATE = "hbm.channel_bandwidth"
OPEN = TileGemmPlan(rows=0, m=0, k=0, n=0, split_k=0)


def chip(rng: np.random.Generator) -> Chip:
    """Tiles, engines, links and memory of many sizes."""
    changes = {
        "mesh.rows": int(rng.choice([4, 8, 12, 16, 32])),
        "mesh.cols": int(rng.choice([4, 8, 16, 32])),
        "tile.sram": float(rng.choice([128, 192, 384, 768, 1536])) * 1024 * rng.uniform(1.0, 1.3),
        "tile.matrix.dataflow": str(rng.choice(["ce", "weight", "output", "input"])),
        "tile.matrix.rows": int(rng.choice([16, 32, 64, 128])),
        "tile.matrix.cols": int(rng.choice([8, 16, 32, 64])),
        "tile.vector.lanes": float(rng.choice([64, 128, 512])),
        "noc.word_bytes": float(rng.choice([32, 64, 128, 256])),
        "hbm.channel_bandwidth": float(rng.uniform(1e10, 2e11)),
        "hbm.channels": int(rng.choice([8, 16, 32, 64])),
    }
    return replace_leaves(asked("chip=tile32", "workload=attention").base.chip, changes)  # type: ignore[return-value]


def layer(rng: np.random.Generator) -> AttentionShape:
    """Prefill or decode of heads with keys of their own, shared or latent."""
    keys, heads = int(rng.choice([128, 300, 512, 1000, 4096, 8192, 32768])), int(rng.choice([8, 32, 64]))
    batch, causal = int(rng.choice([1, 4, 32])), bool(rng.random() < 0.2 and keys < 8192)
    queries, shared = int(rng.choice([keys, keys, 1, 4])), int(rng.choice([1, 4, 8]))
    if rng.random() < 0.2:
        return AttentionShape(batch, heads, 1, min(queries, 4), keys, 576, 512, False, True)
    return AttentionShape(batch, heads, heads // shared, queries, keys, int(rng.choice([64, 128])), 128, causal)


def divisors(side: Any) -> list[int]:
    return [count for count in range(1, int(side) + 1) if side % count == 0]


def explicit(dataflow: Dataflow, shape: AttentionShape, chip: Chip) -> tuple[Any, ...]:
    """Groups and slices that could be said."""
    sides = (divisors(chip.mesh.rows), divisors(chip.mesh.cols)) if dataflow.grouped else ([1], [1])
    slices = ([*(size for size in SLICES if size < most), most] for most in (shape.rows, shape.keys))
    pairs = product(*slices)
    if not dataflow.grouped:  # blocks of as many queries as keys, or of all there are
        pairs = ((min(size, shape.rows), min(size, shape.keys)) for size in (*SLICES, max(shape.rows, shape.keys)))
    return tuple(np.array([(row, col, *pair) for pair in pairs for row, col in product(*sides)], float).T)


def seconds(instance: Dataflow, shape: AttentionShape, chip: Chip, sizes: tuple[Any, ...]) -> Any:
    return closed_attention.job_cost(closed_attention.AttentionJob(instance, shape, AttentionTiling(*sizes), chip)).seconds


def chosen(dataflow: Dataflow, shape: AttentionShape, chip: Chip) -> Any:
    """Time of what is chosen."""
    tiling = propose_tiling(dataflow, shape, chip)
    return seconds(dataflow, shape, chip, (tiling.rows, tiling.cols, tiling.queries, tiling.keys))


@pytest.mark.parametrize("name", ATTENTION)
def test_what_is_left_open_is_as_fast_as_the_best_group_and_slice(name: str) -> None:
    rng, dataflow = np.random.default_rng(len(name)), ATTENTION[name]
    for _ in range(max(DRAWS // len(ATTENTION), 1)):
        shape, given_chip = layer(rng), chip(rng)
        sizes = explicit(dataflow, shape, given_chip)
        fits = np.asarray(TilingChoice(dataflow, shape, 2.0).local_memory(sizes)) <= given_chip.tile.sram
        if not fits.any():
            continue
        best = np.min(seconds(dataflow, shape, given_chip, tuple(size[fits] for size in sizes)))
        assert chosen(dataflow, shape, given_chip) <= 1.02 * best, (shape, given_chip)


def test_more_memory_never_makes_what_is_chosen_slower() -> None:
    rng = np.random.default_rng(1)
    for _ in range(DRAWS):
        dataflow, shape, given_chip = ATTENTION[str(rng.choice(list(ATTENTION)))], layer(rng), chip(rng)
        rooms = given_chip.tile.sram * np.sort(rng.uniform(1, 8, 6))
        times = [chosen(dataflow, shape, replace_leaves(given_chip, {"tile.sram": float(room)})) for room in rooms]
        if TilingChoice(dataflow, shape, 2.0).local_memory((1, 1, 1, 1)) <= rooms[0]:
            # candidates that differ by less are not told apart
            assert (np.diff(times) <= (1 - MIN_SPEEDUP) * times[0]).all(), (dataflow, shape, times)


def product_seconds(shape: GemmShape, part: SummaTiling, chip: Chip, weights: WeightStorage | None = None) -> Any:
    return np.asarray(closed_summa.job_seconds(closed_summa.SummaJob(shape, part, chip, 1, 2.0, weights)))


def test_products_left_open_are_as_fast_as_the_best_slices_and_never_slower_with_more_memory() -> None:
    rng = np.random.default_rng(2)
    for _ in range(max(DRAWS // 3, 1)):
        m, k, n = (int(rng.choice(sizes)) for sizes in ((1, 16, 300, 1024, 4096), (512, 1000, 4096), (512, 1000, 14336)))
        shape, given_chip = GemmShape(m, k, n), chip(rng)
        twos = [size for size in SLICES if size & (size - 1) == 0 and size <= 512]
        tilings = np.array(list(product(twos, twos, twos, divisors(given_chip.mesh.rows))), float).T
        fits = sum(slot.nbytes for slot in held(SummaTiling(*tilings), "float16")) <= given_chip.tile.sram
        best = np.min(product_seconds(shape, SummaTiling(*tilings[:, fits]), given_chip))
        rooms = given_chip.tile.sram * np.array([1.0, 1.5, 2.5, 4.0])
        parts = [
            closed_summa.propose_summa_job(shape, replace_leaves(given_chip, {"tile.sram": float(room)}), OPEN).part
            for room in rooms
        ]
        times = [float(product_seconds(shape, part, given_chip)) for part in parts]
        assert times[0] <= 1.02 * best, (shape, given_chip, parts[0])
        assert (np.diff(times) <= 0).all()


@pytest.mark.parametrize("differ", ["memory", "engines and sides", "clocks too"])
def test_slices_of_a_product_are_the_first_of_the_quickest_that_fit(differ: str) -> None:
    """Of all candidates, however many designs and structures are looked at together."""
    rng = np.random.default_rng(4)
    for _ in range(max(DRAWS // 6, 1)):
        shape, given_chip = GemmShape(int(rng.choice([1, 16, 300, 4096])), int(rng.choice([1000, 4096])), 4096), chip(rng)
        weights = [None, WeightStorage(1.0), WeightStorage(0.53125, 3.0)][rng.integers(3)]
        many = {"tile.sram": 10 ** rng.uniform(3.5, 7, 900), "hbm.channel_bandwidth": 10 ** rng.uniform(9, 12, 900)}
        if differ != "memory":
            many |= {side: rng.choice([4.0, 8.0, 12.0], 900) for side in ("mesh.rows", "mesh.cols")}
            many |= {"tile.matrix.rows": rng.choice([16.0, 32.0, 64.0], 900)}
        if differ == "clocks too":
            many |= {"clock": rng.uniform(5e8, 2e9, 900), "noc.word_bytes": rng.choice([64.0, 128.0], 900)}
        part = closed_summa.propose_summa_job(shape, replace_leaves(given_chip, many), OPEN, 1, 2.0, weights).part
        for row in range(0, 900, 40):
            alone = replace_leaves(given_chip, {name: value[row].item() for name, value in many.items()})
            options = closed_summa._options(shape, 1, (alone.mesh.rows, alone.mesh.cols), OPEN)
            need = np.asarray(sum(slot.nbytes for slot in held(options, "float16", weights)))
            over = np.maximum(need / alone.tile.sram - 1, 0.0)
            best = np.lexsort((product_seconds(shape, options, alone, weights), over))[0]
            assert [of_row(side, row) for side in part] == [side[best] for side in options], (shape, alone)
            # few designs are looked at without a compiled loop
            assert closed_summa.search_summa_tiling(shape, alone, OPEN, 1, 2.0, weights) == tuple(
                side[best] for side in options
            )


def test_what_was_chosen_takes_the_time_that_it_was_chosen_for() -> None:
    """To the bit, of many designs and several cases: what is priced with that time is priced the same without it."""
    rng, known = np.random.default_rng(5), 0
    plan = {"rows": 0, "cols": 0, "queries": 0, "keys": 0}
    for name in list(ATTENTION) * max(DRAWS // 12, 1):
        given_chip, product = chip(rng), GemmShape(int(rng.choice([1, 300, 4096])), 1000, 4096)
        many: dict[str, Any] = {
            "hbm.channel_bandwidth": 10 ** rng.uniform(9, 12, 90),
            "tile.sram": 10 ** rng.uniform(4.5, 7, 90),
        }
        if rng.random() < 0.5:
            many |= {side: rng.choice([4.0, 8.0, 12.0], 90) for side in ("mesh.rows", "mesh.cols")}
        designs, weights = replace_leaves(given_chip, many), [None, WeightStorage(0.53125, 3.0)][rng.integers(2)]
        several = GemmShape(np.array([[1.0], [300.0]]), 1000, 4096)
        jobs: list[tuple[Any, Any]] = [
            (closed_summa, closed_summa.propose_summa_job(product, designs, OPEN, 1, 2.0, weights)),
            (closed_summa, closed_summa.propose_summa_job(several, designs, OPEN)),
            (closed_streamed, closed_streamed.propose_row_job(build_norm_kernel(), 700, 4096, designs)),
            (closed_streamed, closed_streamed.propose_row_job(build_norm_kernel(), several.m, 4096, designs)),
            (
                closed_attention,
                resolve_job(
                    ATTENTION[name], layer(rng), designs, AttentionPlan(dataflow=name, **plan), 2.0, SAME_AS_ACTIVATIONS
                ),
            ),
        ]
        for reader, job in jobs:
            priced, anew = reader.job_cost(job), reader.job_cost(job._replace(taken=None))
            assert np.array_equal(priced.seconds, anew.seconds), (name, given_chip, job)
            assert all(np.array_equal(*pair) for pair in zip(priced.activity, anew.activity, strict=True))
            known += job.taken is not None
    assert known == len(ATTENTION) * max(DRAWS // 12, 1) * len(jobs)


def test_what_is_chosen_does_not_depend_on_what_is_chosen_beside_it() -> None:
    rng = np.random.default_rng(3)
    for _ in range(max(DRAWS // 6, 1)):
        dataflow, shape, given_chip = ATTENTION[str(rng.choice(list(ATTENTION)))], layer(rng), chip(rng)
        many = {
            "mesh.rows": rng.choice([4.0, 8.0, 12.0], 24),
            "tile.matrix.rows": rng.choice([16.0, 32.0, 64.0], 24),
            "tile.sram": 10 ** rng.uniform(4.5, 7, 24),
            "hbm.channel_bandwidth": 10 ** rng.uniform(9, 12, 24),
        }
        product = GemmShape(int(rng.choice([1, 300, 4096])), 1000, 4096)
        designs = replace_leaves(given_chip, many)
        groups, parts = propose_tiling(dataflow, shape, designs), closed_summa.propose_summa_job(product, designs, OPEN).part
        for row in range(0, 24, 5):
            alone = replace_leaves(given_chip, {name: value[row].item() for name, value in many.items()})
            quickest._useful._results.clear()
            tiling, part = propose_tiling(dataflow, shape, alone), closed_summa.propose_summa_job(product, alone, OPEN).part
            for name in ("rows", "cols", "queries", "keys"):
                assert of_row(getattr(groups, name), row) == getattr(tiling, name), (dataflow, shape, alone)
            assert tuple(of_row(side, row) for side in parts) == part


def of_row(side: Any, row: int) -> Any:
    """Of one of many designs, where all may have the same number."""
    return side[row] if isinstance(side, np.ndarray) else side


Sizes = tuple[float, ...]


def worth(kernel: TilingChoice, chip: Chip, tiling: AttentionTiling) -> list[list[Sizes]]:
    """Of one structure, what is worth its memory at each rate, by memory and sizes: candidate by candidate, as defined."""
    room = MEMORY_SIZES[min(int(interval_index(MEMORY_SIZES, chip.tile.sram)) + 1, len(MEMORY_SIZES) - 1)]
    rates = BETWEEN[int(interval_index(memory_steps(chip)[RATE], chip.hbm.channel_bandwidth))]  # type: ignore[arg-type]

    def chains(candidates: list[Sizes]) -> tuple[list[list[int]], Any]:
        sizes, chains = tuple(np.array(candidates).T), []
        held = np.asarray(kernel.local_memory(sizes))
        fits = [at for at in range(len(held)) if held[at] <= room] or [min(range(len(held)), key=lambda at: held[at])]
        for rate in rates:
            leaves = replace_leaves(chip, {RATE: rate})
            work = kernel.work(leaves, sizes, kernel.size_counts(leaves, sizes))
            times = np.broadcast_to(kernel.seconds(leaves, sizes, work, kernel.memory(leaves)), held.shape)
            least, kept = np.inf, []
            for at in sorted(fits, key=lambda at: (held[at], at)):
                kept += [at] * bool(times[at] < least * MIN_SPEEDUP)
                least = min(least, times[at])
            chains.append(kept)
        return chains, held

    options = list(zip(*(size.tolist() for size in kernel.options(chip, tiling)), strict=True))
    kept, held = chains(options)
    mine = [options[at] for at in sorted({at for chain in kept for at in chain}, key=lambda at: (held[at], at))]
    near = np.stack(kernel.neighbours(tiling, tuple(np.array(mine).T)), axis=-1)
    both = list(dict.fromkeys([*mine, *map(tuple, near.reshape(-1, near.shape[-1]).tolist())]))
    kept, held = chains(both)
    return [sorted((both[at] for at in chain), key=lambda option: (held[both.index(option)], option)) for chain in kept]


def test_bounds_are_never_above_the_time_that_they_are_of() -> None:
    """Of all candidates of a layer, at all rates; some of them half of the time or more."""
    rng, near = np.random.default_rng(8), 0.0
    for dataflow in list(ATTENTION.values()) * max(DRAWS // 12, 1):
        shape, given_chip = layer(rng), chip(rng)
        many = replace_leaves(given_chip, {RATE: BETWEEN.reshape(-1, 1)})
        kernel = TilingChoice(dataflow, shape, 2.0)
        sizes = kernel.options(
            given_chip,
            AttentionTiling(0 if dataflow.grouped else 1, 0 if dataflow.grouped else 1, 0, 0, 0 if dataflow.split else 1),
        )
        counted, memory = kernel.size_counts(given_chip, sizes), kernel.memory(many)
        seconds = kernel.seconds(given_chip, sizes, kernel.work(given_chip, sizes, counted), memory)
        every, none = np.arange(len(sizes[0])), np.zeros(len(sizes[0]), int)
        bounds = kernel.bounds(given_chip, kernel.bound_inputs(sizes, counted), memory)
        least = bounds.of_pairs(quickest.CandidatePairs(none, every, every, np.array([0, len(every)])))
        assert (least <= seconds).all(), (dataflow, shape, given_chip)
        near = max(near, float((least / seconds).max()))
    assert near > 0.5


def test_what_bounds_leave_out_is_no_faster_than_what_needs_less() -> None:
    """Of times and bounds of any kind, which pairs are faster than all before stays; with a compiled loop, and without."""
    rng = np.random.default_rng(9)
    for count in (20, 90) * (DRAWS // 2):
        counts = rng.integers(1, 60, count)
        starts = np.cumsum([0, *counts])
        structure = np.repeat(np.arange(count), counts)
        order = np.lexsort((rng.random(starts[-1]), structure))
        pairs = quickest.CandidatePairs(structure, np.arange(starts[-1]), order, starts)
        turns, nbytes = np.round(rng.uniform(1, 3, (2, starts[-1])), 1)
        busy, byte = rng.choice([0.5, 1.0], (4, count)), rng.choice([0.5, 1.0, 2.0], (5, count))
        bounds = quickest.CandidateBounds(turns, nbytes, rng.integers(0, 4, starts[-1]), busy, byte)
        least = bounds.of_pairs(pairs)
        seconds = least / rng.choice([0.3, 0.99, 1.0], least.shape, p=[0.05, 0.45, 0.5])
        kept = quickest._promising(bounds, pairs, lambda subset, seconds=seconds: seconds[:, subset.candidate])  # type: ignore[misc]
        better = quickest._faster(seconds, pairs)
        assert len(kept.candidate) < 0.8 * starts[-1]
        assert set(np.flatnonzero(better.any(axis=0)).tolist()) <= set(kept.candidate.tolist())
        assert (quickest._faster(seconds[:, kept.candidate], kept) == better[:, kept.candidate]).all()


@pytest.mark.parametrize("many", [1, 1 << 30])
def test_what_is_worth_its_memory_is_what_a_loop_over_candidates_finds(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many structures, which have other candidates each, in one array; with and without a compiled loop, and bounds."""
    monkeypatch.setattr(quickest, "MANY", many)
    monkeypatch.setattr(quickest, "EACH", 1)
    rng = np.random.default_rng(6)
    for count in (3, 80) * max(DRAWS // 12, 1):
        dataflow, shape, given_chip = ATTENTION[str(rng.choice(list(ATTENTION)))], layer(rng), chip(rng)
        values: dict[str, Any] = {
            "mesh.rows": rng.choice([4.0, 8.0, 12.0], count),
            "tile.matrix.rows": rng.choice([16.0, 32.0, 64.0], count),
            "clock": rng.uniform(5e8, 2e9, count),
            ROOM: 10 ** rng.uniform(3, 7, count),
            RATE: 10 ** rng.uniform(9, 12, count),
        }
        rows = rng.choice([0.0, 1.0, 2.0, 4.0], count) if dataflow.grouped else 1
        tiling = AttentionTiling(rows, 0 if dataflow.grouped else 1, 0, 0, 0 if dataflow.split else 1)
        kernel, designs = (
            TilingChoice(dataflow, shape, 2.0),
            group_designs(replace_leaves(given_chip, values), tiling, memory_steps(given_chip)),
        )
        quickest._useful._results.clear()
        result = quickest._worths(kernel, designs)
        for row in range(0, count, 11):
            entry = result[designs.which[row]]
            sizes = entry.table[: len(entry.form[0])].T
            own = replace_leaves(given_chip, {name: column[row].item() for name, column in values.items()})
            alone = replace_leaves(tiling, {"rows": rows[row].item()}) if dataflow.grouped else tiling
            chosen = [
                [tuple(sizes[at].tolist()) for at, need in zip(places, needs, strict=True) if need < np.inf]
                for places, needs in zip(entry.places, entry.needs, strict=True)
            ]
            assert chosen == worth(kernel, own, alone), (dataflow, shape, own)
