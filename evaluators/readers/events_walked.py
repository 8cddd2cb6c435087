"""The readers that play programs, events and cycles, of what tiles do to items block by block: the same ones once."""

from dataclasses import replace
from functools import lru_cache

from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.kernels.vector.walked import steps
from dse.evaluators.machine.channels import channels_used, near_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.machine.played_channels import chip_memory
from dse.evaluators.program.rounds import Load, Store, Vector
from dse.evaluators.readers import players
from dse.evaluators.readers.closed_walked import PARTS, Job, counts
from dse.evaluators.readers.job_attribution import Play, Player, without
from dse.evaluators.readers.timing import Timing
from dse.space.network import faults


@lru_cache(maxsize=1024)
def _played(job: Job, left: int, play: Play) -> Timing:
    """With the last parts only, `left` of them: without loads and stores, and without vector instructions."""
    slots = tuple(slot._replace(shape=tuple(map(int, slot.shape))) for slot in job.walk.slots)
    mesh, walk = Mesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols)), replace(job.walk, slots=slots)
    program = steps(walk, int(job.items), counts(job), mesh, channels=int(channels_used(job.chip)))
    chip = near_memory(job.chip, program.rows)
    if left < len(PARTS):
        gone = (Load, Store) if left == len(PARTS) - 1 else (Load, Store, Vector)
        program = without(program, lambda step: isinstance(step, gone))
    return play(program, tile_fabric(chip), engines=engines(chip), **chip_memory(chip), faults=faults(chip))


EVENTS, CYCLES = (Player(PARTS, _played, play) for play in (players.events, players.cycles))
