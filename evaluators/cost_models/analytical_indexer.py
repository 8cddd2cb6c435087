"""Analytical jobs of sparse attention's indexer on a chip of tiles.

One job scores all positions, and another one selects the largest scores.
"""

from itertools import product
from typing import Any

import numpy as np

from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models.analytical_block_loop import BlockLoopJob, choose_fastest_job
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.kernels.vector.sparse_indexer import IndexerShape, build_topk_kernel, score_kernel
from dse.evaluators.program.kernel_ir import DTYPES
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.chip import Chip

QUERIES, KEYS, TURNS = (1, 2, 4, 8, 16), (32, 64, 128, 256, 512), (1, 2, 4)
"""Queries and keys of a block that are tried, and turns of all tiles into which keys are divided where queries are few."""

PART_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Parts of a row of scores that are tried, of which each gives as many as are wanted."""

SCORE_BYTES = 2.0
"""Bytes of a score."""


def score_job(shape: IndexerShape, chip: Chip, itemsize: float = 2.0) -> BlockLoopJob:
    """Fastest job that fits and scores all positions for each query.

    Args:
        shape: the index; leaves broadcast over designs.
        chip: chip that runs it.
        itemsize: bytes of a value of queries and keys.
    """
    tiles, jobs = chip.mesh.rows * chip.mesh.cols, dict[tuple[bytes, ...], BlockLoopJob]()
    for m, n, turns in product(QUERIES, KEYS, TURNS):
        queries, keys = minimum(m, shape.queries), ceil_div(minimum(n, shape.keys), shape.block) * shape.block
        down, across = ceil_div(shape.queries, queries), ceil_div(shape.keys, keys)
        parts = 1 if shape.causal else minimum(maximum(tiles * turns // (shape.sequences * down), 1), across)
        cut = tuple(np.asarray(leaf, float).tobytes() for leaf in (queries, keys, parts))
        if cut in jobs:
            continue
        blocks = ceil_div(across, parts)
        rising = None
        if shape.causal:
            rising = shape.sequences, minimum(shape.keys, shape.keys - shape.queries + queries) / keys, queries / keys
        items = shape.sequences * down * ceil_div(across, blocks)
        jobs[cut] = BlockLoopJob(score_kernel(shape, queries, keys, DTYPES[itemsize]), items, blocks, chip, rising)
    return choose_fastest_job(list(jobs.values()))


def build_selection_job(rows: Any, width: int, top: int, chip: Chip) -> closed_streamed.RowJob | JobSequence:
    """Job that selects the positions of the largest scores of each row.

    It works on whole rows, or on parts of them and then on the results of the parts.

    Args:
        rows: queries of all sequences.
        width: scores of each, at least `top`.
        top: how many are selected.
        chip: where; of several designs, the number of parts is what suits them all together.
    """
    candidates = []
    for parts in PART_COUNTS:
        part = -(-width // parts)
        if parts > 1 and part <= top:
            break
        passes = int(8 * SCORE_BYTES)
        whole = closed_streamed.propose_row_job(
            build_topk_kernel(top, passes, carried=parts > 1), rows * parts, part, chip, SCORE_BYTES
        )
        job: closed_streamed.RowJob | JobSequence = whole
        if parts > 1:
            later = closed_streamed.propose_row_job(
                build_topk_kernel(top, passes, later=True), rows, parts * top, chip, SCORE_BYTES
            )
            job = JobSequence((whole, later))
        several = job.jobs if isinstance(job, JobSequence) else (job,)
        over = sum(np.sum(maximum(closed_streamed.local_bytes(job) / chip.tile.sram - 1, 0.0)) for job in several)
        seconds = sum(np.sum(closed_streamed.job_cost(job).seconds) for job in several)
        candidates.append(((float(over), float(seconds)), job))
    return min(candidates, key=lambda candidate: candidate[0])[1]


def build_indexer_jobs(shape: IndexerShape, top: int, chip: Chip, itemsize: float = 2.0) -> JobSequence:
    """Jobs that score positions, then select `top` positions (or blocks of them) in all."""
    wanted, width = max(top // shape.block, 1), int(np.max(ceil_div(shape.keys, shape.block)))
    first = score_job(shape, chip, itemsize)
    if width <= wanted:
        return JobSequence((first,))
    then = build_selection_job(shape.sequences * shape.queries, width, wanted, chip)
    return JobSequence((first, *(then.jobs if isinstance(then, JobSequence) else (then,))))
