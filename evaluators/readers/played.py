"""Readers that play programs, events and cycles: products on a group are played, the same ones once; reads come from banks."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil, inf
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.kernels.partition import onward as stages
from dse.evaluators.kernels.partition import partition, ring, ring_attention
from dse.evaluators.kernels.partition.onward import Onward, Way
from dse.evaluators.machine.engine import Engines
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.machine.laid import Asked
from dse.evaluators.machine.machine import Channel, Machine
from dse.evaluators.machine.pooled import Rated
from dse.evaluators.passes.call import NOTHING, Exchange, Group, Product
from dse.evaluators.passes.rivals import picked, way
from dse.evaluators.program.rounds import DTYPES
from dse.evaluators.readers import rivals
from dse.evaluators.readers.timing import Timing
from dse.space.chip import MainMemory, MatrixEngine, VectorEngine
from dse.space.fields import leaves, replaced
from dse.space.mapping import AUTO, TILE_SUMS
from dse.space.memory import behind

Play = Callable[..., Timing]
"""A reader: of a program, a fabric and engines."""


def product(
    play: Play, price: rivals.Divided, group: Group, asked: Product, machine: Machine, nbytes: float
) -> tuple[Any, Any]:
    """Seconds of a product on a group, and those of its engines; with the sums that `price` chooses, where none are said."""
    some, best = _ways(price, group, asked, machine, nbytes)
    cores, phases = group.cores, group.phases
    fabric, of = machine.fabric, machine.engines
    assert fabric is not None
    assert isinstance(of, Engines)
    leaves = (
        best, asked.m, asked.k, asked.n, cores, phases, *fabric, of.clock, of.sram_bandwidth,
        *_numbers(of.matrix), *_numbers(of.vector),
    )  # fmt: skip
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        here = some[int(best)]._replace(cores=int(cores), phases=int(phases))
        return _played(play, here, tuple(ceil(size) for size in leaves[1:4]), fabric, of, nbytes)
    spread = np.broadcast_arrays(*leaves)
    found = np.empty((2, *spread[0].shape))
    for place in np.ndindex(spread[0].shape):
        which, *one = [column[place].item() for column in spread]
        here, rest = some[which]._replace(cores=int(one[3]), phases=int(one[4])), one[5:]
        sizes = tuple(ceil(size) for size in one[:3])
        on, rest = Fabric(*rest[: len(fabric)]), rest[len(fabric) :]
        matrix = _with(of.matrix, rest[2 : 2 + len(_numbers(of.matrix))])
        vector = _with(of.vector, rest[2 + len(_numbers(of.matrix)) :])
        engines = Engines(rest[0], matrix, vector, rest[1], of.products)
        found[(slice(None), *place)] = _played(play, here, sizes, on, engines, nbytes)
    return found[0], found[1]


def _ways(price: rivals.Divided, group: Group, asked: Product, machine: Machine, nbytes: float) -> tuple[list[Group], Any]:
    """The group by every way and sums that an entry may have, and the place of those that each has."""
    if group.partition == AUTO:
        found: list[Group] = []
        places = []
        for word in group.ways:
            some, best = _ways(price, way(group, word), asked, machine, nbytes)
            places.append(best + len(found))
            found += some
        return found, picked(places, group.which)
    if group.sums == AUTO:
        return [group._replace(sums=word) for word in TILE_SUMS], rivals.sums(group, asked, machine, nbytes, price)
    return [group], 0


def exchange(play: Play, of: Exchange, machine: Machine, work: Any = 0.0) -> Any:
    """Seconds of slices that go around a group, which have whole bytes; where cores work on them for some time, beyond that."""
    assert machine.fabric is not None

    def one(times: Any, cores: Any, nbytes: Any, work: Any, *on: Any) -> tuple[float]:
        if times <= 0 or cores <= 1 or nbytes <= 0:
            return (0.0,)
        if of.attended:
            return (times * _attended(play, of.placement, int(cores), ceil(nbytes), float(work), Fabric(*on)),)
        return (_around(play, of.placement, int(cores), ceil(nbytes), ceil(times), Fabric(*on)),)

    return _each(one, (of.times, of.cores, of.nbytes, work, *machine.fabric))[0]


def onward(play: Play, way: Way, nbytes: Any, machine: Machine) -> Onward:
    """Seconds of a message from stage to stage; a core's part has whole bytes."""
    assert machine.fabric is not None

    def one(cores: Any, stages: Any, pipelines: Any, high: Any, whole: Any, *on: Any) -> tuple[float, float]:
        if stages < 2 or whole <= 0:
            return 0.0, 0.0
        at = Way(way.placement, int(cores), int(stages), int(pipelines), int(high))
        return _sent_on(play, at, ceil(whole / cores), Fabric(*on))

    return Onward(*_each(one, (way.cores, way.stages, way.pipelines, way.high, nbytes, *machine.fabric)))


def _each(one: Callable[..., tuple[float, ...]], leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """Several numbers of some leaves, each of their elements by itself."""
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        return one(*leaves)
    spread = np.broadcast_arrays(*leaves)
    found = [one(*(column[place].item() for column in spread)) for place in np.ndindex(spread[0].shape)]
    return tuple(np.reshape(column, spread[0].shape) for column in zip(*found, strict=True))


@lru_cache(maxsize=16384)
def _around(play: Play, placement: str, cores: int, nbytes: int, times: int, fabric: Fabric) -> float:
    return float(play(ring.steps(placement, cores, nbytes, times), fabric).seconds)


@lru_cache(maxsize=16384)
def _attended(play: Play, placement: str, cores: int, nbytes: int, work: float, fabric: Fabric) -> float:
    program, turn = ring_attention.turns(placement, cores, nbytes), work / cores
    return max(float(play(program, fabric, engines=lasting(turn, nbytes)).seconds) - work, 0.0)


@lru_cache(maxsize=16384)
def _sent_on(play: Play, way: Way, nbytes: int, fabric: Fabric) -> Onward:
    return stages.arrivals(way, play(stages.steps(way, nbytes), fabric).ready["x"])


@lru_cache(maxsize=16384)
def _played(
    play: Play, group: Group, sizes: tuple[int, ...], fabric: Fabric, of: Engines, nbytes: float
) -> tuple[float, float]:
    way = partition(group.partition)
    program = way.steps(Shape(*sizes), group.placement, group.cores, DTYPES[nbytes], **group.options)
    timing = play(program, fabric, engines=of)
    return timing.seconds, timing.engine_seconds


def lasting(seconds: float, elements: int) -> Engines:
    """Engines that an instruction on some elements, an operation each, takes so long."""
    none = MatrixEngine(dataflow="ce", rows=1, cols=1, depth=0, reload="tile", fill=0.0, call=0.0)
    return Engines(1 / seconds if seconds else inf, none, VectorEngine(lanes=elements, special=1.0, call=0.0), inf)


def _numbers(of: Any) -> tuple[Any, ...]:
    return tuple(value for value in (getattr(of, name) for name in type(of).__slots__) if not isinstance(value, str))


def _with(of: Any, numbers: list[Any]) -> Any:
    names = [name for name in type(of).__slots__ if not isinstance(getattr(of, name), str)]
    return replace(of, **dict(zip(names, numbers, strict=True)))


def memory(word: str, asked: Asked, machine: Machine) -> tuple[Any, Any]:
    """Seconds of what a core asks its memory for, with the way to it; and of one more byte.

    Under `events` blocks cost what tables of their memory's banks say, under `cycles` what they take where they lie.
    """
    hbm = machine.memory.hbm if isinstance(machine.memory, Channel) else None
    if hbm is None or hbm.banks is None:
        assert machine.memory is not None
        return machine.memory.read(asked)
    from dse.evaluators.machine import bank_state, bursts  # which compile, or load what was
    from dse.evaluators.machine.hbm import first

    wide = [np.size(value) for _, value, _ in leaves(hbm.banks) if isinstance(value, np.ndarray)]
    if wide:  # banks are played memory by memory
        each = [
            memory(word, Asked(*(_of(leaf, place) for leaf in asked)), _with_memory(machine, _at(hbm, place)))
            for place in range(max(wide))
        ]
        seconds, per_byte = (np.stack(np.broadcast_arrays(*values), axis=-1) for values in zip(*each, strict=True))
        return seconds, per_byte
    of = {"events": bank_state.pace, "cycles": bursts.pace}[word]
    per_byte = of(hbm.banks, behind(hbm.banks, hbm.channel_bandwidth), asked) / hbm.channel_bandwidth
    return asked.nbytes * per_byte + (hbm.latency + first(hbm.banks)[0]) * (asked.nbytes > 0), per_byte


def banks(word: str, asked: Asked, machine: Machine) -> Any:
    """Seconds that a byte takes at least of what cores of a die read side by side; 0 where its memory has no banks to play.

    Software reaches a share of the bandwidth, whatever banks do: the slower one of both sets the pace.
    """
    memory = machine.memory
    if not isinstance(memory, Rated) or memory.banks is None:
        return NOTHING
    from dse.evaluators.machine import bank_state, streams

    of = {"events": bank_state.side_by_side, "cycles": streams.pace}[word]
    return of(memory.banks, behind(memory.banks, memory.peak), memory.cores, asked) / memory.peak


def _of(value: Any, place: int) -> Any:
    """What one design has of a value; designs are the last axis."""
    return value[..., place if value.shape[-1] > 1 else 0] if isinstance(value, np.ndarray) else value


def _with_memory(machine: Machine, hbm: MainMemory) -> Machine:
    return machine._replace(memory=Channel(1 / (hbm.channel_bandwidth * hbm.achieved), hbm.latency, hbm))


def _at(hbm: MainMemory, place: int) -> MainMemory:
    """The memory of one design."""
    wide = {address: value for address, value, _ in leaves(hbm) if isinstance(value, np.ndarray)}
    return replaced(hbm, {address: np.ravel(value)[place].item() for address, value in wide.items()})
