"""The readers that play programs, events and cycles, of products from memory on a mesh of tiles: the same ones once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from evaluators import cycles, events
from evaluators.closed_summa import PARTS, Job
from evaluators.events_attention import without
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.summa_diagonal import Part, steps
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.channels import channels_used, chip_channels
from evaluators.machine.engine import engines
from evaluators.machine.fabric import tile_fabric
from evaluators.played import Timing
from evaluators.rounds import DTYPES, Multiply, Step
from space.network import faults


@dataclass(frozen=True, slots=True)
class Player:
    """A reader that plays programs."""

    play: Callable[..., Timing]

    def price(self, job: Job) -> Cost:
        """Time and activity of a job whose leaves are numbers."""
        timing = _played(job, len(PARTS), self.play)
        return Cost(timing.seconds, timing.activity)

    def split(self, job: Job) -> dict[str, float]:
        """The time by what it goes into, words of `PARTS`: what falls away when the program is played without that, in turn."""
        times = [_played(job, left, self.play).seconds for left in range(len(PARTS), 0, -1)]
        return dict(zip(PARTS, (*(a - b for a, b in pairwise(times)), times[-1]), strict=True))


EVENTS, CYCLES = Player(events.play), Player(cycles.play)


@lru_cache(maxsize=1024)
def _played(job: Job, left: int, play: Callable[..., Timing]) -> Timing:
    """With the last parts only, `left` of them."""
    chip, gone = job.chip, PARTS[: len(PARTS) - left]
    shape, part = Shape(int(job.shape.m), int(job.shape.k), int(job.shape.n)), Part(*map(int, job.part))
    mesh, dtype = Mesh(int(chip.mesh.rows), int(chip.mesh.cols)), DTYPES[job.itemsize]
    program = steps(shape, part, mesh, dtype, channels=int(channels_used(chip)), copies=int(job.copies))
    program = without(program, lambda step: _part(step) in gone)
    return play(program, tile_fabric(chip), engines=engines(chip), memory=chip_channels(chip), faults=faults(chip))


def _part(step: Step) -> str:
    if isinstance(step, Multiply):
        return "matrix"
    return "multicast" if type(step).__name__ == "Multicast" else "hbm"
