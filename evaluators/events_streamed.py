"""The events reader of what tiles do row by row from memory: programs are played, the same ones once."""

from functools import lru_cache

from evaluators.closed_streamed import PARTS, Job
from evaluators.events import play
from evaluators.events_attention import without
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.kernels.vector.streamed import Block, steps
from evaluators.machine.channels import channels_used, chip_channels
from evaluators.machine.engine import engines
from evaluators.machine.fabric import tile_fabric
from evaluators.played import Timing
from evaluators.rounds import DTYPES, Load, Store


def price(job: Job) -> Cost:
    """Time and activity of a job whose leaves are numbers."""
    timing = _played(job, True)
    return Cost(timing.seconds, timing.activity)


def split(job: Job) -> dict[str, float]:
    """The time by what it goes into, words of `PARTS`: what falls away when the program is played without memory."""
    whole, left = (_played(job, whole).seconds for whole in (True, False))
    return dict(zip(PARTS, (whole - left, left), strict=True))


@lru_cache(maxsize=1024)
def _played(job: Job, whole: bool) -> Timing:
    """With or without loads and stores."""
    chip, block = job.chip, Block(*map(int, job.block))
    mesh = Mesh(int(chip.mesh.rows), int(chip.mesh.cols))
    program = steps(job.recipe, int(job.rows), block, mesh, DTYPES[job.itemsize], channels=int(channels_used(chip)))
    if not whole:
        program = without(program, lambda step: isinstance(step, Load | Store))
    return play(program, tile_fabric(chip), engines=engines(chip), memory=chip_channels(chip))
