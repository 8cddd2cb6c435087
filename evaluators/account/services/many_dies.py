"""Many dies that serve requests: an instance is as many dies as a copy of the model is divided over.

An iteration is a micro-batch's pass through all stages, of which there are as many in flight. Its prompts and decoding requests
are dealt to copies of attention in turn (data parallelism of attention). Each die takes as long as those of the copy that has
most: the others wait for it where they meet, as engines do that have idle ranks run along. Experts have all copies' tokens.

Prompts and decodes share a pass, by the plan of prefill; latent attention and states have a form for each, done apart in it. A
table has each kind by itself; what decodes add beside prompts is what as many more tokens take, evenly over copies, and what
is theirs alone, as their attention.

Instances that prefill are on the first rows of dies, those that decode on the rows after them, and caches go over the links
between them: all that can be on their way are, beside nothing else.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account import many_dies
from dse.evaluators.account.breakdown import Row, repeated
from dse.evaluators.account.dies_limits import count, layout_limits, one_split, port_limit
from dse.evaluators.account.dies_memory import caches, fed_weights, units_of, weights
from dse.evaluators.account.many_dies import HIDDEN, Played, area_parts, areas, handed, in_detail, played, stages_of
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.played import steady
from dse.evaluators.account.power import of_phases
from dse.evaluators.account.services import Composition, Done, Instance, priced_by
from dse.evaluators.account.services.die_iterations import (
    Asked,
    Pool,
    asked_of,
    counts_of,
    iteration,
    largest,
    pools_of,
    split_on,
    tables,
    typical,
    whole_prompts,
)
from dse.evaluators.account.services.least import Least, fastest, read_weights, worked_prompt
from dse.evaluators.account.services.prompts import of_load, sent_on
from dse.evaluators.account.stretches import stretches_of
from dse.evaluators.graph.operators import useful
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.layouts.dies import Split
from dse.evaluators.layouts.turns import Iteration, together
from dse.evaluators.machine.d2d import level, placed
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import crossings
from dse.evaluators.readers.die_exchange import Exchange, hand_over
from dse.evaluators.serving.kvcache import Room, room_of
from dse.evaluators.serving.policy import most_prompts
from dse.evaluators.serving.price import points, spread
from dse.evaluators.silicon.energy import to_host
from dse.space.design import Design
from dse.space.elementwise import Array, maximum, where
from dse.space.layers import by_reach
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import SplitPlan
from dse.space.remember import same
from dse.space.software import SERVED_DIES, SERVED_POOLED_DIES, software_of
from dse.space.workload import Case, Load

__all__ = ["area_parts", "areas"]

FIDELITIES = ("closed", "events")

ONE_BY_ONE = True

CHECKS = 20
"""Compositions at which a table's error is measured: each is a step of the model through all of its layers."""

AXES: dict[str, Callable[..., list[Array]]] = {SERVED_DIES: partial(spread, finer=0.5), SERVED_POOLED_DIES: spread}
"""Points of a table, by the software that runs: those of tiles, which take a search of slices each, are half as many."""

KINDS = {SERVED_DIES: "dies", SERVED_POOLED_DIES: "pooled_dies"}
"""What a die is, by the software that runs: modules of `account`."""


BESIDE = "attention, FFNs and their exchanges, of other micro-batches"
"""What micro-batches between dies of attention and of FFNs save, waits taken off."""


class Run(NamedTuple):
    """An iteration: what is asked, what dies do of it, how it is divided, and seconds through all stages."""

    asked: Iteration
    played: Played
    split: Split
    seconds: float


def limits(design: Design, load: Load) -> list[Limit]:
    """Layouts of all instances, and memory for the longest request beside the largest iterations."""
    found, pools = _layouts(design, load), pools_of(design, load)
    if any(np.any(limit.need > limit.have) for limit in found):
        return found
    held, longest = {}, load.longest - 1
    cached = by_reach(load.model, lambda reach: float(reach.kept(longest)))
    for of in pools:
        stage = _stage(design, load, of)
        parts = (("weights", stage.weights), ("KV cache", float(stage.kv(cached, 1.0))), *stage.beside)
        held[of.phase] = parts, _slices(design, load, of)
        if of.of.attention:
            held[f"{of.phase}, FFNs"] = stage.fed, []
    return [*found, *_kind(design).memories(design, held)]


def early(design: Design, load: Load) -> None:
    """Says what limits ask of dies, so that designs are worked out together."""
    if not any(limit.need > limit.have for limit in _layouts(design, load)):
        for of in pools_of(design, load):
            for made_of in (typical(load, of), *largest(load, of)):
                _wanted(design, asked_of(design, load, of, made_of))


def asks(design: Design, load: Load, fidelity: str) -> None:
    """Says what a table of prices asks of dies for the steady state, likewise."""
    longest, every = load.longest, AXES[software_of(design.mapping)]

    def noted(many: Sequence[Asked | None]) -> Sequence[float]:
        for one in many:
            _wanted(design, one)
        return [1.0] * len(many)

    for of in pools_of(design, load):
        largest = most_prompts(of.rule, of.batch, longest), longest, of.batch, longest
        tables(design, load, of, noted)(*points(steady.coarse(every, load, of.of.copies)(*largest)))


def _wanted(design: Design, one: Asked | None) -> None:
    if one is not None and hasattr(_kind(design), "wanted"):
        _kind(design).wanted(design, *one, "closed")


def instances(design: Design, load: Load, fidelity: str) -> tuple[Instance, ...]:
    """Of each pool, as one die of a copy of attention has it on the stage that has least room."""
    found = []
    for of in pools_of(design, load):
        stage = _stage(design, load, of)
        free = of.of.copies * (_capacity(design) - stage.weights - sum(value for _, value in stage.beside))
        room = room_of(load.model, stage.kv)
        key = priced_by(design, load, fidelity, of.of, of.rows)
        pricing = pricing_of(design, load, of, fidelity, key)
        axes = partial(AXES[software_of(design.mapping)], whole=of_load(load), copies=of.of.copies)
        found.append(Instance(pricing, free, room, axes, CHECKS, key, stage.shares, copies=of.of.copies))
    return tuple(found)


def at_least(design: Design, load: Load) -> Least:
    """Dies, and what memories and engines of a stage take at least: a pass goes through all stages, one after the other."""
    kind, mapping = _kind(design), design.mapping
    before, after = (_stage_dies(plan) for plan in (mapping.prefill, mapping.decode))
    engines = kind.engines(design) if design.chip.tile is None else fastest(design.chip)
    decode = read_weights(load.model, mapping.precision) / (kind.channels(design) * after)
    return Least(
        design.chip.dies.rows * design.chip.dies.cols,
        decode=decode,
        prompt=worked_prompt(load.model) / (engines * before),
    )


def sure(design: Design, load: Load) -> list[Limit]:
    """Limits that need no price: that instances can be laid out; of one design."""
    return _layouts(design, load)


def decoded(design: Design, load: Load, context: float) -> float:
    """The price of one request's next token, which reads so many positions; more requests take no less. [s]"""
    of = pools_of(design, load)[-1]
    return _run(design, load, of, (0.0, 0.0, 1.0, context, 0.0), "closed").seconds


def decoding(design: Design, load: Load, context: float) -> None:
    """Says what `decoded` asks of dies, so that designs are worked out together."""
    _wanted(design, asked_of(design, load, pools_of(design, load)[-1], (0.0, 0.0, 1.0, context, 0.0)))


def _stage_dies(plan: SplitPlan) -> Any:
    """Dies of a stage."""
    attention = getattr(plan, "attention_dies", None) or 0
    return where(attention > 0, attention + plan.ep, maximum(plan.tp, plan.ep))


def transfer(design: Design, load: Load) -> tuple[Room, float]:
    """Caches over links between dies, from copies of attention that prefill to those that decode, as many as can at a time."""
    room, sent, _ = _caches_moved(design, load)
    return room.times(max(float(sent.links), float(sent.injection))), float(sent.latency)


def _caches_moved(design: Design, load: Load) -> tuple[Room, Exchange, int]:
    """What a message has of a cache, an exchange of a byte a message, and caches that go at a time by it."""
    before, after = pools_of(design, load)
    on = level(design.chip, _kind(design).KIND.reached(design.mapping))
    ends = [_copies(design, of) for of in (before, after)]
    ways, pairs = channels(design, load), max(copies.shape[1] for copies in ends)
    start, end = (
        copies[np.arange(ways) * len(copies) // ways][:, np.arange(pairs) * copies.shape[1] // pairs] for copies in ends
    )
    # what the dies that take a cache hold of it; of what several that send have alike, it is sent once
    room = room_of(load.model, _stage(design, load, after).kv).times(holders(design, load)[1] / pairs)
    return room, hand_over(on, start, end, 1.0), ways


def channels(design: Design, load: Load) -> int:
    """Caches that are on their way at a time: one of each copy of attention of the pool that has fewer."""
    return min(of.of.dp * of.of.copies for of in pools_of(design, load))


def devices(design: Design) -> int:
    """Dies of the system, whether they work or not."""
    return count(design.chip)


def holders(design: Design, load: Load) -> tuple[int, ...]:
    """Dies of a copy of attention, in all stages."""
    return tuple(of.of.tp * of.of.pp for of in pools_of(design, load))


def used(
    design: Design, load: Load, done: Done, seconds: Any, fidelity: str, peak: Callable[[], Any], spent: Array | None = None,
    hosted: Any = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """Shares of what all dies could do in the time, what the fullest tile holds, and energy from what is done."""
    activity, caches, flop, kind = Activity(), Activity(), 0.0, _kind(design)
    for pool, some in zip(pools_of(design, load), done, strict=True):
        for times, made_of in some:
            for share, one in whole_prompts(pool, made_of):
                activity = activity + _done(_run(design, load, pool, one, fidelity)) * (times * share)
            flop += times * _asked(_whole(load, made_of))
    if len(pools_of(design, load)) == 2:
        room, sent, ways = _caches_moved(design, load)
        each = crossings.activity(sent, ways) + Activity(memory_bytes=2 * sent.sent_bytes / ways)  # from memory to memory
        caches = each * float(room.altogether(sent_on(load)))
    whole = devices(design) * seconds
    slices = [nbytes for of in pools_of(design, load) for _, nbytes in _slices(design, load, of)]
    return {
        "utilisation": flop / (kind.engines(design) * whole),
        "hbm_utilisation": activity.memory_bytes / (kind.channels(design) * whole),
        **({"sram_used": max(slices)} if slices else {}),
        **of_phases(
            design.chip, lambda: [(kind.joules(design, activity + caches) + to_host(hosted, design.chip), seconds)],
            float(load.requests.output.sum()), chips=devices(design), peak=peak,
        ),
    }  # fmt: skip


def watts(design: Design, load: Load, pool: int, made_of: Composition, fidelity: str) -> Any:
    """Of one design."""
    of, each = pools_of(design, load)[pool], np.broadcast_arrays(*(np.ravel(count) for count in made_of))
    found = []
    for one in zip(*each, strict=True):
        run = _run(design, load, of, one, fidelity)
        found.append([float(_kind(design).joules(design, _done(run))) / run.seconds])
    return np.array(found)


def operators(design: Design, load: Load, pool: int, times: float, made_of: Composition, fidelity: str) -> Sequence[Row]:
    """Operators and exchanges of an iteration, on all dies of an instance."""
    of, kind = pools_of(design, load)[pool], _kind(design)
    run = _run(design, load, of, made_of, fidelity)
    it, one, split = run.asked, run.played, run.split
    once = split._replace(batches=1)
    blocks = tuple(_through(block, split) for block in in_detail([one], once))
    flop = sum(unit.flop * unit.times for unit in one.units) * split.group * split.halves
    phase = Phase(it.phase, kind.KIND.machine(design, it.plan), blocks, None, 1.0, None, run.seconds, None, None, flop)
    # blocks are those of all stages: each is on the dies of one
    share = _asked(_whole(load, made_of)) / flop if flop else 1.0
    phase, rows = phase._replace(asked=share), list[Row]()
    # what a die exchanges is the mean over all dies of a stage, also where only some have attention
    apart = [split.attention > 0 and isinstance(block.block.calls[0].job, crossings.Job) for block in blocks]
    for exchanged, dies in ((False, split.attention or split.group), (True, split.group)):
        some = tuple(block for block, of_all in zip(blocks, apart, strict=True) if of_all == exchanged)
        rows += kind.rows(phase._replace(timed=some, dies=dies), fidelity)
    beyond = [
        block._replace(block=block.block._replace(times=block.block.times * unit.times * split.halves))
        for unit in one.units
        for block in unit.beyond
    ]
    if beyond:
        rows += kind.rows(phase._replace(timed=tuple(beyond), dies=split.ep), fidelity)
    gap = run.seconds - sum(row.seconds for row in rows)
    if abs(gap) > 1e-9 * run.seconds:
        name = BESIDE if split.attention else HIDDEN
        rows.append(Row(it.phase, many_dies.WAITS, name, "", 0.0, 0.0, 0.0, "overlap", gap, {"overlap": gap}))
    return [repeated(row, times) for row in rows]


def remedy(worst: Infeasible, design: Design, loads: tuple[Load, ...]) -> str:
    """In words, what would do."""
    address = worst.limit
    if address.endswith(".dp"):
        return "copies of the model that serve are instances: mapping.serving.instances, and mapping.both.dp=1"
    if address.endswith(".microbatches"):
        return "as many micro-batches are in flight as there are stages: mapping.both.microbatches=0"
    if address == "mapping.serving.admit":
        return "stages of a pipeline share a memory: mapping.serving.admit=prompt, which keeps blocks for whole prompts"
    if address == "chip.dies":
        each = ", ".join(f"{of.of.dp} x {of.of.pp * of.of.group} to {of.phase}" for of in pools_of(design, loads[0]))
        return (
            f"instances take {each}, each pool in whole rows of {int(design.chip.dies.cols)}: fewer mapping.serving.instances"
        )
    found: str = _kind(design).remedy(worst, design, (_stretches(_case(loads[0])),))
    return found


def _layouts(design: Design, load: Load) -> list[Limit]:
    """That all instances can be laid out."""
    chip, mapping, found, case = design.chip, design.mapping, list[Limit](), _case(load)
    pools = pools_of(design, load)
    for of in pools:
        names = ("prefill", "decode") if len(pools) == 1 else (of.phase,)
        for phase in names:
            split, plan = split_on(design, of, phase), getattr(mapping, phase)
            found += layout_limits(design, case, phase, split, min(of.rows[1], int(chip.dies.rows)))
            found.append(Limit(f"mapping.{phase}.dp", float(plan.dp), 1.0, "1"))
            found.append(Limit(f"mapping.{phase}.microbatches", float(plan.microbatches), 0.0, "1"))
        found.append(Limit("mapping.serving.admit", 2.0 if of.of.pp > 1 and of.rule.by_chunk else 1.0, 1.0, "layout"))
    rows = sum(of.rows[1] for of in pools)
    found.append(Limit("chip.dies", float(rows * int(chip.dies.cols)), float(count(chip)), "1"))
    if len(pools) == 1:
        found.append(one_split(*(split_on(design, pools[0], phase) for phase in ("prefill", "decode"))))
    return [*found, port_limit(chip)]


class Stage(NamedTuple):
    """The stage of a pipeline that has least room, on one die.

    Attributes:
        weights: [B]
        beside: activations and dispatched tokens of the largest iterations, by what they are. [B]
        kv: bytes of positions that are kept, by reach, and of states of sequences.
        shares: of the time of an iteration, by stage of all.
        fed: what a die of FFNs alone has on the stage that has most, by what it is; () where there are none. [B]
    """

    weights: float
    beside: tuple[tuple[str, float], ...]
    kv: Callable[[Any, float], Any]
    shares: tuple[float, ...]
    fed: tuple[tuple[str, float], ...] = ()


@same
def _stage(design: Design, load: Load, of: Pool) -> Stage:
    model, sizes, units = load.model, _kind(design).KIND.sizes(design.mapping), units_of(load.model)
    _, usual, split, _ = _run(design, load, of, typical(load, of), "closed")
    cut = stages_of([usual], split.pp)[:, :, 0]
    names = [unit.name for unit in usual.units]
    each = np.array([weights(name, units.get(name, ("", "")), model, split, sizes) for name in names])

    def on(stage: int, cached: Any, sequences: float) -> Any:
        mixes = zip(names, cut[stage], strict=True)
        return sum(n * caches(units.get(name, ("", ""))[0], model, cached, sequences, split, sizes) for name, n in mixes)

    seconds = np.array([unit.seconds for unit in usual.units], float)
    paces = cut @ seconds
    if usual.onward:
        paces[:-1] += float(usual.onward[0].seconds) * split.halves
    runs = [_run(design, load, of, made_of, "closed") for made_of in largest(load, of)]
    beside: tuple[tuple[str, float], ...] = tuple(
        (what, max(run.split.halves * float(getattr(run.played.of, name)) for run in runs))
        for what, name in (("activations", "held"), ("dispatched tokens", "received"))
    )
    fed: tuple[tuple[str, float], ...] = ()
    if split.attention:
        there = np.array([fed_weights(units.get(name, ("", "")), model, split, sizes) for name in names])
        left = ("activations", max(run.split.halves * float(run.played.of.beyond) for run in runs))
        fed, beside = (("weights", float((cut @ there).max())), left, beside[1]), beside[:1]
    # the stage on which the longest requests fill the rest first
    longest = load.longest - 1
    cached = by_reach(model, lambda reach: float(reach.kept(longest)))
    left = _capacity(design) - cut @ each - sum(value for _, value in beside)
    taken = np.array([float(on(stage, cached, 1.0)) for stage in range(len(cut))])
    fullest = int(np.argmin(left / np.maximum(taken, 1e-9)))
    shares = tuple((paces / paces.sum()).tolist())
    return Stage(float(cut[fullest] @ each), beside, lambda kept, sequences: on(fullest, kept, sequences), shares, fed)


def _slices(design: Design, load: Load, of: Pool) -> Any:
    """Local memory of a tile in use in the largest iterations, by kind of operator; nothing where dies have a cache."""
    found: list[tuple[str, Any]] = []
    for made_of in largest(load, of):
        found += played(_kind(design).KIND, design, *asked_of(design, load, of, made_of), "closed", of.rows)[1]
    return found


def _run(design: Design, load: Load, of: Pool, made_of: Composition, fidelity: str) -> Run:
    return _ran(design, of, fidelity, asked_of(design, load, of, made_of))


def _ran(design: Design, of: Pool, fidelity: str, one: Asked) -> Run:
    asked, split = one
    ((done,), _) = played(_kind(design).KIND, design, asked, split, fidelity, of.rows)
    return Run(asked, done, split, float(_seconds(done, split)))


def _seconds(one: Played, split: Split) -> Any:
    """Through all stages; of several iterations, shape (iterations, 1)."""
    onward = (split.pp - 1) * split.halves * one.onward[0].seconds if one.onward else 0.0
    return onward + sum(unit.times * unit.seconds for unit in one.units)


def _priced(design: Design, of: Pool, fidelity: str, many: Sequence[Asked | None]) -> Sequence[float]:
    """Seconds of each of some iterations: those of one structure together, where a formula has them."""
    kind, groups = _kind(design).KIND, dict[Any, list[tuple[int, Iteration]]]()
    if not kind.together or fidelity != "closed":
        return [0.0 if one is None else _ran(design, of, fidelity, one).seconds for one in many]
    for place, one in enumerate(many):
        if one is not None:
            asked, split = one
            drawn = asked.model.experts is not None and asked.model.experts.load == "sampled"
            groups.setdefault((asked.structure, place if drawn else -1, split), []).append((place, asked))
    found = np.zeros(len(many))
    for (*_, split), members in groups.items():
        places, each = zip(*members, strict=True)
        ((done,), _) = played(kind, design, each[0] if len(each) == 1 else together(each), split, fidelity, of.rows)
        found[list(places)] = np.ravel(np.broadcast_to(_seconds(done, split), (len(each), 1)))
    return found.tolist()


def _done(run: Run) -> Activity:
    """By all dies of an instance."""
    found, one, split = Activity(), run.played, run.split
    every = float(split.halves * split.group)
    for unit in one.units:
        found = found + unit.activity * (every * unit.times)
    if one.onward:
        found = found + handed(one.onward) * (every * (split.pp - 1))
    return found


def _through(block: Any, split: Split) -> Any:
    """Of all stages, where a batch has the mean one's."""
    return block._replace(block=block.block._replace(times=block.block.times * split.pp))


def _whole(load: Load, made_of: Composition) -> Iteration:
    """What an iteration asks of the model, whoever does it."""
    one, counts = Split(1, 1, 1, 1, 1, 0, 1), counts_of(made_of)
    return iteration(load, one, "prefill" if counts[0] else "decode", "", *counts)


def _asked(of: Iteration) -> float:
    """Useful operations."""
    return sum(part.times * float(useful(one)) for part in transformer(of.model, of.step()) for one in part.operators)


MEMORY = 64
"""Prices of instances that are kept by their keys."""

PRICES: dict[str, Callable[..., Array]] = {}


def pricing_of(design: Design, load: Load, of: Pool, fidelity: str, key: str = "") -> Callable[..., Array]:
    """Seconds of compositions, by tables of prompts, of decodes, and of as many more tokens; equal keys share what is known."""
    if key in PRICES:
        return PRICES[key]
    pricing = tables(design, load, of, partial(_priced, design, of, fidelity))
    if key:
        if len(PRICES) >= MEMORY:
            PRICES.clear()
        PRICES[key] = pricing
    return pricing


def _copies(design: Design, of: Pool) -> Array:
    """Places of the dies of each copy of attention, all stages of it together; shape (copies, members)."""
    plan, cols, (first, rows) = getattr(design.mapping, of.phase), int(design.chip.dies.cols), of.rows
    split = of.of
    at = placed(plan.placement, rows, cols, split.dp * split.pp, split.group, split.tp) + first * cols
    at = at[:, : split.copies * split.tp]
    each = at.reshape(split.dp, split.pp, split.copies, split.tp)
    return np.asarray(each.transpose(0, 2, 1, 3).reshape(split.dp * split.copies, -1))


def _capacity(design: Design) -> float:
    """Of a die's memory. [B]"""
    found: float = _kind(design).capacity(design)
    return found


def _case(load: Load) -> Case:
    """A request as long as the longest prompt, for what depends on the model alone."""
    return Case(load.label, load.model, ((1, int(load.requests.prompt.max()), 1),), load.speculation)


def _stretches(case: Case) -> Any:
    return stretches_of(case.model, ((0, case),), "mean")


def _kind(design: Design) -> ModuleType:
    return kind_of(software_of(design.mapping))


@cache
def kind_of(software: str) -> ModuleType:
    """What a die is, by the software that runs."""
    return import_module(f"dse.evaluators.account.{KINDS[software]}")
