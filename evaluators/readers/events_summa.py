"""The readers that play programs, events and cycles, of products from memory on a mesh of tiles: the same ones once."""

from functools import lru_cache

from dse.evaluators.kernels.gemm.summa_diagonal import Part, steps
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.channels import channels_used, near_memory
from dse.evaluators.machine.engine import engines
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.machine.played_channels import chip_memory
from dse.evaluators.program.rounds import DTYPES, Multiply, Step, Vector
from dse.evaluators.readers import players
from dse.evaluators.readers.closed_summa import PARTS, Job, expands
from dse.evaluators.readers.job_attribution import Play, Player, without
from dse.evaluators.readers.timing import Timing
from dse.space.network import faults


class SummaPlayer(Player):
    """A reader of products."""

    def split(self, job: Job) -> dict[str, float]:
        """Vectors are a part where there are any."""
        found = Player.split(self, job)
        return found if expands(job) else {name: seconds for name, seconds in found.items() if name != "vector"}


def _parts(job: Job, left: int, play: Play) -> Timing:
    """With the last parts only, `left` of them; what has no vectors is the same with them and without."""
    return _played(job, left if expands(job) or left > PARTS[::-1].index("vector") + 1 else 1, play)


@lru_cache(maxsize=1024)
def _played(job: Job, left: int, play: Play) -> Timing:
    gone, dtype, copies = PARTS[: len(PARTS) - left], DTYPES[job.itemsize], int(job.copies)
    shape, part = Shape(int(job.shape.m), int(job.shape.k), int(job.shape.n)), Part(*map(int, job.part))
    mesh, channels = Mesh(int(job.mesh.rows), int(job.mesh.cols)), int(channels_used(job.chip))
    program = steps(shape, part, mesh, dtype, channels=channels, copies=copies, weights=job.weights)
    chip = near_memory(job.chip, program.rows)
    program = without(program, lambda step: _part(step) in gone)
    return play(program, tile_fabric(chip), engines=engines(chip), **chip_memory(chip), faults=faults(chip))


def _part(step: Step) -> str:
    if isinstance(step, Multiply | Vector):
        return "matrix" if isinstance(step, Multiply) else "vector"
    return "multicast" if type(step).__name__ == "Multicast" else "hbm"


EVENTS, CYCLES = (SummaPlayer(PARTS, _parts, play) for play in (players.events, players.cycles))
