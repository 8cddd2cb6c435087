"""Analytical jobs of recurrent layers on a chip of tiles.

Decode updates states token by token; prefill goes through prompts chunk by chunk.

Of a token, states that stay in local memory are one job, and those that come from main memory and go back another; both are
`analytical_rows`'s. Prompts are `analytical_block_loop`'s.
"""

from itertools import product
from typing import Any

import numpy as np

from dse.evaluators.cost_models import analytical_block_loop as closed_walked
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.kernels.vector.recurrent_decode import SLICES, RecurrenceShape, update_kernel
from dse.evaluators.kernels.vector.recurrent_prefill import prefill_chunks
from dse.evaluators.kernels.vector.row_kernels import RowBlock
from dse.evaluators.program.kernel_ir import DTYPES
from dse.space.array_math import ceil_div, minimum
from dse.space.chip import Chip

STATES_PER_TILE = (1, 2, 4, 8, 16)
"""Heads with the same keys that a tile has at a time that are tried."""


def decode_state_job(
    shape: RecurrenceShape, chip: Chip, itemsize: float = 2.0, resident: float = 0.0
) -> closed_streamed.RowJob | JobSequence:
    """Job that updates all states by one token of each sequence, or several in sequence.

    Args:
        shape: states, and what updates them; each token is a state's next one.
        chip: chip that runs it.
        itemsize: bytes of a value of queries, keys, values and outputs; states are in FP32.
        resident: share of the states that stay in local memory, 0 to 1, the same for all designs.
    """
    stay = np.floor(shape.states * resident + 0.5)
    parts = [(count, kept) for count, kept in ((shape.states - stay, False), (stay, True)) if np.any(count > 0)]
    row_jobs = tuple(
        closed_streamed.propose_row_job(
            update_kernel(shape.rule, int(shape.key_dim), resident=kept), count, shape.value_dim, chip, itemsize
        )
        for count, kept in parts
    )
    again = ceil_div(shape.tokens, shape.sequences)  # tokens that are guessed and checked follow one another
    return row_jobs[0] if len(row_jobs) == 1 and np.all(again == 1) else JobSequence(row_jobs, (again,) * len(row_jobs))


def prefill_state_job(shape: RecurrenceShape, chip: Chip, itemsize: float = 2.0) -> closed_walked.BlockLoopJob:
    """Fastest job that fits and takes states from and to main memory through equally long prompts.

    Args:
        shape: states, and what updates them; leaves broadcast over designs, but for dimensions, heads and chunks.
        chip: chip that runs it.
        itemsize: bytes of a value of queries, keys, values and outputs; states are in FP32.
    """
    shared, blocks = int(shape.heads) // int(shape.key_heads), ceil_div(ceil_div(shape.tokens, shape.sequences), shape.chunk)
    jobs = []
    for together, slices in product(STATES_PER_TILE, SLICES):
        if shared % together == 0 and shape.value_dim % slices == 0:
            walk = prefill_chunks(shape, together, shape.value_dim // slices, DTYPES[itemsize])
            jobs.append(closed_walked.BlockLoopJob(walk, shape.states // together * slices, blocks, chip))
    return closed_walked.choose_fastest_job(jobs)


def resident_state_share(shape: RecurrenceShape, chip: Chip, itemsize: float = 2.0) -> Any:
    """Share of one layer's states that local memories hold, next to the buffers of their update. [-]

    As many whole states a tile as it has room for: with other layers' states there, or weights, less memory is asked about.
    """
    tiles = chip.mesh.rows * chip.mesh.cols
    recipe = update_kernel(shape.rule, int(shape.key_dim), resident=True)

    def count_local_bytes(count: int) -> Any:
        block = RowBlock(count, shape.value_dim)
        return closed_streamed.local_bytes(closed_streamed.RowJob(recipe, tiles * count, block, chip, itemsize))

    each = np.maximum((chip.tile.sram - count_local_bytes(0)) // (count_local_bytes(1) - count_local_bytes(0)), 0)
    return minimum(1.0, each * tiles / shape.states)
