"""The readers that play programs, events and cycles, of what tiles do row by row from memory: the same ones once."""

from functools import lru_cache

from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.kernels.vector.streamed import Block, steps
from dse.evaluators.machine.channels import channels_used, near_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.machine.played_channels import chip_memory
from dse.evaluators.program.rounds import DTYPES, Load, Store
from dse.evaluators.readers import players
from dse.evaluators.readers.closed_streamed import PARTS, Job
from dse.evaluators.readers.job_attribution import Play, Player, without
from dse.evaluators.readers.timing import Timing
from dse.space.network import faults


@lru_cache(maxsize=1024)
def _played(job: Job, left: int, play: Play) -> Timing:
    """With the last parts only, `left` of them: with or without loads and stores."""
    rows, block, mesh = int(job.rows), Block(*map(int, job.block)), Mesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols))
    program = steps(job.recipe, rows, block, mesh, DTYPES[job.itemsize], channels=int(channels_used(job.chip)))
    chip = near_memory(job.chip, program.rows)
    if left < len(PARTS):
        program = without(program, lambda step: isinstance(step, Load | Store))
    return play(program, tile_fabric(chip), engines=engines(chip), **chip_memory(chip), faults=faults(chip))


EVENTS, CYCLES = (Player(PARTS, _played, play) for play in (players.events, players.cycles))
