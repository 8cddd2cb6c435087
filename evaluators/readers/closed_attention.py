"""The closed reader of attention on a mesh of tiles: times from closed forms; leaves broadcast over designs."""

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.choices.quickest import Bounds, quickest
from dse.evaluators.choices.structures import alike
from dse.evaluators.kernels.attention import cost, merge, strategy
from dse.evaluators.kernels.attention.dataflow import Dataflow, in_turns, kept
from dse.evaluators.kernels.attention.shape import AS_OTHERS, Cached, Cut, Heads, Tiling, busy_mesh
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.machine.channels import column_memory
from dse.evaluators.machine.engine import Engines, engines
from dse.evaluators.machine.fabric import VALUE, Fabric, summing
from dse.evaluators.machine.scattered import pace
from dse.evaluators.program.rounds import DTYPES, Slot
from dse.space.chip import Chip
from dse.space.elementwise import Array, maximum, minimum, where
from dse.space.mapping import AttentionPlan
from dse.space.remember import same


class Job(NamedTuple):
    """Attention as a chip is asked for it; `kv` is how keys and values are stored.

    `taken` is its time, where choosing the tiling has worked it out; None of a job of which anything was changed. [s]
    """

    of: Dataflow
    shape: Heads
    tiling: Tiling
    chip: Chip
    itemsize: float = VALUE
    kv: Cached = AS_OTHERS
    taken: Any = None

    @property
    def mesh(self) -> Mesh:
        """Of the chip."""
        return Mesh(self.chip.mesh.rows, self.chip.mesh.cols)


@same
def machine(chip: Chip, of: Dataflow) -> tuple[Fabric, Engines]:
    """Network and engines; with several heads in flight, software spends more on each operation."""
    extra = chip.tile.control * (1.0 if of.strands > 1 else 0.0)
    fabric, on = summing(chip), engines(chip)
    matrix, vector = replace(on.matrix, call=on.matrix.call + extra), replace(on.vector, call=on.vector.call + extra)
    more = {name: getattr(fabric, name) + extra / chip.clock for name in ("post", "launch", "call")}
    return fabric._replace(**more), on._replace(matrix=matrix, vector=vector)


def price(job: Job) -> Cost:
    """Time and activity."""
    return cost.cost(*_asked(job)) if job.taken is None else Cost(job.taken, cost.activity(_task(job)))


def least(shape: Heads, chip: Chip, itemsize: float, kv: Cached = AS_OTHERS) -> Any:
    """Time that attention takes at least, however it is cut: all engines at their rate, or each operand once. [s]"""
    engine, memory = chip.tile.matrix, column_memory(chip)
    rate = maximum(engine.rows * engine.cols, chip.tile.vector.lanes) * chip.clock * chip.mesh.rows * chip.mesh.cols
    nbytes = shape.batch * shape.heads * shape.queries * (shape.qk + shape.v) * itemsize
    nbytes = nbytes + shape.problems * shape.keys * (shape.key_dim + shape.v) * kv.of(itemsize)
    return maximum(shape.macs / rate, nbytes * minimum(memory.byte, memory.crowded) / memory.count)


def counts(job: Job) -> Cut:
    """How often what is done."""
    return _asked(job)[0].counts


def own_bytes(job: Job) -> Any:
    """Between memory and tiles for queries and outputs, partial ones there and back included. [B]"""
    return cost.own_bytes(_asked(job)[0])


def partial_bytes(job: Job) -> Any:
    """Of partial outputs, maxima and sums in main memory. [B]"""
    task = _asked(job)[0]
    return where(task.partial, task.counts.items * job.tiling.rows * task.stored, 0.0)


def split(job: Job) -> dict[str, Any]:
    """The time by what it goes into, words of `cost.PARTS`."""
    return cost.split(*_asked(job))


def communication(job: Job, seconds: Any) -> Any:
    """Time that falls away where tiles exchange for nothing. [s]"""
    return cost.exchange(*_asked(job))


def proposed(
    of: Dataflow, shape: Heads, chip: Chip, said: Tiling = strategy.ANY, itemsize: float = VALUE, kv: Cached = AS_OTHERS
) -> Tiling:
    """Group and slice of what takes the least time and fits; leaves broadcast over designs.

    Args:
        of, shape: the dataflow, and what is computed.
        chip: where.
        said: what is chosen already, 0 for what is not.
        itemsize, kv: bytes of a value; how keys and values are stored.
    """
    return _proposed(of, shape, chip, said, itemsize, kv)[0]


def _proposed(of: Dataflow, shape: Heads, chip: Chip, said: Tiling, itemsize: float, kv: Cached) -> tuple[Tiling, Any]:
    """With its time; None where designs are not many."""
    asked = (of, shape, chip, said, itemsize, kv)
    try:
        hash(asked)
    except TypeError:  # arrays over designs or cases
        return _cases(*asked)
    return _known(*asked)


def _cases(of: Dataflow, shape: Heads, chip: Chip, said: Tiling, itemsize: float, kv: Cached) -> tuple[Tiling, Any]:
    """Case by case, one above the other."""
    sizes = {spec.name: np.asarray(getattr(shape, spec.name)) for spec in fields(shape)}
    count = max(size.size for size in sizes.values())
    if count == 1:
        tiling, taken = searched(of, shape, chip, said, itemsize, kv)
        return tiling, taken if all(size.ndim == 0 for size in sizes.values()) else None
    cases = [
        replace(shape, **{name: size.ravel()[min(case, size.size - 1)].item() for name, size in sizes.items()})
        for case in range(count)
    ]
    found, times = zip(*(_proposed(of, case, chip, said, itemsize, kv) for case in cases), strict=True)
    names = ("rows", "cols", "queries", "keys", *(("splits",) if of.split else ()))
    sides = (np.stack(np.broadcast_arrays(*(np.atleast_1d(getattr(one, name)) for one in found))) for name in names)
    return Tiling(*sides), None if times[0] is None else np.stack(times)


class Choice(NamedTuple):
    """What groups and slices are chosen for, sizes being (rows, columns, queries, keys), with parts where keys may be split."""

    of: Dataflow
    shape: Heads
    itemsize: float
    kv: Cached = AS_OTHERS

    def options(self, chip: Chip, said: Tiling) -> tuple[Any, ...]:
        """Candidates on one chip."""
        found = strategy.options(self.shape, self.of.grouped, Mesh(chip.mesh.rows, chip.mesh.cols), said)
        return strategy.split(self.shape, said, found) if self.of.split else found

    def near(self, said: Tiling, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Candidates beside some."""
        found = strategy.near(self.shape, self.of.grouped, said, sizes[:4])
        return (*found, np.broadcast_to(sizes[4], found[0].shape)) if self.of.split else found

    def held(self, sizes: tuple[Any, ...]) -> Any:
        """Local memory of all strands. [B]"""
        return sum(slot.nbytes for slot in _slots(self.of, self.shape, Tiling(*sizes), DTYPES[self.itemsize], self.kv)) * 1.0

    def counted(self, chip: Chip, sizes: tuple[Any, ...]) -> Any:
        """Of candidates, what depends on their sizes and the mesh alone."""
        return cost.counted(self._task(chip, sizes))

    def work(self, chip: Chip, sizes: tuple[Any, ...], counted: Any) -> Any:
        """Of candidates, what does not depend on main memory."""
        return cost.worked(self._task(chip, sizes), *machine(chip, self.of), counted)

    def memory(self, chip: Chip) -> Any:
        """Main memory of chips."""
        return column_memory(chip)

    def bounded(self, sizes: tuple[Any, ...], counted: Any) -> tuple[Array, ...]:
        """Of candidates, what bounds are made of; and which slice each has of those that there are."""
        queries, keys, turns, nbytes = np.broadcast_arrays(*sizes[2:4], *cost.bounded(Tiling(*sizes), counted))
        first, slices = alike([queries, keys])
        return np.ascontiguousarray(turns), np.ascontiguousarray(nbytes), slices, queries[first], keys[first]

    def bounds(self, chip: Chip, bounded: tuple[Array, ...], memory: Any) -> Bounds:
        """What candidates take at least."""
        turns, nbytes, slices, queries, keys = bounded
        task = self._task(chip, (1, 1, queries[:, None], keys[:, None]))
        busy, byte = cost.least(task, machine(chip, self.of)[1], memory)
        some = np.size(memory.byte[0])
        return Bounds(turns, nbytes, slices, _whole(busy, (len(queries), some)), _whole(byte, (len(memory.byte), some)))

    def seconds(self, chip: Chip, sizes: tuple[Any, ...], work: Any, memory: Any) -> Any:
        """Time of candidates."""
        return cost.seconds(self._task(chip, sizes), cost.Machine(*machine(chip, self.of), memory), work)

    def _task(self, chip: Chip, sizes: tuple[Any, ...]) -> cost.Task:
        return _task(Job(self.of, self.shape, Tiling(*sizes), chip, self.itemsize, self.kv))


def _whole(value: Any, shape: tuple[int, int]) -> Array:
    """For compiled loops."""
    return np.ascontiguousarray(np.broadcast_to(value, shape), float)


def searched(
    of: Dataflow, shape: Heads, chip: Chip, said: Tiling, itemsize: float, kv: Cached = AS_OTHERS
) -> tuple[Tiling, Any]:
    """As `_proposed`, of one case."""
    sizes, seconds = quickest(Choice(of, shape, itemsize, kv), chip, said)
    return Tiling(*sizes), seconds


_known = lru_cache(maxsize=4096)(searched)


def _asked(job: Job) -> tuple[cost.Task, cost.Machine]:
    return _task(job), cost.Machine(*machine(job.chip, job.of), column_memory(job.chip))


def _task(job: Job) -> cost.Task:
    return cost.Task(job.of, job.shape, job.tiling, job.mesh, job.itemsize, pace(job.chip.hbm.banks, job.shape.piece), job.kv)


def busy(job: Job) -> Mesh:
    """Tiles that work."""
    return busy_mesh(job.shape, in_turns(job.of, job.shape, job.tiling), job.mesh)


def job(of: Dataflow, shape: Heads, cut: Tiling, chip: Chip, itemsize: float = VALUE, kv: Cached = AS_OTHERS) -> Job:
    """What is priced; sides of groups that the mesh does not have, a limit, count as the mesh's."""
    return Job(of, shape, _dividing(cut, chip), chip, itemsize, kv)


def _dividing(cut: Tiling, chip: Chip) -> Tiling:
    cols = where((cut.cols == 0) | (chip.mesh.cols % maximum(cut.cols, 1) == 0), cut.cols, chip.mesh.cols)
    return replace(cut, rows=minimum(cut.rows, chip.mesh.rows), cols=cols)


def tiled(
    of: Dataflow, shape: Heads, chip: Chip, mapping: AttentionPlan, itemsize: float = VALUE, kv: Cached = AS_OTHERS
) -> Tiling:
    """As the mapping says, and where it says 0, as suits the shape."""
    return _tiled(of, shape, chip, mapping, itemsize, kv)[0]


def suited(of: Dataflow, shape: Heads, chip: Chip, mapping: AttentionPlan, itemsize: float, kv: Cached) -> Job:
    """What is priced, tiled like that; with its time, where choosing has worked it out for many designs.

    Roots of arrays are rounded otherwise than those of numbers, so a time that is a number is left to who prices it.
    """
    tiling, taken = _tiled(of, shape, chip, mapping, itemsize, kv)
    asked = job(of, shape, tiling, chip, itemsize, kv)
    memory, cut = column_memory(chip), asked.tiling
    of_times = memory.count, memory.crowded, chip.mesh.rows, cut.rows, cut.cols, cut.queries, cut.keys
    return asked._replace(taken=taken) if any(isinstance(leaf, np.ndarray) for leaf in of_times) else asked


def _tiled(of: Dataflow, shape: Heads, chip: Chip, mapping: AttentionPlan, itemsize: float, kv: Cached) -> tuple[Tiling, Any]:
    """With its time, where it is known."""
    splits = (0 if mapping.splits is None else mapping.splits) if of.split else 1
    said = Tiling(mapping.rows, mapping.cols, mapping.queries, mapping.keys, splits)
    if not of.grouped:
        said = replace(said, rows=1, cols=1)
    if all(np.all(np.asarray(value) > 0) for value in (said.rows, said.cols, said.queries, said.keys, said.splits)):
        return said, None
    # sides that do not divide the mesh are a limit, and stay as they are said
    found, taken = _proposed(of, shape, chip, _dividing(said, chip), itemsize, kv)
    rows, cols = (where(own > 0, own, side) for own, side in ((said.rows, found.rows), (said.cols, found.cols)))
    return replace(found, rows=rows, cols=cols), taken


def slots(job: Job) -> list[Any]:
    """What a tile holds."""
    return _slots(job.of, job.shape, job.tiling, DTYPES[job.itemsize], job.kv)


def _slots(of: Dataflow, shape: Heads, tiling: Tiling, dtype: str, kv: Cached) -> list[Any]:
    """Of all strands, and what the pass that puts parts together needs beyond them."""
    found = [slot for strand in range(of.strands) for slot in kept(of, shape, tiling, dtype, strand, kv)]
    if of.split and np.any(tiling.splits > 1):
        beyond = merge.held(shape, tiling, dtype) - sum(slot.nbytes for slot in found)
        found.append(Slot("merge", (maximum(beyond, 0), 1), "int8"))
    return found
