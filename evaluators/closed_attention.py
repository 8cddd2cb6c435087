"""The closed reader of attention on a mesh of tiles: times from closed forms; leaves broadcast over designs."""

from dataclasses import replace
from typing import Any, NamedTuple

from evaluators.kernels.attention import cost
from evaluators.kernels.attention.dataflow import Dataflow
from evaluators.kernels.attention.shape import Heads, Tiling
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.machine.channels import column_memory
from evaluators.machine.engine import Engines, engines
from evaluators.machine.fabric import VALUE, Fabric, summing
from space.chip import TileChip


class Job(NamedTuple):
    """Attention as a chip is asked for it."""

    of: Dataflow
    shape: Heads
    tiling: Tiling
    chip: TileChip
    itemsize: float = VALUE

    @property
    def mesh(self) -> Mesh:
        """Of the chip."""
        return Mesh(self.chip.mesh.rows, self.chip.mesh.cols)


def machine(chip: TileChip, of: Dataflow) -> tuple[Fabric, Engines]:
    """Network and engines; with several heads in flight, software spends more on each operation."""
    extra = chip.tile.control * (1.0 if of.strands > 1 else 0.0)
    fabric, on = summing(chip), engines(chip)
    matrix, vector = replace(on.matrix, call=on.matrix.call + extra), replace(on.vector, call=on.vector.call + extra)
    more = {name: getattr(fabric, name) + extra / chip.clock for name in ("post", "launch", "call")}
    return fabric._replace(**more), on._replace(matrix=matrix, vector=vector)


def price(job: Job) -> Cost:
    """Time and activity."""
    return cost.cost(*_asked(job))


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `cost.PARTS`."""
    return cost.split(*_asked(job))


def communication(job: Job, seconds: Any) -> Any:
    """Time that falls away where tiles exchange for nothing. [s]"""
    return cost.exchange(*_asked(job))


def _asked(job: Job) -> tuple[cost.Task, cost.Machine]:
    return (
        cost.Task(job.of, job.shape, job.tiling, job.mesh, job.itemsize),
        cost.Machine(*machine(job.chip, job.of), column_memory(job.chip)),
    )
