"""Wafers that serve requests: an instance is a wafer, whose regions hold the model in the layout of either phase.

The kernels of a phase have no place for the other's work, so that an iteration with prompts and decodes is one after the other:
prompts follow one another through the regions of prefill, each after what is cached of it, then one token of every decoding
request goes through those of decode, both as in a batch (`account/regions.py`). Weights lie in the cores for both: nothing
would be read less in a pass of both together. Prompts are known by their tokens and the positions that each attends to: they
are taken to be whole and alike as far as these allow, T / (2 c - 1) prompts of 2 c - 1 tokens, else one chunk of T with the
past that is left.

Where the regions of the two phases differ, the wafer changes from one to the other: for every iteration with prompts, weights
and what is cached of these go to the layout of prefill, and come back with the new keys and values. Caches of others stay where
they are, so there is room for those that fit beside what either phase holds. The way there is charged as the way back, and each
iteration with prompts by itself: that is slower than a wafer that changes once for several in a row. Where the regions are the
same nothing moves. Wafers that only prefill, or only decode, stay as they are, and caches go by the host between them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.account import regions
from dse.evaluators.account.breakdown import Row, repeated
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.played import steady
from dse.evaluators.account.power import NOTHING, of_phases
from dse.evaluators.account.regions import area_parts as area_parts
from dse.evaluators.account.services import Composition, Done, Instance, priced_by
from dse.evaluators.account.services.least import Least, lanes, worked_prompt
from dse.evaluators.account.services.prompts import alike, by_hosts, of_load, points
from dse.evaluators.account.stretches import Stretches
from dse.evaluators.graph.operators import useful
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.kv import kv
from dse.evaluators.layouts.formats import index_of
from dse.evaluators.layouts.held import Held
from dse.evaluators.layouts.region_calls import kv_widths
from dse.evaluators.layouts.regions import region
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.kvcache import Room, room_of
from dse.evaluators.serving.policy import most_prompts, rules
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.elementwise import Array, maximum
from dse.space.layers import at_reach, by_reach, widest
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import BYTES, Mapping
from dse.space.parameters import STATE_BYTES, growths
from dse.space.workload import Load

FIDELITIES = ("closed",)

ONE_BY_ONE = True

BOUNDS_TOGETHER = True
"""What is known before designs are judged broadcasts over several."""

PHASES = ("prefill", "decode")

SAME = 1e-9
"""Of the time of a phase, what its rows may leave unsaid."""


def limits(design: Design, load: Load) -> list[Limit]:
    """Those of one request by itself, with the longest prompt and the longest cache: beside more of them, requests wait."""
    return regions.limits(design, _longest(load))


def instances(design: Design, load: Load, fidelity: str) -> tuple[Instance, ...]:
    """Wafers of each pool, with room for the caches that fit beside what both phases hold, or the one that they are for."""
    _, mapping = _of(design)
    room, found = _request(design, load), list[Instance]()
    for names in (PHASES[:1], PHASES[1:]) if mapping.serving.prefill_instances else (PHASES,):

        def pricing(
            prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array, names: Any = names
        ) -> Array:
            changing = "decode" in names
            prompts = _over((prompt, prompt_context), lambda t, c: _prefilled(design, load, t, c, fidelity, changing))
            tokens = _over((decodes, context), lambda d, c: _decoded(design, load, d, c, fidelity))
            return np.where((prompt > 0) | (decodes > 0), prompts + tokens, np.nan)

        free = min(_free(design, load, name, room) for name in names)
        begun = float(load.requests.prompt.mean())
        axes = partial(points, steps=_places(design, load), begun=begun, whole=of_load(load))
        found.append(Instance(pricing, free, room, axes, key=priced_by(design, load, names, fidelity)))
    return tuple(found)


def transfer(design: Design, load: Load) -> tuple[Room, float]:
    """Caches go by way of the host."""
    return _request(design, load).times(1 / float(_of(design)[1].serving.host)), 0.0


def at_least(design: Design, load: Load) -> Least:
    """Wafers, and what all their cores take of a prompt at least; what is in them takes no time that is known before."""
    chip, mapping = _of(design)
    each = chip.core.mac / chip.clock / (chip.mesh.rows * chip.mesh.cols)
    return Least(devices(design), prompt=worked_prompt(load.model) / 2 * each, lanes=lanes(mapping.serving))


def sure(design: Design, load: Load) -> list[Limit]:
    """Limits that need no price, which are all of them; leaves broadcast over designs."""
    return limits(design, load)


def decoded(design: Design, load: Load, context: float) -> Any:
    """The price of one request's next token, which reads so many positions; more requests take no less. [s]"""
    return np.ravel(regions.phases(design, _tokens(load, np.ones(1), np.array([context])), "closed")[1].seconds)


def prompted(design: Design, load: Load) -> Any:
    """What each token of a prompt takes at least, by the prices that a table of the steady state has around such prompts. [s]

    Between its points prices are linear in tokens, and a prompt is asked for by itself, whatever is before it.
    """
    most = max(most_prompts(rule, 1, load.longest) for rule in rules(_of(design)[1].serving))
    tokens, before, *_ = steady.coarse(lambda *_: [np.zeros(1)], load)(most, load.longest, 1, load.longest)
    some, past = (np.ravel(count) for count in np.broadcast_arrays(tokens[1:, None], before[before >= 0]))
    seconds = regions.phases(design, _prompts(load, some, past + (some + 1) / 2), "closed")[0].seconds
    return np.min(seconds / some[:, None], axis=0)


def areas(design: Design) -> tuple[float, float]:
    """Of one die, and of those of all chips. [mm2]"""
    die, whole = (float(value) for value in regions.areas(design))
    return die, whole * devices(design)


def holders(design: Design, load: Load) -> tuple[int, ...]:
    """Each chip has all of a cache."""
    return (1, 1)


def used(
    design: Design, load: Load, done: Done, seconds: float, fidelity: str, peak: Callable[[], Any], hosted: float = 0.0
) -> dict[str, float]:
    """Shares of what all cores and links could do in the time, what the fullest core holds, and energy from what is done."""
    chip, mapping = _of(design)
    moved = by_hosts(_request(design, load), load, chip, mapping.serving.prefill_instances, hosted)
    activity, useful = Activity(), 0.0
    for pool, some in enumerate(done):
        for times, made_of in some:
            useful += times * _useful(load, made_of)
            for _, phase in _phases(design, load, pool, made_of, fidelity):
                assert phase.activity is not None
                activity = activity + phase.activity * times
    wafers, tokens = devices(design), float(load.requests.output.sum())
    rows, cols = float(chip.mesh.rows), float(chip.mesh.cols)
    links = 2 * (rows * (cols - 1) + cols * (rows - 1)) * float(chip.noc.word_bytes * chip.clock / chip.noc.word)
    return {
        "utilisation": useful / 2 * float(chip.core.mac / chip.clock) / (rows * cols * wafers * seconds),
        "noc_utilisation": float(np.max(activity.hop_bytes)) / (links * wafers * seconds) if links else 0.0,
        "sram_used": max(float(of.total) for name in PHASES for of in _held(design, load, name)),
        **of_phases(chip, lambda: [(float(np.max(dynamic(activity, chip))) + moved, seconds)], tokens, chips=wafers, peak=peak),
        "power_energy": float(chip.power) * wafers * seconds,
    }


def watts(design: Design, load: Load, pool: int, made_of: Composition, fidelity: str) -> Any:
    """Of the part of an iteration that takes most: its prompts, ways between layouts, or its tokens, one after another."""
    chip, _ = _of(design)
    counts = np.broadcast_arrays(*(np.ravel(count) for count in made_of))

    def most(one: Composition) -> float:
        parts = (of for _, of in _phases(design, load, pool, one, fidelity))
        return max(float(np.max(dynamic(of.activity, chip) / maximum(of.seconds, NOTHING))) for of in parts if of.activity)

    return np.array([[most(one)] for one in zip(*counts, strict=True)])


def mean_watts(design: Design, load: Load, pool: int, made_of: Composition, fidelity: str) -> Any:
    """Of an iteration, over all its parts."""
    chip, _ = _of(design)
    counts = np.broadcast_arrays(*(np.ravel(count) for count in made_of))

    def mean(one: Composition) -> float:
        parts = [of for _, of in _phases(design, load, pool, one, fidelity)]
        joules = sum(float(np.max(dynamic(of.activity, chip))) for of in parts if of.activity)
        return joules / max(sum(float(np.max(of.seconds)) for of in parts), NOTHING)

    return np.array([[mean(one)] for one in zip(*counts, strict=True)])


def operators(design: Design, load: Load, pool: int, times: float, made_of: Composition, fidelity: str) -> Sequence[Row]:
    """Kernels of an iteration, and the ways between layouts; rows of decode are called so where there are prompts too."""
    found: list[Row] = []
    for what, phase in _phases(design, load, pool, made_of, fidelity):
        rows = regions.rows(phase, fidelity)
        seconds = float(np.max(phase.seconds))
        gap = seconds - sum(row.seconds for row in rows)
        if abs(gap) > SAME * seconds:
            name = "overlap of requests"
            rows.append(Row("", regions.WAITS, name, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
        found += [repeated(replace(row, segment=f"{what}{row.segment}"), times) for row in rows]
    return found


def remedy(worst: Infeasible, design: Design, loads: tuple[Load, ...]) -> str:
    """In words, what would do for each phase that breaks a limit."""
    return regions.remedy(worst, design, tuple(_longest(load) for load in loads))


def _over(counts: tuple[Array, Array], seconds: Any) -> Array:
    """Seconds where the first count is above 0, in the shape that both broadcast to, and 0 elsewhere."""
    first, second = np.broadcast_arrays(*counts)
    found, here = np.zeros(first.shape), first > 0
    if here.any():
        found[here] = seconds(first[here], second[here])
    return found


def _prefilled(design: Design, load: Load, tokens: Array, context: Array, fidelity: str, changing: bool) -> Array:
    """Seconds of the prompts of iterations, and of the ways between layouts; shape (iterations,)."""
    job = _prompts(load, tokens, context)
    found = _flat(regions.phases(design, job, fidelity)[0], len(tokens))
    if changing:
        for moving in _ways(load, job):
            found = found + _flat(regions.phases(design, moving, fidelity)[2], len(tokens))
    return found


def _decoded(design: Design, load: Load, requests: Array, context: Array, fidelity: str) -> Array:
    """Seconds of a token of each request; shape (iterations,)."""
    return _flat(regions.phases(design, _tokens(load, requests, context), fidelity)[1], len(requests))


def _flat(phase: Phase, count: int) -> Array:
    return np.broadcast_to(np.ravel(phase.seconds), (count,))


def _phases(design: Design, load: Load, pool: int, made_of: Composition, fidelity: str) -> list[tuple[str, Phase]]:
    """Of an iteration: prompts, ways between layouts, and tokens, as far as there are such; and what their rows begin with."""
    prompt, prompt_context, decodes, context = (np.array([count]) for count in made_of[:4])
    found: list[tuple[str, Phase]] = []
    if prompt > 0:
        job = _prompts(load, prompt, prompt_context)
        found.append(("", regions.phases(design, job, fidelity, detailed=True)[0]))
        if pool or not _of(design)[1].serving.prefill_instances:
            ways = (regions.phases(design, moving, fidelity)[2] for moving in _ways(load, job))
            found += zip(("to prefill: ", "to decode: "), ways, strict=True)
    if decodes > 0:
        of = regions.phases(design, _tokens(load, decodes, context), fidelity, detailed=True)[1]
        found.append(("decode: " if prompt > 0 else "", of))
    return found


def _prompts(load: Load, tokens: Array, context: Array) -> Stretches:
    """Prompts of iterations, alike as far as their tokens and the positions that these attend to allow."""
    copies, own, past = alike(tokens, context)
    return _job(load, prompts=own[:, None], copies=copies[:, None], past=past[:, None])


def _tokens(load: Load, requests: Array, context: Array) -> Stretches:
    """A token of each request, which has generated what its context is longer than a prompt."""
    generated = np.maximum(context - float(load.requests.prompt.mean()), 0.0)[:, None]
    near = by_reach(load.model, lambda reach: reach.seen(context)[:, None])
    return _job(load, requests=requests[:, None], context=near, generated=np.minimum(generated, widest(near)))


def _ways(load: Load, job: Stretches) -> tuple[Stretches, Stretches]:
    """To the layout of prefill with what is cached of its prompts, and back with what they add."""
    there = job.copies * job.past
    return _job(load, moved=there), _job(load, moved=there + job.copies * job.prompts)


def _longest(load: Load) -> Stretches:
    """The longest prompt, and the longest cache."""
    prompt = float(load.requests.prompt.max())
    return _job(load, prompts=prompt, moved=prompt, cached=float(max(load.longest - 1, prompt)))


def _job(
    load: Load,
    *,
    prompts: Any = 1.0,
    copies: Any = 1.0,
    past: Any = 0.0,
    requests: Any = 1.0,
    context: Any = 1.0,
    generated: Any = 0.0,
    moved: Any = 1.0,
    cached: Any = 1.0,
) -> Stretches:
    """Iterations as the account of batches knows them: prompts, and one step of decode; arrays of shape (iterations, 1)."""
    pairs, seen = by_reach(load.model, lambda reach: reach.after(past, prompts)), by_reach(load.model, lambda of: of.seen(past))
    return Stretches(
        model=load.model, rows=(0,), cases=(), decode_at="mean", prompts=prompts, copies=copies, past=past,
        prompt_starts=_starts(prompts), steps=1.0, requests=requests, context=context, generated=generated,
        step_starts=_starts(requests), prefill=Step("prefill", copies * prompts, copies, copies * pairs, copies * seen),
        decode=Step("decode", requests, requests, requests * context, requests * context), prompt_tokens=moved,
        output_tokens=1.0, decode_steps=1.0, cached=by_reach(load.model, lambda reach: reach.kept(cached)), longest=prompts,
        sequences=1.0, prompt_kept=by_reach(load.model, lambda reach: reach.kept(moved)),
    )  # fmt: skip


def _starts(values: Any) -> Any:
    return np.arange(len(values)) if isinstance(values, np.ndarray) else None


def _held(design: Design, load: Load, phase: str) -> tuple[Held, Held]:
    """What cores hold for the longest request: in a full region, and in the last one."""
    found: tuple[Held, Held] = regions.phases(design, _longest(load), "closed")[PHASES.index(phase)].held
    return found


def _free(design: Design, load: Load, phase: str, room: Room) -> float:
    """Bytes of caches and states for which a phase leaves room; of states alone as many as the fullest core has room for."""
    if room.position:
        return _room(design, load, phase) * float(room.position)
    sram, held = float(_of(design)[0].core.sram), _held(design, load, phase)
    return float(
        min(max(float(sram - of.total + of.states), 0.0) / float(of.per_sequence) for of in held if of.per_sequence)
        * room.fixed
    )


def _room(design: Design, load: Load, phase: str) -> float:
    """Cached positions, of all requests, for which a phase leaves room: on the row of cores that is fullest."""
    chip, mapping = _of(design)
    rows = float(getattr(mapping, phase).rows)
    core = min(
        max(float(chip.core.sram - of.total + of.kv), 0.0) // of.per_token for of in _held(design, load, phase) if of.per_token
    )
    # of as many requests as make rows even
    positions, generated = (
        rows * float(some.sum()) for some in (load.requests.prompt + load.requests.output, load.requests.output)
    )
    return float(core * positions / kv(mapping.kv).fullest(positions, generated, rows))


def _places(design: Design, load: Load) -> tuple[int, int, int]:
    """Rows of cores in prefill, regions in decode, and rows of cores there."""
    chip, mapping = _of(design)
    of = region(mapping.decode, chip.mesh.rows, chip.mesh.cols, float(load.model.layers))
    return int(mapping.prefill.rows), int(of.count), int(mapping.decode.rows)


def _request(design: Design, load: Load) -> Room:
    """What a request has on a wafer, of all layers."""
    mapping = _of(design)[1]

    def nbytes(cached: Any, sequences: float) -> float:
        said = mapping.precision
        kv, index, conv = BYTES[said.kv], BYTES[index_of(said)], BYTES[said.activations]
        total = 0.0
        for of in growths(load.model):
            layer = of.layer
            if layer.of.recurrence is not None:
                total += layer.times * sequences * (of.state * STATE_BYTES + of.conv * conv)
                continue
            values = at_reach(cached, layer.reach) * sum(kv_widths(layer.of, mapping.kv_heads))
            total += layer.times * float(values * kv + at_reach(cached, layer.indexed) * of.scores * index)
        return total

    return room_of(load.model, nbytes)


def _useful(load: Load, made_of: Composition) -> float:
    """Operations of the model in an iteration, padding apart."""
    prompt, prompt_context, decodes, context = (np.array([count]) for count in made_of[:4])
    steps = []
    if prompt > 0:
        steps.append(_prompts(load, prompt, prompt_context).prefill)
    if decodes > 0:
        steps.append(_tokens(load, decodes, context).decode)
    return sum(
        float(np.sum(part.times * useful(of))) for at in steps for part in transformer(load.model, at) for of in part.operators
    )


def devices(design: Design) -> Any:
    """Chips of all instances."""
    serving = _of(design)[1].serving
    return (serving.instances + serving.prefill_instances) * 1.0


def _of(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
