"""Whole grids evaluated once, and searches replayed on them by the product's own samplers."""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import PHYSICS_VERSION, evaluate
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import is_simulated
from dse.execution.ask_tell import run_search
from dse.execution.limit_filter import make_early_limits
from dse.execution.objective_structure import EvaluationStructure
from dse.execution.study import Study
from dse.execution.workers import Batch
from dse.search.optuna_samplers import make_sampler, run_plain_optuna
from dse.search.pareto import convert_to_minimisation, front_mask, hypervolume
from dse.search.samplers import Feedback, LowFidelitySource, Values, allow_all
from dse.space.array_math import Array
from dse.space.design import key_of_leaves
from dse.space.knobs import Columns
from dse.store.store import DesignResult, Store

SPACES = {
    "PRESERVE": ("preserve_cluster", "+areas@chip.areas=preserve_interfaces", "workload.decode_context=mean"),
    "wafer": (
        "waferllm_autotune",
        "space.mapping.decode.rows='range(240,751,30)'",
        "+space.mapping.decode.cols='choice(0,360,480,600,720)'",
        "+space.chip.core.sram='tag(KiB, choice(32,48,64))'",
        "~objectives.prefill_throughput",
        "~objectives.tokens_per_s_per_user",
        "+objectives.latency=min",
        "+objectives.kv_capacity=max",
        "+objectives.die_mm2=min",
    ),
    "product": (
        "waferllm_gemm",
        "search.window=4",
        "fidelity=events",
        "workload.shapes=[128x256x256]",
        "space.mapping.rows='range(4,33,4)'",
        "+space.mapping.cols='range(4,33,4)'",
        "+space.chip.mesh.rows='range(8,33,8)'",
        "+space.chip.mesh.cols='range(8,33,8)'",
        "+space.chip.core.sram='tag(KiB, choice(4,8,16,24,32,48))'",
        "+objectives.die_mm2=min",
    ),
    "attention": (
        "flat_fig9",
        "search.window=4",
        "workload.batch=1",
        "workload.heads=4",
        "workload.keys=[300]",
        "workload.qk=64",
        "+space.mapping.dataflow='choice(flat_hw,flat_async,flat_seq,flat_tree)'",
        "space.mapping.rows='choice(2,4,8)'",
        "space.mapping.cols='choice(2,4,8)'",
        "+space.mapping.queries='choice(16,32,64)'",
        "+space.mapping.keys='choice(16,32,64)'",
        "+space.chip.mesh.rows='choice(4,8)'",
        "+space.chip.mesh.cols='choice(4,8)'",
        "+space.chip.hbm.channels='choice(4,8)'",
        "+space.chip.noc.word_bytes='tag(B, choice(32,128))'",
        "~objectives.hbm_bytes",
        "+objectives.die_mm2=min",
        "+objectives.energy=min",
    ),
    "pipelines": (
        "hbm_in_models",
        "search.window=4",
        "workload.batch=[16]",
        "workload.prompt=[1024]",
        "workload.output=[64]",
        "+space.chip.tile.sram='tag(MB, choice(16,32,64))'",
        "+space.chip.tile.matrix.rows='choice(32,64,128)'",
        "+space.chip.tile.matrix.cols='choice(32,64,128)'",
        "+space.chip.hbm.channel_bandwidth='tag(GB/s, choice(60,120,240,480))'",
        "+space.mapping.both.tp='choice(1,2,4,8)'",
        "+space.mapping.both.pp='choice(2,4,8)'",
        "+space.mapping.both.partition='choice(k,mn,mn_k,input_only)'",
        "+objectives.energy_per_token=min",
    ),
    "dies": (
        "deepseek_wafer",
        "search.window=4",
        "~space.mapping.both.tp",
        "+space.chip.d2d.bandwidth='tag(GB/s, choice(256,512,1024))'",
        "+space.chip.hbm.channel_bandwidth='tag(GB/s, choice(32,64,128))'",
        "+space.mapping.both.overlap='choice(none,two_batch)'",
        "~objectives.hbm_used",
        "+objectives.system_mm2=min",
        "+objectives.ttft=min",
    ),
    "serving": (
        "npu_serving",
        "search.window=4",
        "chip=h200",
        "model=llama3_8b",
        "mapping=serving",
        "inference_engine=none",
        "space=empty",
        "workload.requests=200",
        "workload.rate_scale=40",
        "screen.fidelity=steady_state",
        "~constraints.slo_attainment",
        "+space.chip.hbm.bandwidth='tag(TB/s, choice(2.4,3.6,4.8))'",
        "+space.chip.cores='choice(66,99,132)'",
        "+space.mapping.both.tp='choice(1,2,4,8)'",
        "+space.mapping.serving.policy='choice(chunked_prefill,orca,prefill_first)'",
        "+space.mapping.serving.max_batched_tokens='choice(256,512,1024,2048)'",
        "+space.mapping.serving.max_batch_size='choice(16,32,64,128)'",
        "+space.mapping.serving.instances='choice(1,2,4)'",
        "~objectives.energy_per_token",
    ),
    "mixed": (
        "six_chips",
        "search.window=4",
        "space.mapping.prefill.rows='range(300,751,90)'",
        "space.mapping.decode.rows='range(240,751,60)'",
        "space.mapping.both.attention.rows='choice(0,8,32)'",
        "space.mapping.both.attention.cols='choice(0,8,32)'",
        "+space.mapping.both.attention.dataflow='choice(flat_hw,flat_async,flash2,flash3)'",
        "+space.mapping.both.prefetch='choice(none,whole,partial)'",
        "+space.mapping.both.prefetch_share='choice(0.25,0.5,1.0)'",
        "+space.chip.cores='choice(32,108,216,435)'",
        "+space.chip.l2.size='tag(MB, choice(32,64,128,256))'",
        "+space.chip.hbm.channel_bandwidth='tag(GB/s, choice(60,120,240))'",
        "+space.chip.tile.matrix.rows='choice(32,64,128)'",
        "+objectives.ttft=min",
    ),
}
"""Shipped studies and what is changed in them, by the name that the finding gives the space."""


@dataclass(frozen=True)
class Grid:
    """All different designs of a space with their results at the study's fidelity.

    Attributes:
        study: study with the space, objectives, fidelity and search settings.
        columns: knobs.
        objectives: shape (designs, objectives).
        limit, need, have: most violated limit of each design; -1 where all hold.
    """

    study: Study
    columns: Columns
    objectives: Array
    limit: Array
    need: Array
    have: Array

    @property
    def size(self) -> int:
        """Number of different designs of the grid."""
        return len(self.objectives)

    @cached_property
    def ruled_out(self) -> Array:
        """Designs that violate an early limit, as in `dse.execution.limit_filter`, shape (designs,)."""
        space, workload = self.study.question.space, self.study.question.workload
        if any(is_simulated(chip_space.base, workload, self.study.fidelity) for _, chip_space in space.base_spaces):
            return self.limit >= 0
        out = np.zeros(self.size, dtype=bool)
        if limits := make_early_limits(space, workload, self.study.fidelity):
            broken = np.flatnonzero(self.limit >= 0)
            out[broken] = ~np.array(limits.find_possible([space.row(self.columns, int(row)) for row in broken]), dtype=bool)
        return out

    @cached_property
    def structure(self) -> EvaluationStructure:
        """Compositions of the objectives; the parts of a design are computed once for all searches."""
        return EvaluationStructure(self.study, None)

    def rows(self) -> dict[tuple[object, ...], int]:
        """Row of each design, by the items of its knob values."""
        space = self.study.question.space
        return {tuple(space.row(self.columns, row).items()): row for row in range(self.size)}

    def violated_limit(self, row: int) -> tuple[str, float, float]:
        """Most violated limit of a design with its need and have; empty string if all hold."""
        limit = int(self.limit[row])
        return list(SILICON_LIMITS)[limit] if limit >= 0 else "", float(self.need[row]), float(self.have[row])

    def share(self, rows: Array) -> float:
        """Share of the exact front's hypervolume that some designs dominate.

        The reference point is a tenth beyond the front's worst values.
        """
        low, high, whole = self._exact
        return hypervolume(self.objectives[rows[self.limit[rows] < 0]], self.study.directions, low, high) / whole

    def front_coverage(self, rows: Array, within: float = 0.01) -> float:
        """Share of the exact front's designs that are matched to a part of each objective's value.

        A front of a few designs has most of its hypervolume in one of them, and this still counts each.
        """
        exact, own = (
            convert_to_minimisation(self.objectives[designs], self.study.directions)
            for designs in (self.front, rows[self.limit[rows] < 0])
        )
        reach = exact + within * np.abs(exact)
        return float((own[:, None] <= reach).all(axis=2).any(axis=0).mean())

    def count_evaluations(self, target: float, rows: Array) -> int | None:
        """Number of designs, in order, that hold a share of the hypervolume together; None if all hold less."""
        if self.share(rows) < target:
            return None
        return 1 + bisect_left(range(1, len(rows) + 1), target, key=lambda count: self.share(rows[:count]))

    @cached_property
    def front(self) -> Array:
        """Designs of the exact front, shape (members,)."""
        good = np.flatnonzero(self.limit < 0)
        return np.asarray(good[front_mask(self.objectives[good], self.study.directions)])

    @cached_property
    def _exact(self) -> tuple[Array, Array, float]:
        exact = self.objectives[self.front]
        low, high = (f(convert_to_minimisation(exact, self.study.directions), axis=0) for f in (np.min, np.max))
        high = high + 0.1 * (high - low)
        return low, high, hypervolume(exact, self.study.directions, low, high)


def grid(name: str, folder: Path, *overrides: str) -> Grid:
    """Grid of a name, read from its file if it was evaluated before.

    Args:
        name: one of `SPACES`.
        folder: of the files.
        overrides: more of them.
    """
    study = find_study(*SPACES[name], *overrides)
    space = study.question.space
    assert space.combinations is not None
    columns = space.grid(0, space.combinations)
    path = folder / f"{file_name(study, study.fidelity)}.npz"
    if not path.exists():
        evaluation = evaluate(space.stack(columns), study.question.workload, fidelity=study.fidelity)
        objectives = np.column_stack([evaluation.columns[metric] for metric in study.objectives])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, objectives=objectives, limit=evaluation.limit, need=evaluation.need, have=evaluation.have)
    with np.load(path) as held:
        return Grid(study, columns, held["objectives"], held["limit"], held["need"], held["have"])


class Table:
    """Worker pool that looks up results of a grid."""

    def __init__(self, grid: Grid, rows: dict[tuple[object, ...], int]) -> None:
        self._grid = grid
        self._rows = rows
        self._found: list[DesignResult] = []
        self.order: list[int] = []
        self.children, self.cpu = False, 0.0

    def submit(self, batch: Batch) -> None:
        """Look up the designs of a batch at once."""
        for key, values, _ in batch:
            row = self._rows[tuple(values.items())]
            pairs = zip(self._grid.study.objectives, self._grid.objectives[row].tolist(), strict=True)
            metrics = {name: value for name, value in pairs if value == value}
            self._found.append(DesignResult(key, values, metrics, *self._grid.violated_limit(row)))
            self.order.append(row)

    def collect(self) -> list[DesignResult]:
        """Return the results of all submitted designs."""
        results, self._found = self._found, []
        return results

    def close(self) -> None:
        """Close the workers; nothing is open."""


def search_rows(
    grid: Grid,
    rows: dict[tuple[object, ...], int],
    name: str,
    seed: int,
    budget: int,
    seeds: list[Values],
    cheaper: LowFidelitySource | None = None,
) -> Array:
    """Rows that a search evaluates, each once, in order, without those excluded by limits.

    Args:
        grid: to search.
        rows: of its designs.
        name: of a sampler; after "optuna " of one of Optuna's own, without this product.
        seed: of the search.
        budget: number of different designs; for plain Optuna, of trials.
        seeds: first proposals.
        cheaper: a lower fidelity, of which `local` promotes designs.
    """
    study = grid.study
    if name.startswith("optuna "):
        order: list[int] = []

        def evaluation(values: Values) -> Feedback:
            row = rows[tuple(values.items())]
            order.append(row)
            excess = grid.need[row] / grid.have[row] - 1 if grid.limit[row] >= 0 else 0.0
            return Feedback(tuple(grid.objectives[row].tolist()), {"limit": float(excess)})

        space = study.question.space
        run_plain_optuna(name.removeprefix("optuna "), space, study.directions, seed=seed, trials=budget, evaluate=evaluation)
        return np.array(order)
    out, directions = grid.ruled_out, study.directions

    def possible(several: Sequence[Values]) -> list[bool]:
        return [not out[rows[tuple(values.items())]] for values in several]

    def verdict(key: str, values: Values) -> DesignResult | None:
        row = rows[tuple(values.items())]
        return DesignResult(key, values, {}, *grid.violated_limit(row)) if out[row] else None

    known = possible if out.any() else allow_all
    table, population = Table(grid, rows), study.search.population
    structure = grid.structure if name == "local" and cheaper is None else None
    source = make_sampler(
        name,
        study.question.space,
        directions,
        seed=seed,
        population=population,
        possible=known,
        cheaper=cheaper,
        structure=structure,
    )
    with TemporaryDirectory() as folder, closing(Store(f"{folder}/results.sqlite")) as store:
        store.begin(study.name, study.identity(), {})
        run_search(
            study, store, source, table, budget, seeds, lambda done, results: None, ruled_out=verdict, structure=structure
        )
    return np.array(table.order)


class Cheap:
    """Results of a grid at the screen's fidelity, for searches that promote designs.

    Args:
        grid: grid of the designs.
        folder: of the files, where it was evaluated before.
    """

    all = True

    def __init__(self, grid: Grid, folder: Path) -> None:
        study, space = grid.study, grid.study.question.space
        self.fidelity, self._rows = study.screen_fidelity, grid.rows()
        path = folder / f"{file_name(study, self.fidelity)}.npz"
        if not path.exists():
            evaluation = evaluate(space.stack(grid.columns), study.question.workload, fidelity=self.fidelity)
            objectives = np.column_stack([evaluation.columns[metric] for metric in study.objectives])
            np.savez(path, objectives=objectives, limit=evaluation.limit, need=evaluation.need, have=evaluation.have)
        with np.load(path) as held:
            self.objectives, self.limit = held["objectives"], held["limit"]
            excess = np.where(self.limit >= 0, held["need"] / np.maximum(held["have"], 1e-300) - 1, 0.0)
        self.each = [
            Feedback(None if np.isnan(values).any() else tuple(values.tolist()), {"limit": float(over)})
            for values, over in zip(self.objectives, excess, strict=True)
        ]
        self.pool = [(space.row(grid.columns, row), self.each[row]) for row in np.flatnonzero(self.limit < 0).tolist()]

    def feedback_on(self, designs: Sequence[Values]) -> list[Feedback]:
        """Look up the lower-fidelity results of designs."""
        return [self.each[self._rows[tuple(values.items())]] for values in designs]


def file_name(study: Study, fidelity: str) -> str:
    """What a file of a grid's results at a fidelity is called."""
    content = [("space", study.question.space.key), ("workload", study.context.workload), ("fidelity", fidelity)]
    return key_of_leaves([*content, ("physics", PHYSICS_VERSION), *study.objectives.items()])


def closed_front(grid: Grid, folder: Path | None = None) -> list[Values]:
    """Designs of the exact front at the screen's fidelity, the usual start of a study's search.

    Args:
        grid: grid of the designs.
        folder: of the files; None where the screen's fidelity is the grid's.
    """
    space, given_grid = grid.study.question.space, grid if folder is None else Cheap(grid, folder)
    good = np.flatnonzero(given_grid.limit < 0)
    best = good[front_mask(given_grid.objectives[good], grid.study.directions)]
    return [space.row(grid.columns, int(row)) for row in best]
