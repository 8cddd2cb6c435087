"""A decoder layer on a group of cores of a pipeline: products by their partition's program, exchanges around the group's rings.

Rows, requests or heads of attention are dealt to cores as the partition says; what a core does of attention by itself, and
operators on elements, is NumPy's. What lies where between two products is what the partition's `result` and `place` say: sums
that all cores have, or rows of each.
"""

from collections.abc import Sequence

import numpy as np

from dse.evaluators.graph.experts import dealt
from dse.evaluators.graph.operators import MatMul, Part
from dse.evaluators.kernels.gemm.tiling import Shape, joined
from dse.evaluators.kernels.gemm.tiling import blocks as blocks_of
from dse.evaluators.kernels.partition import partition
from dse.evaluators.kernels.partition.input_only import gathered as of_cores
from dse.evaluators.kernels.partition.input_only import spread
from dse.evaluators.kernels.partition.placement import grid, placed, sides
from dse.evaluators.kernels.partition.ring import gathered, summed
from dse.evaluators.layouts.partitioned import ROTATIONS, brings
from dse.evaluators.numeric import tiles
from dse.evaluators.numeric.layer import Layer, attended, combined, summed_up, whole
from dse.evaluators.numeric.lying import find
from dse.evaluators.numeric.walk import Attends, Kernels, Worker, by_numpy
from dse.evaluators.passes.call import Block, Call, Exchange
from dse.evaluators.program.rounds import Program, Slot
from dse.evaluators.readers.numeric import in_double, play
from dse.space.elementwise import Array, ceil_div

ITEMSIZE = 2.0
"""Bytes of a value that goes to all cores."""


def computed(blocks: Sequence[Block], layer: Layer, *, heads: bool | None = None) -> Array:
    """The residual stream behind the layer, shape (tokens, hidden), calls of its parts one after the other.

    Args:
        blocks: its calls, each with a partition.
        layer: what is computed.
        heads: whether attention divides heads, not rows; None where one partition is for all, which says so.

    Raises:
        ValueError: something is not there, or not on the core that needs it.
    """
    if heads is None:
        first = next(call.group for block in blocks for call in block.calls if call.group is not None)
        heads = first.partition == "k"
    find(blocks, layer, heads=heads)
    x = layer.x
    for block in blocks:
        part = layer.part(block.calls[0].part)
        if part is None:
            continue
        worker = _Cores(layer, part, block.calls, x, heads=heads)
        for position in block.order:
            worker.run(block.calls[position])
        x = x + worker.left() if summed_up(part) else x
    return x


class _Cores(Worker):
    """A group of cores, where experts may be whole on one of them each."""

    def __init__(self, layer: Layer, part: Part, calls: tuple[Call, ...], x: Array, *, heads: bool) -> None:
        super().__init__(layer, part, calls, 0, BY_GROUPS, x)
        self.rows_divided = not heads
        self.group = next(call.group for call in calls if call.group is not None)
        self.everywhere: Array | None = None
        self.summed = False

    def _experts(self, of: MatMul, call: Call, weights: Array) -> Array:
        if call.exchange is None:
            return super()._experts(of, call, weights)
        cores, tokens = whole(call.exchange.cores), len(self.x)
        owner = dealt(len(weights), cores)[self.chosen.expert]
        if "experts_activation" not in of.needs:
            (x,) = self.inputs(self.operators["router"])
            if call.exchange.times or self.everywhere is None:
                self.everywhere = exchanged(call.exchange, _own(x, cores, divided=bool(call.exchange.times)))
            rows = self.everywhere[owner, self.chosen.token]
            return by_expert(rows, weights, self.chosen.expert)
        rows = by_expert(self.get("experts_activation"), weights, self.chosen.expert)
        outputs = np.stack([combined(rows * (owner == core)[:, None], self.chosen, tokens) for core in range(cores)])
        found = exchanged(call.exchange, np.pad(outputs, ((0, 0), (0, -tokens % cores), (0, 0))), sums=True)
        self.summed, each = True, found.shape[1] // cores
        return np.concatenate([found[core, core * each : (core + 1) * each] for core in range(cores)])[:tokens]

    def _back(self, name: str) -> Array:
        return self.get(name) if name == "experts_down" and self.summed else super()._back(name)

    def run(self, call: Call) -> None:
        """Its operators; or what one of them has left goes around the rings to all cores."""
        super().run(call)
        if brings(call):
            name = call.needs[0]
            of = self.operators[name]
            names = of.needs if name in ROTATIONS else (name,)
            values = [self._back(one) for one in names]  # experts' results summed up by token
            self.summed = self.summed or name == "experts_down"
            found = everywhere(call, np.concatenate(values, axis=1))
            self.done |= zip(names, np.split(found, np.cumsum([value.shape[1] for value in values])[:-1], axis=1), strict=True)
            self.done[name] = self.done[names[0]]

    def _attended(self, call: Call, of: Attends) -> Array:
        """Each core its own heads, or its own rows: those of prompts see keys that came around the group."""
        cores, prompts = whole(self.group.cores), of.q.shape[1] > 1 or of.q.shape[1] == of.k.shape[1]
        if call.job is not None:
            return tiles.attention(call._replace(job=call.job.jobs[0]), of)
        k, v, heads = of.k[:, :, of.own], of.v[:, :, of.own], of.q.shape[2]
        each = ceil_div(heads, cores)
        if not self.rows_divided:
            some = [slice(start, start + each) for start in range(0, heads, each)]
            found = [attended(of.q[:, :, own], k[:, :, own], v[:, :, own], of.scored.of(own)) for own in some]
            self._scored(call, found[0][1] * each)
            return np.concatenate([out for out, _ in found], axis=2)
        if not prompts:
            each = ceil_div(len(of.q), cores)
            some = [slice(start, start + each) for start in range(0, len(of.q), each)]
            found = [attended(of.q[own], k[own], v[own], of.scored) for own in some]
            self._scored(call, found[0][1] * heads)
            return np.concatenate([out for out, _ in found])
        return self._around(call, of)

    def _scored(self, call: Call, pairs: int) -> None:
        """Refuses more scores on the first core than its products have."""
        first = call.products[0]
        said = first.count * first.m * first.n
        if pairs > said * (1 + 1e-9):
            raise ValueError(f"call {call.name!r}: {said} scores of a core, has {pairs}")

    def _around(self, call: Call, of: Attends) -> Array:
        """Each core has rows of its own, one sequence after the other, and sees what came of the others' keys and values."""
        cores, (sequences, new, heads, _) = whole(self.group.cores), of.q.shape
        kv = np.concatenate([some.reshape(sequences * new, -1) for some in (of.k, of.v)], axis=1)
        own = _own(kv, cores, divided=True)
        here = own if call.exchange is None else exchanged(call.exchange, own)
        found, each = np.zeros((*of.q.shape[:3], of.v.shape[3])), here.shape[1] // cores
        for core in range(cores):
            k, v = np.split(here[core, : sequences * new], [of.k[0, 0].size], axis=1)
            k, v = k.reshape(of.k.shape)[:, :, of.own], v.reshape(of.v.shape)[:, :, of.own]
            out, _ = attended(of.q, k, v, of.scored)
            rows = slice(core * each, (core + 1) * each)
            found.reshape(sequences * new, heads, -1)[rows] = out.reshape(sequences * new, heads, -1)[rows]
        return found


def _own(x: Array, cores: int, divided: bool) -> Array:
    """Rows that cores have, padded to as many for each, shape (cores, rows, columns): their own where they are divided."""
    each = ceil_div(len(x), cores)
    padded = np.pad(x, ((0, cores * each - len(x)), (0, 0)))
    whose = np.repeat(np.arange(cores), each)
    mine = whose == np.arange(cores)[:, None] if divided else np.ones((cores, cores * each), bool)
    return padded * mine[..., None]


def exchanged(of: Exchange, own: Array, *, sums: bool = False) -> Array:
    """What cores have behind an exchange of their slices; sums go to their owners, and where it goes twice to all."""
    times, cores = whole(of.times), whole(of.cores)
    on, each = placed(of.placement, cores), own.shape[1] // cores
    rounds = summed(on, "x", each) if sums and times else ()
    if times == 2 or (times and not sums):
        rounds = (*rounds, *gathered(on, "x", each))
    slots = (Slot("x", own.shape[1:], "float64", depth=2),)
    program = Program(*sides(of.placement, cores), slots, (rounds,))
    return of_cores(play(program, {"x": spread(own, on, of.placement)})["x"], on)


def everywhere(call: Call, x: Array) -> Array:
    """What every core has of a result of which each had a slice.

    Raises:
        ValueError: a slice of the call's exchange is none of the result's rows, columns or blocks.
    """
    of = call.exchange
    assert of is not None
    cores, said = whole(of.cores), whole(of.nbytes / ITEMSIZE)
    rings, members = (whole(side) for side in grid(of.placement, cores, divided=True))
    for high, wide in ((cores, 1), (1, cores), (rings, members)):
        cut = blocks_of(x, high, wide)
        if cut.shape[2] * cut.shape[3] == said:
            break
    else:
        raise ValueError(f"call {call.name!r}: sends {said} values of a core, of {x.shape} on {cores} cores")
    slices = cut.reshape(cores, said)
    found = exchanged(of, _own(slices.reshape(-1, 1), cores, divided=True))
    if not np.array_equal(found, np.broadcast_to(found[:1], found.shape)):
        raise ValueError(f"call {call.name!r}: cores differ in what came to all")
    return joined(found[0].reshape(cut.shape), *x.shape)


def by_expert(rows: Array, weights: Array, expert: Array) -> Array:
    """Products of rows with the matrices of their experts."""
    return np.asarray(np.einsum("rk,rkn->rn", rows, weights[expert]))


def product(call: Call, a: Array, weights: Array) -> Array:
    """The partition's program.

    Raises:
        ValueError: the call's product has another shape.
    """
    (said,) = call.products
    if (whole(said.count * said.m), whole(said.k), whole(said.n)) != (*a.shape, weights.shape[1]):
        raise ValueError(f"call {call.name!r}: product {said}, has {a.shape} and {weights.shape}")
    return _divided(call, a, weights)


def experts(call: Call, a: Array, weights: Array, rows: list[Array]) -> Array:
    """The partition's program for the rows of each expert in turn."""
    found = np.zeros((len(a), weights.shape[2]))
    for matrix, places in zip(weights, rows, strict=True):
        if len(places):
            found[places] = _divided(call, a[places], matrix)
    return found


def _divided(call: Call, a: Array, weights: Array) -> Array:
    of = call.group
    assert of is not None
    way, cores, shape = partition(of.partition), whole(of.cores), Shape(len(a), a.shape[1], weights.shape[1])
    options = of._replace(phases=whole(of.phases)).options
    program = in_double(way.steps(shape, of.placement, cores, "float32", **options))
    found: Array = way.result(play(program, way.place(a, weights, of.placement, cores)), of.placement, cores, shape)
    return found


def _unattended(call: Call, of: Attends) -> Array:
    raise ValueError(f"call {call.name!r}: attention is of the group")


def _absorbed(call: Call, a: Array, weights: Array) -> Array:
    raise ValueError(f"call {call.name!r}: products of heads by themselves have no numbers on a group")


BY_GROUPS = Kernels(product, experts, _unattended, lambda _, of, inputs, layer: by_numpy(of, inputs, layer), _absorbed)
