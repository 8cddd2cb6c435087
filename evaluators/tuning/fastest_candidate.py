"""Choice of the fastest candidate that fits each design; candidates do not depend on core memory.

Chips that differ only in local memory and main-memory rate have their candidates evaluated once, at some rates around
theirs: a candidate is kept if it is faster than all that need less memory. Each design then times, with its own rate,
the last kept candidates that fit it. So more memory only adds choices.

Such chips form a structure. Structures are evaluated together, whatever candidates each has, as pairs of a structure
and a candidate that fits it, in order; and designs time theirs together, whatever their structures, since array
operations have a fixed overhead. No choice depends on what else is evaluated.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from dse.evaluators.tuning.design_groups import MESH_SIDES, DesignGroups, group_designs, group_equal_rows
from dse.space.array_math import Array, argmin_lexicographic, collapse_if_equal
from dse.space.chip import Chip
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from dse.space.main_memory import main_memory
from dse.space.memoize import LastUsed

MEMORY_RATES = (1e8, 4e9, 2.5e10, 1.6e11, 1e12, 1e14)
"""Of a channel of main memory: between one and the next, candidates are compared together. [B/s]"""

COMPARED_RATES = 5
"""Rates at which they are."""

BETWEEN = np.array(
    [
        np.geomspace(MEMORY_RATES[leaf_at], MEMORY_RATES[min(leaf_at + 1, len(MEMORY_RATES) - 1)], COMPARED_RATES)
        for leaf_at in range(len(MEMORY_RATES))
    ]
)
"""These rates, shape (steps, rates). [B/s]"""

MEMORY_SIZES = (0.0, 2.0**20, 2.0**21, 2.0**24, 2.0**40)
"""Of local memory: candidates that need more than the next one are left out. [B]"""

MIN_SPEEDUP = 0.995
"""Largest time of a candidate relative to another one that needs less memory, to be kept."""

TIMED_CANDIDATES = 6
"""Candidates of each rate that a design times."""

KEPT = 4096
"""Most structures whose candidates are kept."""

TOGETHER = 2**19
"""Times that are looked at together, before bounds leave most of them out."""

FEW = 64
"""Most structures whose candidates are compared without a compiled loop."""

MANY, EACH = 4096, 256
"""Pairs, altogether and of a structure in the mean, from which on bounds leave some out: of fewer, bounds cost more."""

ROOM = "tile.sram"
"""Leaf of a chip with the size of local memory."""

DESIGNS = 2048
"""Designs that are timed together, likewise."""

Sizes = tuple[Any, ...]


class TunableKernel(Hashable, Protocol):
    """Interface of a kernel with open sizes to choose; equal for equal kernels."""

    def options(self, chip: Chip, plan: Any) -> Sizes:
        """Sizes of candidates, shape (candidates,), on chips with the same mesh."""

    def neighbours(self, plan: Any, sizes: Sizes) -> Sizes:
        """Sizes of the neighbours of each candidate, shape (neighbours, candidates)."""

    def local_memory(self, sizes: Sizes) -> Any:
        """Local memory of each candidate. [B]"""

    def size_counts(self, chip: Chip, sizes: Sizes) -> Any:
        """Counts of candidates that depend on mesh sides only, as a nested tuple; leaves broadcast."""

    def work(self, chip: Chip, sizes: Sizes, counted: Any) -> Any:
        """Work of candidates that does not depend on main memory, as a nested tuple."""

    def memory(self, chip: Chip) -> Any:
        """Main-memory inputs of chips to candidates' times, as a nested tuple."""

    def bound_inputs(self, sizes: Sizes, counted: Any) -> Any:
        """Inputs of candidates to bounds on their times, independent of the chip."""

    def bounds(self, chip: Chip, bounded: Any, memory: Any) -> "CandidateBounds":
        """Lower bounds on `seconds`, on chips whose leaves are numbers or of shape (structures,)."""

    def seconds(self, chip: Chip, sizes: Sizes, work: Any, memory: Any) -> Any:
        """Time of candidates, from their work and memory inputs; leaves broadcast. [s]"""


class TilingCandidates(NamedTuple):
    """Candidate tilings that structures may choose from.

    Attributes:
        sizes, counted: as of `Kernel`; leaves are numbers or of shape (candidates,).
        held: local memory of the candidates, shape (candidates,). [B]
        bounded: as of `TunableKernel`; None until first needed.
    """

    sizes: Sizes
    counted: Any
    held: Array
    bounded: Any = None


class CandidateBounds(NamedTuple):
    """Lower bounds on candidates' times per structure and rate: max of turns x busy and nbytes x byte.

    They are evaluated in loops over pairs, without storing times, from values that depend on candidates or on
    structures alone, and from the times of slices, which many candidates share.

    Attributes:
        turns, nbytes: of candidates, shape (candidates,). [1], [B]
        slices: which slice each has, shape (candidates,).
        busy: of a slice on a structure, shape (slices, structures). [s]
        byte: at a rate on a structure, shape (rates, structures). [s/B]
    """

    turns: Array
    nbytes: Array
    slices: Array
    busy: Array
    byte: Array

    def of_pairs(self, pairs: "CandidatePairs") -> Array:
        """Lower bounds of candidate pairs, shape (rates, pairs). [s]"""
        candidate, structure = pairs.candidate, pairs.structure
        busy = self.turns[candidate] * self.busy[self.slices[candidate], structure]
        return np.asarray(np.maximum(busy, self.nbytes[candidate] * self.byte[:, structure]))


class CandidatePairs(NamedTuple):
    """Pairs of a structure and a candidate, one structure after the other, at least one each.

    Attributes:
        structure: its place among those that are looked at, shape (pairs,).
        candidate: its place among the candidates, shape (pairs,).
        order: pairs of a structure by memory, then by candidate index, shape (pairs,).
        starts: where those of each structure begin, shape (structures + 1,).
    """

    structure: Array
    candidate: Array
    order: Array
    starts: Array


class UsefulCandidates(NamedTuple):
    """Candidates of a structure that some memory size would choose, by increasing memory.

    Attributes:
        table: leaves of their sizes, local memory and work, shape (leaves, candidates).
        form: (sizes, memory, work), with the place of each leaf in the table.
        places, needs: for each rate, which candidates are faster than all that need less, and their memory [B]; shape
            (rates, as many as any has), beyond the last of which they need more than there is.
    """

    table: Array
    form: Any
    places: Array
    needs: Array


_useful: LastUsed[Hashable, UsefulCandidates] = LastUsed(KEPT)
"""Useful candidates, by kernel and structure."""

TRIED_CANDIDATES = 8
"""Most kernels whose first candidates are kept."""

_tried: LastUsed[Hashable, tuple[TilingCandidates, Array]] = LastUsed(TRIED_CANDIDATES)
"""First candidates, by kernel, meshes and given settings."""


def find_fastest_sizes(kernel: TunableKernel, chip: Chip, plan: Any) -> tuple[Sizes, Any]:
    """Sizes of the fastest candidate that fits, else the smallest; shape (designs,), or numbers for one.

    The second result is its time [s], shape (designs,); None for one design.

    Args:
        kernel: what is computed.
        chip: where; leaves are numbers or of shape (designs,).
        plan: given settings, likewise; 0 for open ones.
    """
    designs = group_designs(chip, plan, memory_steps(chip))
    *sizes, seconds = _timed(kernel, chip if designs.many else designs.chip, _worths(kernel, designs), designs)
    return tuple(map(collapse_if_equal, sizes)), seconds if designs.many else None


BOXES_PER_BATCH = 2**19
"""Pairs of a box and a candidate that are bounded together at most."""

KEPT_BOXES = 64
"""Kernels on a mesh whose candidates are kept for boxes at most."""


def find_least_sizes(kernel: TunableKernel, chip: Chip, plan: Any) -> tuple[Sizes, Any]:
    """Sizes with the least time of all candidates that fit boxes of chips, and that time [s].

    Candidates are those that are tried first and all their neighbours. `find_fastest_sizes` leaves out what is hardly worth its
    memory, so that its choice is one of these, whatever the rates and the local memory of a chip: over boxes, where leaves are
    those of the fastest corner and the largest memory, the time is a lower bound if times of each candidate are. Candidates
    whose own lower bounds exceed the time of another one are left out.

    Args:
        kernel: what is computed.
        chip: leaves are numbers or of shape (boxes,).
        plan: given settings, likewise; 0 for open ones.
    """
    boxes = group_designs(chip, plan, memory_steps(chip, _ANY_VALUE, _ANY_VALUE))
    wide = {address: value for address, value, _ in iterate_leaves(chip) if isinstance(value, np.ndarray)}
    chosen: list[Array] = []
    for group in boxes.rows_by_mesh(np.arange(boxes.kinds)):
        sides, own = boxes.side(group), boxes.plan_of_rows(group)
        on_mesh = replace_leaves(boxes.chip, sides)
        candidates = _all_candidates(kernel, on_mesh, own)
        rows = np.flatnonzero(np.isin(boxes.which, group))
        step = max(BOXES_PER_BATCH // len(candidates.held), 1)
        for first in range(0, len(rows), step):
            these = rows[first : first + step]
            leaves = {address: value[these] for address, value in wide.items() if address not in MESH_SIDES}
            chips = replace_leaves(boxes.chip, sides | leaves)
            sizes = _least_of_boxes(kernel, chips, leaves, candidates, len(these))
            if not chosen:
                chosen = [np.empty(len(boxes.which)) for _ in sizes]
            for column, size in zip(chosen, sizes, strict=True):
                column[these] = size
    return tuple(map(collapse_if_equal, chosen[:-1])), chosen[-1] if boxes.many else None


_ANY_VALUE = (0.0,)
"""Steps of memories of boxes of one group, which may differ in any way."""


_all: LastUsed[Hashable, TilingCandidates] = LastUsed(KEPT_BOXES)
"""All candidates and their neighbours, by kernel, mesh and given settings."""


def _all_candidates(kernel: TunableKernel, chip: Chip, plan: Any) -> TilingCandidates:
    """All candidates on the mesh of a chip and all neighbours of each, once each, with what their bounds take."""
    key = kernel, chip.mesh.rows, chip.mesh.cols, plan
    known = _all.find(key)
    if known is None:
        tried = kernel.options(chip, plan)
        every = [np.concatenate([size, by.ravel()]) for size, by in zip(tried, kernel.neighbours(plan, tried), strict=True)]
        first, _ = group_equal_rows(every)
        sizes = tuple(size[first] for size in every)
        counted = kernel.size_counts(chip, sizes)
        bounded = kernel.bound_inputs(sizes, counted)
        known = _all.keep(key, TilingCandidates(sizes, counted, np.asarray(kernel.local_memory(sizes)), bounded))
    return known


def _least_of_boxes(
    kernel: TunableKernel, chip: Chip, leaves: dict[str, Array], tilings: TilingCandidates, count: int
) -> Array:
    """Sizes and least time of some boxes on one mesh, shape (sizes + 1, boxes)."""
    room = np.broadcast_to(np.asarray(chip.tile.sram, float), count)
    rates = replace_leaves(chip, {rate_leaf(chip): np.broadcast_to(main_memory(chip).channel_bandwidth, (1, count))})
    every = np.arange(len(tilings.held))
    bounds = kernel.bounds(chip, tilings.bounded, kernel.memory(rates))
    busy, byte = np.broadcast_to(bounds.busy, (len(bounds.busy), count)), np.broadcast_to(bounds.byte, (1, count))
    least = np.maximum(bounds.turns * busy[bounds.slices].T, bounds.nbytes * byte.T)  # by box and candidate
    fits = tilings.held <= room[:, None]
    fits[~fits.any(axis=1)] = tilings.held == tilings.held.min()  # which a limit reports
    least[~fits] = np.inf

    def time_pairs(box: Array, candidate: Array) -> Array:
        chips = replace_leaves(chip, {address: value[box] for address, value in leaves.items()})
        sizes = _picked(tilings.sizes, candidate)
        work = kernel.work(chips, sizes, _picked(tilings.counted, candidate))
        return np.broadcast_to(kernel.seconds(chips, sizes, work, kernel.memory(chips)), candidate.shape)

    boxes, first = np.arange(count), least.argmin(axis=1)
    enough = time_pairs(boxes, first)
    box, candidate = np.nonzero((least < enough[:, None]) | (every == first[:, None]))
    seconds = time_pairs(box, candidate)
    order = np.lexsort((candidate, seconds, box))
    best = order[np.searchsorted(box[order], boxes)]
    return np.stack([*(np.broadcast_to(size, every.shape)[candidate[best]] for size in tilings.sizes), seconds[best]])


def rate_leaf(chip: Chip) -> str:
    """Leaf of a chip with the bandwidth of a channel of main memory."""
    return main_memory(chip).leaf("channel_bandwidth")


def memory_steps(
    chip: Chip, sizes: tuple[float, ...] = MEMORY_SIZES, rates: tuple[float, ...] = MEMORY_RATES
) -> Mapping[str, tuple[float, ...]]:
    """Sizes [B] and rates [B/s] of memory, by leaf, between which designs of a structure may differ."""
    return _memory_steps(rate_leaf(chip), sizes, rates)


@cache
def _memory_steps(rate: str, sizes: tuple[float, ...], rates: tuple[float, ...]) -> Mapping[str, tuple[float, ...]]:
    """One and the same object for equal steps, by which groups of designs are kept."""
    return MappingProxyType({ROOM: sizes, rate: rates})


@lru_cache(maxsize=KEPT)
def _token(kernel: TunableKernel, common: Hashable) -> object:
    """One token for equal kernels, whose hash is computed once for all structures."""
    return object()


def _worths(kernel: TunableKernel, groups: DesignGroups) -> list[UsefulCandidates]:
    """Useful candidates of each structure."""
    common, own = groups.keys
    token = _token(kernel, common)
    keys = [(token, *row) for row in own]
    kept_candidates = ((number, _useful.find(key)) for number, key in enumerate(keys))
    worths = {number: candidates for number, candidates in kept_candidates if candidates is not None}
    missing = np.array([number for number in range(len(keys)) if number not in worths], int)
    if len(missing):
        worths.update(_looked_at(kernel, groups, missing))
    for number in missing.tolist():
        _useful.keep(keys[number], worths[number])
    return [worths[number] for number in range(len(keys))]


def _looked_at(kernel: TunableKernel, given_groups: DesignGroups, missing: Array) -> Iterator[tuple[int, UsefulCandidates]]:
    """Numbers of some structures, and the useful candidates of each."""
    groups = list(given_groups.rows_by_mesh(missing))
    candidates, ends = _first(kernel, given_groups, groups)
    # what needs more than there may be is left out; where nothing fits, all but what needs the least
    fits = [
        np.searchsorted(candidates.held[s:e], _room(given_groups, g), "right")
        for s, e, g in zip(ends, ends[1:], groups, strict=False)
    ]
    rows, fit = np.concatenate(groups), np.maximum(np.concatenate(fits), 1)
    begin = np.repeat(ends[:-1], list(map(len, groups)))
    for chunk in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(np.cumsum(fit) * COMPARED_RATES // TOGETHER)) + 1):
        starts = np.cumsum([0, *fit[chunk]])
        structure = np.repeat(np.arange(len(chunk)), fit[chunk])
        every = np.arange(starts[-1])
        pairs = CandidatePairs(structure, (begin[chunk] - starts[:-1])[structure] + every, every, starts)
        yield from zip(rows[chunk].tolist(), _searched(kernel, given_groups, rows[chunk], candidates, pairs), strict=True)


def _first(kernel: TunableKernel, given_groups: DesignGroups, groups: list[Array]) -> tuple[TilingCandidates, Array]:
    """Candidates that are tried first, of each group those that need less memory first, and where those of each begin.

    They depend only on meshes and given settings, which other chips share.
    """
    meshes = tuple(
        tuple(given_groups.side(group).get(name, leaf_at(given_groups.chip, name)) for name in MESH_SIDES) for group in groups
    )
    key = kernel, meshes, tuple(map(given_groups.plan_of_rows, groups))
    known = _tried.find(key)
    if known is None:
        options = [kernel.options(given_groups.chips(group), given_groups.plan_of_rows(group)) for group in groups]
        counts = [len(sizes[0]) for sizes in options]
        which, every = np.repeat(np.arange(len(groups)), counts), tuple(map(np.concatenate, zip(*options, strict=True)))
        candidates = _candidates(kernel, given_groups, [group[0] for group in groups], which, every)
        order = np.lexsort((candidates.held, which))
        candidates = TilingCandidates(*(_picked(leaves_, order) for leaves_ in candidates[:3]))
        candidates = candidates._replace(bounded=kernel.bound_inputs(candidates.sizes, candidates.counted))
        known = _tried.keep(key, (candidates, np.cumsum([0, *counts])))
    return known


def _room(groups: DesignGroups, rows: Array) -> Array:
    """Local memory from which on candidates of structures are left out, shape (structures,). [B]"""
    return np.asarray(np.array(MEMORY_SIZES)[np.minimum(groups.places[ROOM][rows] + 1, len(MEMORY_SIZES) - 1)])


def _candidates(kernel: TunableKernel, groups: DesignGroups, firsts: list[Any], which: Array, sizes: Sizes) -> TilingCandidates:
    """Candidates on meshes as those of some structures are: which of these each is on, shape (candidates,)."""
    sides = {name: groups.wide[name][np.array(firsts)][which] for name in MESH_SIDES if name in groups.wide}
    counted = kernel.size_counts(replace_leaves(groups.chip, sides), sizes)
    return TilingCandidates(sizes, counted, np.asarray(kernel.local_memory(sizes)))


def _searched(
    kernel: TunableKernel, groups: DesignGroups, rows: Array, tilings: TilingCandidates, pairs: CandidatePairs
) -> Iterator[UsefulCandidates]:
    """Of all candidates, and then of those beside what is worth its memory, what is worth its memory, of structures in turn.

    Args:
        kernel, on: as of `quickest`.
        rows: numbers of the structures.
        of, pairs: their candidates, those that need less memory first.
    """
    pairs, _, better = _compared(kernel, groups, rows, tilings, pairs)
    tilings, pairs = _beside(kernel, groups, rows, tilings, pairs, np.flatnonzero(better.any(axis=0)))
    pairs, priced, better = _compared(kernel, groups, rows, tilings, pairs)
    columns: list[Any] = []
    form, keep = _taken_apart(priced, columns), better.any(axis=0)
    table = np.stack([np.broadcast_to(np.asarray(column, float), keep.shape)[keep] for column in columns])
    mine, better = pairs.structure[keep], better[:, keep]
    starts = np.searchsorted(mine, np.arange(len(rows) + 1))
    # those of each rate one after the other
    rank = np.cumsum(better, axis=1) - better
    rank -= rank[:, starts[mine]]
    rate, kept = np.nonzero(better)
    longest = int(rank.max()) + 1
    places, needs = np.zeros((len(rows), COMPARED_RATES, longest), int), np.full((len(rows), COMPARED_RATES, longest), np.inf)
    at = mine[kept], rate, rank[rate, kept]
    places[at], needs[at] = kept - starts[mine[kept]], table[form[1]][kept]
    for row, (start, end) in enumerate(pairwise(starts.tolist())):
        yield UsefulCandidates(table[:, start:end], form, places[row], needs[row])


def _compared(
    kernel: TunableKernel, groups: DesignGroups, rows: Array, tilings: TilingCandidates, pairs: CandidatePairs
) -> tuple[CandidatePairs, Any, Array]:
    """Pairs that may be faster than all of a structure that need less memory, their sizes, memory and work, and which are.

    The latter at each rate, shape (rates, pairs).
    """
    own, rate = {name: value[rows] for name, value in groups.wide.items()}, rate_leaf(groups.chip)
    memory = kernel.memory(replace_leaves(groups.chip, own | {rate: BETWEEN[groups.places[rate][rows]].T}))

    def time_pairs(pairs: CandidatePairs) -> tuple[Any, Array]:
        chip = replace_leaves(groups.chip, {name: value[pairs.structure] for name, value in own.items()})
        sizes, memory_rows = _picked(tilings.sizes, pairs.candidate), _picked(memory, pairs.structure)
        work = kernel.work(chip, sizes, _picked(tilings.counted, pairs.candidate))
        seconds = kernel.seconds(chip, sizes, work, memory_rows)
        return (sizes, tilings.held[pairs.candidate], work), np.broadcast_to(seconds, (COMPARED_RATES, len(pairs.candidate)))

    if len(pairs.candidate) >= max(MANY, EACH * len(rows)):
        bounded = tilings.bounded or kernel.bound_inputs(tilings.sizes, tilings.counted)
        pairs = _promising(
            kernel.bounds(replace_leaves(groups.chip, own), bounded, memory), pairs, lambda subset: time_pairs(subset)[1]
        )
    priced, seconds = time_pairs(pairs)
    return pairs, priced, _faster(seconds, pairs)


def _promising(bounds: CandidateBounds, pairs: CandidatePairs, timed: Callable[[CandidatePairs], Array]) -> CandidatePairs:
    """Pairs that may take less than all of their structure before, and with them the first of each.

    Those whose bounds are faster than bounds before are timed. One whose bound is no less than the time of one of these before
    it is no faster than that, and what comes after it is compared with that anyway: leaving it out changes nothing.

    Args:
        bounds: of all candidates and structures.
        pairs: which.
        timed: times of some at each rate, shape (rates, pairs). [s]
    """
    if len(pairs.starts) > FEW:
        from dse.evaluators.tuning import candidate_pruning as chains  # as `_faster` has it

        may, count = np.empty(len(pairs.candidate), bool), len(bounds.byte)
        chains.mark_faster_by_bounds(*bounds, pairs.candidate, pairs.order, pairs.starts, MIN_SPEEDUP, np.empty(count), may)
        subset = np.flatnonzero(may)
        place = np.full(len(may), -1)
        place[subset] = np.arange(len(subset))
        seconds = np.ascontiguousarray(timed(_of_these(pairs, subset)))
        chains.mark_possibly_faster(*bounds, seconds, place, pairs.candidate, pairs.order, pairs.starts, np.empty(count), may)
        return _of_these(pairs, np.flatnonzero(may))
    least = bounds.of_pairs(pairs)
    subset, seconds = np.flatnonzero(_faster(least, pairs).any(axis=0)), np.full(least.shape, np.inf)
    seconds[:, subset] = timed(_of_these(pairs, subset))
    may = np.empty(len(pairs.candidate), bool)
    for start, end in pairwise(pairs.starts.tolist()):
        own = pairs.order[start:end]
        before = np.minimum.accumulate(seconds[:, own], axis=1)[:, :-1]
        may[own[1:]] = (least[:, own[1:]] < before).any(axis=0)
        may[own[0]] = True
    return _of_these(pairs, np.flatnonzero(may))


def _of_these(pairs: CandidatePairs, subset: Array) -> CandidatePairs:
    """Some pairs, in the order in which all are."""
    place = np.full(len(pairs.candidate), -1)
    place[subset] = np.arange(len(subset))
    order = place[pairs.order]
    structure = pairs.structure[subset]
    starts = np.searchsorted(structure, np.arange(len(pairs.starts)))
    return CandidatePairs(structure, pairs.candidate[subset], order[order >= 0], starts)


def _beside(
    kernel: TunableKernel, groups: DesignGroups, rows: Array, tilings: TilingCandidates, pairs: CandidatePairs, keep: Array
) -> tuple[TilingCandidates, CandidatePairs]:
    """Of some pairs, these candidates and those beside each, once each; by memory, and then by their sizes.

    What takes its turn first is what a structure by itself comes by first.
    """
    structure, candidate = pairs.structure[keep], pairs.candidate[keep]
    columns = [groups.own[name][rows] for name in groups.own]
    first, which = group_equal_rows(columns) if columns else (np.zeros(1, int), np.zeros(len(rows), int))
    sides = [groups.wide[name][rows] for name in MESH_SIDES if name in groups.wide]
    mesh, where_ = group_equal_rows(sides) if sides else (np.zeros(1, int), np.zeros(len(rows), int))
    entries, mine, number = list[Array](), list[Array](), 0
    for kind, row in enumerate(first.tolist()):
        ours = np.flatnonzero(which[structure] == kind)
        used_candidates, place = np.unique(candidate[ours], return_index=True)
        on_mesh, back = where_[structure[ours[place]]], np.searchsorted(used_candidates, candidate[ours])
        sizes = tuple(size[used_candidates] for size in tilings.sizes)
        more = [
            np.concatenate([size[None], by])
            for size, by in zip(sizes, kernel.neighbours(groups.plan_of_rows(rows[[row]]), sizes), strict=True)
        ]
        entries.append(np.stack([np.broadcast_to(on_mesh, more[0].shape), *more]).reshape(len(more) + 1, -1))
        step = np.arange(len(more[0]))[:, None]
        mine.append(
            np.stack(
                [
                    np.broadcast_to(structure[ours], (len(step), len(ours))),
                    number + step * len(used_candidates) + back,
                    step * len(tilings.held) + candidate[ours],
                ]
            ).reshape(3, -1)
        )
        number += more[0].size
    every = np.concatenate(entries, axis=1)
    distinct, same = group_equal_rows(list(every))
    structure, entry, turn = np.concatenate(mine, axis=1)
    every = every[:, distinct]
    tilings = _candidates(kernel, groups, [rows[row] for row in mesh], every[0].astype(int), tuple(every[1:]))
    by_memory, rank = np.argsort(tilings.held, kind="stable"), np.empty(len(distinct), int)
    rank[by_memory] = np.arange(len(distinct))
    key, place = np.unique(structure * len(distinct) + rank[same[entry]], return_index=True)
    structure, candidate, turn = key // len(distinct), by_memory[key % len(distinct)], turn[place]
    fit = tilings.held[candidate] <= _room(groups, rows)[structure]
    fit[np.searchsorted(structure, np.arange(len(rows)))] = True  # where none fits, what needs the least
    structure, candidate, turn = structure[fit], candidate[fit], turn[fit]
    order = np.lexsort((turn, tilings.held[candidate], structure))
    return tilings, CandidatePairs(structure, candidate, order, np.searchsorted(structure, np.arange(len(rows) + 1)))


def _faster(seconds: Array, pairs: CandidatePairs) -> Array:
    """Which pairs are faster than all of their structure before, in order, along the last axis; infinity is not."""
    better = np.empty(seconds.shape, bool)
    if len(pairs.starts) > FEW:
        from dse.evaluators.tuning.candidate_pruning import mark_faster  # a few closed questions do without compiled loops

        mark_faster(seconds, pairs.order, pairs.starts, MIN_SPEEDUP, better)
        return better
    for start, end in pairwise(pairs.starts.tolist()):
        own = pairs.order[start:end]
        current_seconds = seconds[:, own]
        before = np.minimum.accumulate(current_seconds, axis=1)[:, :-1] * MIN_SPEEDUP
        better[:, own] = current_seconds < np.concatenate([np.full((len(current_seconds), 1), np.inf), before], axis=1)
    return better


def _picked(value: Any, places: Array) -> Any:
    """The same tuple with some values of its leaves, along the last axis; numbers are of all."""
    if isinstance(value, tuple):
        return _like(value, [_picked(part, places) for part in value])
    return value.take(places, axis=-1) if isinstance(value, np.ndarray) and value.ndim else value


def _timed(kernel: TunableKernel, chip: Chip, worth: list[UsefulCandidates], groups: DesignGroups) -> Array:
    """Sizes of the fastest candidate and its time [s], shape (sizes + 1, designs), from the useful ones of each
    structure.
    """
    table, form = np.concatenate([group_worth.table for group_worth in worth], axis=1), worth[0].form
    start = np.cumsum([0, *(group_worth.table.shape[1] for group_worth in worth)])
    longest = max(group_worth.places.shape[1] for group_worth in worth)
    places, needs = np.zeros((len(worth), COMPARED_RATES, longest), int), np.full((len(worth), COMPARED_RATES, longest), np.inf)
    for number, candidates in enumerate(worth):
        places[number, :, : candidates.places.shape[1]] = candidates.places + start[number]
        needs[number, :, : candidates.places.shape[1]] = candidates.needs
    wide = [(address, value) for address, value, _ in iterate_leaves(chip) if isinstance(value, np.ndarray)]
    sizes = np.empty((len(form[0]) + 1, len(groups.which)))
    for first in range(0, len(groups.which), DESIGNS):
        span = slice(first, first + DESIGNS)
        leaves = replace_leaves(chip, {address: value[span] for address, value in wide})
        sizes[:, span] = _chosen(kernel, leaves, (table, form), (places, needs), groups, span)
    return sizes


def _chosen(
    kernel: TunableKernel, chip: Chip, worths: tuple[Array, Any], chains: tuple[Array, Array], groups: DesignGroups, span: slice
) -> Array:
    """Fastest of the last fitting candidates at the two rates next to a design's own, for some designs."""
    (table, form), (places, needs), which = worths, chains, groups.which[span]
    room, rate = (
        np.broadcast_to(np.asarray(value, float), which.shape)
        for value in (chip.tile.sram, main_memory(chip).channel_bandwidth)
    )
    between = BETWEEN[groups.places[rate_leaf(groups.chip)][which]]
    beside = np.minimum(np.maximum((between <= rate[:, None]).sum(axis=1) - 1, 0), COMPARED_RATES - 2)
    tried = []
    for step in (beside, beside + 1):
        end = (needs[which, step] <= room[:, None]).sum(axis=1)
        tried.append(places[which, step, np.maximum(end - 1 - np.arange(TIMED_CANDIDATES)[:, None], 0)])
    pick = np.concatenate(tried)
    sizes, held, work = _put_together(form, [leaf.take(pick) for leaf in table])
    seconds = kernel.seconds(chip, sizes, work, kernel.memory(chip))
    best = argmin_lexicographic([np.maximum(held / room - 1, 0.0), seconds])[0], np.arange(len(which))
    return np.stack([column[best] for column in (*sizes, np.broadcast_to(seconds, held.shape))])


def _taken_apart(value: Any, leaves_: list[Any]) -> Any:
    """The same tuple with the places of its leaves, which are put there."""
    if isinstance(value, tuple):
        return _like(value, [_taken_apart(part, leaves_) for part in value])
    leaves_.append(value)
    return len(leaves_) - 1


def _put_together(form: Any, leaves_: list[Any]) -> Any:
    """The nested tuple of a form, with other leaves."""
    return _like(form, [_put_together(part, leaves_) for part in form]) if isinstance(form, tuple) else leaves_[form]


def _like(value: tuple[Any, ...], parts: list[Any]) -> Any:
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
