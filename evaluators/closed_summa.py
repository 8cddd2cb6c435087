"""The closed reader of products from memory on a mesh of tiles; leaves broadcast over designs."""

from typing import Any, NamedTuple

from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm import summa_diagonal
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.machine.channels import ColumnMemory, column_memory
from evaluators.machine.engine import engines
from evaluators.machine.fabric import Fabric, tile_fabric
from space.chip import TileChip


class Job(NamedTuple):
    """A product as a chip is asked for it: its sizes, and those of what a tile multiplies at a time."""

    shape: Shape
    part: Shape
    chip: TileChip

    @property
    def mesh(self) -> Mesh:
        """Of the chip."""
        return Mesh(self.chip.mesh.rows, self.chip.mesh.cols)


PARTS = ("hbm", "multicast", "matrix")
"""What takes time, in the order in which it is left out; the rest is products."""


def price(job: Job) -> Cost:
    """Time and activity."""
    return _price(job, tile_fabric(job.chip), column_memory(job.chip))


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `PARTS`: what falls away when that is free, in turn."""
    fabric, memory = tile_fabric(job.chip), column_memory(job.chip)
    still = fabric._replace(hop=0.0, word=0.0, copy=0.0, post=0.0, ramp=0.0)
    rest = memory._replace(latency=0.0, byte=0.0, crowded=0.0)
    whole, moved, left = (_price(job, *free).seconds for free in ((fabric, memory), (fabric, rest), (still, rest)))
    return dict(zip(PARTS, (whole - moved, moved - left, left), strict=True))


def _price(job: Job, fabric: Fabric, memory: ColumnMemory) -> Cost:
    return summa_diagonal.cost(job.shape, job.part, job.mesh, fabric, engines(job.chip), memory)
