"""Operators on one column of tiles per memory channel, where that is faster than on all columns.

Where channels do not divide the columns, some serve one column more than others, and all wait for these; and a product of few
columns has too few for the array of each tile. Columns that work are those above channels, with idle ones between them: a hop
is as long as theirs on average.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_rows as closed_streamed
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models.row_pieces import DIE_COLUMNS, job_seconds, select_job_by_design
from dse.evaluators.machine.memory_channels import channels_used
from dse.space.array_math import floor_div, maximum
from dse.space.chip import Chip
from dse.space.fields import replace_leaves

WORTH = 0.995
"""What an operator takes at most on fewer columns of its time on all."""

Job = TypeVar("Job", closed_summa.SummaJob, closed_attention.AttentionJob, closed_streamed.RowJob)


def choose_idle_columns(propose: Callable[[Chip], Job], chip: Chip) -> Job:
    """Faster of the job on all columns and on fewer; leaves broadcast over designs.

    Args:
        propose: function that makes a job on a chip.
        chip: chip that runs it.
    """
    every, cols = propose(chip), channels_used(chip)
    if not np.any(cols < chip.mesh.cols) or chip.faults not in (None, "none"):
        return every
    changes = {"mesh.cols": cols, "noc.hop_cycles": chip.noc.hop_cycles * (chip.mesh.cols / cols)}
    if chip.die_link is not None:  # in whole columns: no fewer crossings than there are
        changes[DIE_COLUMNS] = maximum(floor_div(chip.die_link.die_cols * cols, chip.mesh.cols), 1.0)
    fewer = propose(replace_leaves(chip, changes))
    worth = 1.0 if chip.tile.is_range else WORTH  # a bound is that of the faster one
    best: Job = select_job_by_design(job_seconds(fewer) < job_seconds(every) * worth, fewer, every)
    return best
