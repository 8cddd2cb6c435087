"""Meshes of tiles that serve requests as they come: pipelines that do both phases, or some for each.

An iteration of a pipeline is one micro-batch's pass through all its stages, prompts and decodes together: products over all
tokens, attention of each kind by itself. What of the KV cache is not in local memory comes
from HBM. An iteration is priced by
the plan of the phase that its pipeline is for, and a design's iterations once, as a table.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.partitions import with_partition
from dse.evaluators.account.passes import Staged
from dse.evaluators.account.pipelines import parallelism, pass_rows, plan_limits, smallest
from dse.evaluators.account.played import drawn, peak, served, steady
from dse.evaluators.account.played.assembled import layers
from dse.evaluators.account.played.steady import STEADY
from dse.evaluators.account.power import of_phases
from dse.evaluators.account.profile import Profile, idle
from dse.evaluators.account.services import COMPOSITIONS, priced_by
from dse.evaluators.account.services.fleet import (
    Pipelines,
    all_cores,
    cores_of,
    decode_cores,
    fleet_of,
    forms,
    iteration,
    least,
    paces,
)
from dse.evaluators.layouts.kv_transfer import Fleet, Layout, Ways, ways
from dse.evaluators.layouts.played_transfer import played_ways
from dse.evaluators.layouts.residency import cached_here
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.program.counts import Activity
from dse.evaluators.readers import READERS
from dse.evaluators.readers.price import Reader
from dse.evaluators.serving.kvcache import Memory, Prefixes, Room, prefixes, room_of, two_level, two_paged
from dse.evaluators.serving.loop import Deployment, Pool, Served
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import Error, spread
from dse.evaluators.serving.state import Transfer
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.energy import design_parts, dynamic
from dse.space.chip import Chip, decoding, memory_channels
from dse.space.design import Design
from dse.space.elementwise import Array
from dse.space.fields import replaced
from dse.space.layers import two_forms
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import AUTO, BYTES, Mapping, PoolPlan
from dse.space.requests import Requests
from dse.space.workload import Load

FIDELITIES = tuple(READERS)

SHARES = 64
"""Numbers of cores set aside that are tried, where the one asked for does not do."""

REMEDIES = {
    "mapping.serving.prefill_cores": "set fewer cores apart to prefill, so that one is left to decode",
    "mapping.serving.decode_cores": "set fewer cores apart, or mapping.serving.decode_cores=0 for all that are left",
    "mapping.decode.partition": "the same cores serve both phases; say partition, placement, experts, stages by mapping.both",
    "mapping.decode.prefetch": "the same cores serve both phases; say mapping.both.prefetch, or set some apart to prefill",
    "mapping.decode.sums": "the same cores serve both phases; say mapping.both.sums, or set some apart to prefill",
}
"""By limit, where parallelism does not help."""

OTHER_OPERATORS = (
    "auto chooses for operators that prompts and tokens share, and here they differ; say a partition, or set cores apart by "
    "mapping.serving.prefill_cores"
)


def limits(design: Design, load: Load) -> list[Limit]:
    """Cores for both phases, and what those of each hold."""
    mapping, found = _mapping(design), _divided(design)
    if any(limit.need > limit.have for limit in found):
        return found  # nothing can be said of pipelines on cores that there are not
    if _two_sets(design, load):
        return [Limit("mapping.decode.partition", 2.0, 1.0, "layout")]
    fleet = fleet_of(design, load)
    for of in fleet:
        found += plan_limits(of.chip, of.name, of.plan, of.held, least(of, load, mapping), _most_stages(of, load), of.groups)
        found.append(Limit(f"mapping.{of.name}.dp", float(of.dp * of.plan.pp), float(max(of.groups, 1)), "1"))
    if len(fleet) == 1:
        # the same cores serve both phases
        usual = {"dp": max(1, fleet[0].groups // int(mapping.decode.pp)), "chunk": policy(mapping.serving.policy).chunk or 1}
        for knob in ("tp", "pp", "dp", "microbatch", "chunk"):
            values = [float(getattr(plan, knob)) or float(usual[knob]) for plan in (mapping.prefill, mapping.decode)]
            found.append(Limit(f"mapping.decode.{knob}", max(values), min(values), "1"))
        words = ("partition", "placement", "experts", "stages")
        alike = all(getattr(mapping.prefill, word) == getattr(mapping.decode, word) for word in words)
        found.append(Limit("mapping.decode.partition", 1.0 if alike else 2.0, 1.0, "layout"))
        for part in ("prefetch", "sums"):
            same = getattr(mapping.prefill, part) == getattr(mapping.decode, part)
            found.append(Limit(f"mapping.decode.{part}", 1.0 if same else 2.0, 1.0, "layout"))
    return found


def metrics(design: Design, load: Load, fidelity: str) -> dict[str, float]:
    """What a run is worth, or the steady state, and what it has used."""
    chip, fleet, apart = _chip(design), fleet_of(design, load), decode_cores(design)
    made = float(area.die(chip, apart)), float(area.total(chip, apart))
    if fidelity == STEADY:
        steady.refuse(load)
        found, _, between = _deployed(design, load, fleet, STEADY)
        state = steady.solved(found, load, *made)
        gone = load.requests.output > 1
        values = state.values | {"kv_spilled": steady.far(state.means)}
        fullest = peak.of_pools(state.means, found.pools, len(load.requests))
        values |= _worked(design, load, fleet, READERS[steady.PRICES], state.means, fullest, between, gone, state.span)
    else:
        run, off, between = _served(design, load, fleet, fidelity, 0)
        if run is None:
            return {"max_rate": 0.0}
        values = served.worth(run, load, *made, off) | ({"max_rate": served.rate_of(run, load)} if load.largest else {})
        counts = run.state.work
        read = counts["positions"].sum() + counts["past"].sum()
        values["kv_spilled"] = float(counts["far"].sum() / read) if read else 0.0
        means = [served.means(run, number) for number in range(len(fleet))]
        gone = ~np.isnan(run["ready"])
        fullest = peak.of_run(run)
        values |= _worked(design, load, fleet, READERS[fidelity], means, fullest, between, gone, served.span(run))
    return values | {"devices": 1.0, "sram_used": max(float(of.held.sram) for of in fleet)}


def _worked(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], reader: Reader, means: Sequence[Sequence[served.Mean]],
    fullest: Sequence[peak.Fullest], between: Ways | None, gone: Array, span: float,
) -> dict[str, float]:  # fmt: skip
    """What has been used, and the energy of it.

    Args:
        design, load, fleet, reader: what serves.
        means: iterations of each pool.
        fullest: what each has under way at once.
        between: how caches are moved, where they are.
        gone: requests whose caches were, shape (requests,).
        span: of the run. [s]
    """
    spent, moved, done, operations = 0.0, 0.0, Activity(), 0.0
    for of, some in zip(fleet, means, strict=True):
        for mean in some:
            at = _mean_iteration(load, of, reader, mean)
            work = at.activity * mean.times
            done, spent = done + work, spent + float(dynamic(work, of.chip))
            operations += mean.times * sum(float(np.sum(call.flop * times)) for call, _, times, _ in at.calls())
    if between is not None:
        caches = _moved(design, load, fleet, between, gone)
        done, moved = done + caches, float(dynamic(caches, _chip(design)))

    def most() -> float:
        """Caches are on their way all the time, in the mean."""
        return float(np.squeeze(peak.peak(fullest, _watts(load, fleet, reader, between)))) + moved / span

    tokens, apart = float(load.requests.output.sum()), decode_cores(design)
    return _used(design, done, operations, span) | of_phases(
        _chip(design), lambda: [(spent + moved, span)], tokens, decode_cores=apart, peak=most
    )


def _moved(design: Design, load: Load, fleet: tuple[Pipelines, ...], between: Ways, gone: Array) -> Activity:
    """Caches of some requests, shape (requests,), on their way."""
    plan = fleet[-1].holds
    sent = float((_room(design, load, plan).of(load.requests.prompt[gone]) * plan.tp).sum())
    return Activity(sent_bytes=sent, hop_bytes=sent * between.hops)


def _watts(load: Load, fleet: tuple[Pipelines, ...], reader: Reader, between: Ways | None) -> peak.Watts:
    """Power of what iterations do. [W]"""

    def watts(number: int, made_of: peak.Counts) -> Any:
        of = fleet[number]
        crowding = 1.0 if between is None else (between.prefill, between.decode)[number]
        counts = (*made_of, crowding)
        at = iteration(load, of, reader, "prefill" if np.any(made_of[0]) else "decode", *counts)
        return dynamic(at.activity, of.chip) / at.seconds

    return watts


def profile(design: Design, load: Load, fidelity: str) -> Profile | None:
    """Power over the first iterations, caches on their way all the time, in the mean; None where no rate keeps the bounds."""
    chip, fleet = _chip(design), fleet_of(design, load)
    run, _, between = _served(design, load, fleet, fidelity, served.KEPT)
    if run is None:
        return None
    rest = idle(chip, decode_cores=decode_cores(design))
    if between is not None:
        moved = _moved(design, load, fleet, between, ~np.isnan(run["ready"]))
        rest += float(dynamic(moved, chip)) / served.span(run)
    return drawn.profile(run, _watts(load, fleet, READERS[fidelity], between), rest)


def explain(design: Design, load: Load, fidelity: str) -> Breakdown:
    """The time of pipelines, by operator and idle; and the first iterations, on cores, on HBM and on links."""
    fleet = fleet_of(design, load)
    if fidelity == STEADY:
        return _standing(design, load, fleet)
    reader = READERS[fidelity]
    run = _served(design, load, fleet, fidelity, served.KEPT)[0]
    if run is None:
        return Breakdown((), 0.0, area.parts(_chip(design), decode_cores(design)), {})
    beside = {"HBM": np.zeros(len(run.log)), "links": np.zeros(len(run.log))}
    of_pool = run.state.instances["pool"][run.log["instance"]]
    for number, of in enumerate(fleet):
        mine = run.log[of_pool == number]
        if not len(mine):
            continue
        tokens, requests = np.maximum(mine["prompt"], 1), np.maximum(mine["requests"], 1)
        read = np.maximum(mine["positions"] + mine["past"], 1)
        counts = (mine["prompt"], mine["pairs"] / tokens, mine["requests"], mine["positions"] / requests, mine["far"] / read)
        at = iteration(load, of, reader, "prefill" if number == 0 else "decode", *(1.0 * count for count in counts))
        beside["HBM"][of_pool == number] = sum(cost.memory * times for _, cost, times, _ in at.calls())
        beside["links"][of_pool == number] = sum(
            cost.network * times for _, cost, times, _ in at.calls() if cost.network is not None
        )
    names = [f"{of.name} pipeline" if len(fleet) == 2 else "pipeline" for of in fleet]

    def operators(pool: int, mean: served.Mean) -> list[Row]:
        of = _mean_iteration(load, fleet[pool], reader, mean)
        return pass_rows("", of, mean.times, of_tiles(fleet[pool].chip))

    made = _chip(design), decode_cores(design)
    found = served.explained(run, area.parts(*made), operators, names=names, beside=beside)
    return replace(found, power=design_parts(*made), price=price.parts(*made))


def _standing(design: Design, load: Load, fleet: tuple[Pipelines, ...]) -> Breakdown:
    """The time of pipelines by operator, in the steady state."""
    steady.refuse(load)
    made, reader = (_chip(design), decode_cores(design)), READERS[steady.PRICES]
    state = steady.solved(_deployed(design, load, fleet, STEADY)[0], load, float(area.die(*made)), float(area.total(*made)))

    def operators(pool: int, mean: served.Mean) -> list[Row]:
        return pass_rows("", _mean_iteration(load, fleet[pool], reader, mean), mean.times, of_tiles(fleet[pool].chip))

    found = steady.explained(state.means, area.parts(*made), operators)
    return replace(found, power=design_parts(*made), price=price.parts(*made))


def remedy(worst: Infeasible, design: Design, loads: tuple[Load, ...]) -> str:
    """In words, what would do: fewer cores set apart, or the smallest parallelism."""
    if any(_two_sets(design, load) for load in loads):
        return OTHER_OPERATORS
    if worst.limit in REMEDIES:
        return REMEDIES[worst.limit]

    def all_limits(one: Design) -> list[Limit]:
        """Where partitions are left open, of one for all operators that keeps them, the first one else."""
        each = (
            [limit for load in loads for limit in limits(trial, load)]
            for trial in ([one] if not _open(one) else map(partial(_divided_by, one), ("k", "mn_k", "mn", "input_only")))
        )
        first = next(each)
        kept = (some for some in (first, *each) if all(limit.need <= limit.have for limit in some))
        return next(kept, first)

    if not _mapping(design).serving.prefill_cores:
        return smallest(worst, design, all_limits).remedy
    levers = [text for text in (_other_share(design, all_limits), parallelism(design, all_limits)) if text]
    done = ", or ".join(levers) or f"no share of the {all_cores(design):.0f} cores and no TP x PP would do"
    return "; ".join((*_crowded(worst, design), done))


def _two_sets(design: Design, load: Load) -> bool:
    """Whether partitions that are left open are of operators that prompts and tokens do not share, on the same cores."""
    return _mapping(design).decode.partition == AUTO and not _mapping(design).serving.prefill_cores and forms(load.model) > 1


def _open(design: Design) -> bool:
    """Whether a plan leaves partitions open."""
    return AUTO in (_mapping(design).prefill.partition, _mapping(design).decode.partition)


def _divided_by(design: Design, word: str) -> Design:
    """A design with one partition for all in the place of what is left open."""
    mapping = _mapping(design)
    plans = {"prefill": mapping.prefill, "decode": mapping.decode}
    said = {name: with_partition(plan, word) if plan.partition == AUTO else plan for name, plan in plans.items()}
    return replace(design, mapping=replace(mapping, **said))


def _crowded(worst: Infeasible, design: Design) -> list[str]:
    """In words, cores that a pipeline needs and that its phase has; nothing where something else binds."""
    for phase, cores in zip(("prefill", "decode"), cores_of(design), strict=True):
        if worst.limit in (f"mapping.{phase}.{knob}" for knob in ("tp", "pp", "dp")):
            plan = getattr(_mapping(design), phase)
            many = f" x DP {plan.dp:.0f}" if plan.dp > 1 else ""
            asked = f"TP {plan.tp:.0f} x PP {plan.pp:.0f}{many} = {plan.tp * plan.pp * max(plan.dp, 1):.0f} cores to {phase}"
            whose = "set aside by mapping.serving.prefill_cores" if phase == "prefill" else "left to it"
            return [f"{asked}, {cores:.0f} of {all_cores(design):.0f} are {whose}"]
    return []


def _other_share(design: Design, limits: Callable[[Design], list[Limit]]) -> str:
    """In words, how many cores to set aside to prefill so that all limits hold, the nearest first; "" where no number does."""
    plan, now = _mapping(design).prefill, float(_mapping(design).serving.prefill_cores)
    each, cores = max(1, int(plan.tp * plan.pp)), int(all_cores(design))
    for count in sorted((0, *range(each, cores, each)), key=lambda some: abs(some - now))[:SHARES]:
        found = limits(replaced(design, {"mapping.serving.prefill_cores": count}))
        if all(limit.need <= limit.have for limit in found):
            return f"mapping.serving.prefill_cores={count} would do" + ("" if count else ", all cores for both phases")
    return ""


def _most_stages(of: Pipelines, load: Load) -> float:
    """Into which a model can be divided."""
    return float(load.model.layers) if of.plan.stages == "layers" else float("inf")


def _divided(design: Design) -> list[Limit]:
    """How many cores are set apart for each phase."""
    asked, cores = _mapping(design).serving, all_cores(design)
    found = (
        [Limit("mapping.serving.prefill_cores", float(asked.prefill_cores), cores - 1.0, "1")] if asked.prefill_cores else []
    )
    left = max(cores - float(asked.prefill_cores), 1.0)
    return [*found, Limit("mapping.serving.decode_cores", float(asked.decode_cores), left, "1")]


def _used(design: Design, done: Activity, operations: float, seconds: float) -> dict[str, float]:
    """Shares of what all of the chip's engines, channels and links could do in the time; idle cores have theirs."""
    chip, cores = _chip(design), all_cores(design)
    decode = decode_cores(design)
    engines = channels = 0.0
    for of, count in ((chip, cores - decode), (decoding(chip), decode)):
        engines += count * 2 * float(of.tile.matrix.rows * of.tile.matrix.cols * of.clock)
        channels += count / cores * float(memory_channels(of) * of.hbm.channel_bandwidth)
    rows, cols = float(chip.mesh.rows), float(chip.mesh.cols)
    links = 2 * (rows * (cols - 1) + cols * (rows - 1)) * float(chip.noc.word_bytes * chip.clock / chip.noc.word)
    return {
        "utilisation": operations / (engines * seconds),
        "hbm_utilisation": float(done.memory_bytes) / (channels * seconds),
        "noc_utilisation": float(done.hop_bytes) / (links * seconds) if links else 0.0,
    }


def _mean_iteration(load: Load, of: Pipelines, reader: Reader, mean: served.Mean) -> Staged:
    return iteration(load, of, reader, "prefill" if mean.prompts else "decode", *mean.composition)


def _served(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str, log: int
) -> tuple[Served | None, Error, Ways | None]:
    """A run, the largest error of its prices, and how caches are moved, where they are; None where no rate keeps the bounds."""
    at, found = _by_rate(design, load, fleet, fidelity)
    run = served.run(at, load, log)
    _, off, between = found[run.requests.rate if run is not None and len(fleet) == 2 else next(iter(found))]
    return run, off, between


def played(design: Design, load: Load, fidelity: str) -> Served | None:
    """A run of a load; None where no rate keeps its bounds."""
    return _served(design, load, fleet_of(design, load), fidelity, 0)[0]


def unloaded(design: Design, load: Load, fidelity: str) -> tuple[float, float]:
    """What requests take that meet no other: to the first token, and a token. [s]"""
    return served.unloaded(deployer(design, load, fidelity), load)


def deployer(design: Design, load: Load, fidelity: str) -> Callable[[Requests], Deployment]:
    """What serves a load's requests at any rate."""
    return _by_rate(design, load, fleet_of(design, load), fidelity)[0]


def spent(design: Design, load: Load, run: Served, fidelity: str) -> dict[str, float]:
    """What a run of a load's requests has used, and the energy of it."""
    fleet = fleet_of(design, load)
    between = _deployed(design, replace(load, requests=run.requests), fleet, fidelity)[2]
    means = [served.means(run, number) for number in range(len(fleet))]
    gone = ~np.isnan(run["ready"])
    return _worked(design, load, fleet, READERS[fidelity], means, peak.of_run(run), between, gone, served.span(run))


def _by_rate(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str
) -> tuple[Callable[[Requests], Deployment], dict[float, tuple[Deployment, Error, Ways | None]]]:
    """What serves a load at any rate, and what has been made of that so far, by rate; 0 where all rates have the same."""
    found: dict[float, tuple[Deployment, Error, Ways | None]] = {}

    def at(requests: Requests) -> Deployment:
        # how much is on the links at a time depends on the rate
        rate = requests.rate if len(fleet) == 2 else 0.0
        if rate not in found:
            found[rate] = _deployed(design, replace(load, requests=requests), fleet, fidelity)
        return found[rate][0]

    return at, found


def _deployed(design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str) -> tuple[Deployment, Error, Ways | None]:
    mapping, longest, standing = _mapping(design), served.longest(load), fidelity == STEADY
    reader, axes = READERS[steady.PRICES if standing else fidelity], partial(spread, spilled=True)
    between = _ways(design, load, fleet, reader) if len(fleet) == 2 else None
    pools, off = [], Error(0.0, 0.0, 0)
    for place, of in enumerate(fleet):
        crowding = 1.0 if between is None else (between.prefill, between.decode)[place]

        def pricing(
            prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array,
            of: Pipelines = of, crowding: float = crowding,
        ) -> Any:  # fmt: skip
            counts = (prompt, prompt_context, decodes, context, spilled, crowding)
            if of.words is not None and of.name == "decode" and between is not None:  # whose words are those of tokens alone
                return iteration(load, of, reader, "decode", *counts).seconds
            mixed = iteration(load, of, reader, "prefill", *counts).seconds
            if not two_forms(load.model) or (of.words is not None and of.name == "prefill"):
                return mixed
            # latent attention and states are computed otherwise where nothing is prefilled
            return np.where(prompt > 0, mixed, iteration(load, of, reader, "decode", *counts).seconds)

        price, here = served.table(
            pricing, of.rule, int(of.plan.microbatch), longest + 1, spread=steady.coarse(axes, load) if standing else axes,
            checks=0 if standing else COMPOSITIONS,
            key=priced_by(design, load, place, crowding, fidelity, of.words, without=()),
        )  # fmt: skip
        off = max(off, here)
        memory, known = _memory(of, load, mapping)
        parts, _ = paces(load, of, reader)
        pools.append(Pool(price, of.rule, memory, instances=of.dp, shares=parts, batch=of.batch, **known._asdict()))
    transfer = None
    if between is not None:
        # a token of the mean prompt takes as long as messages of its share of that prompt's bytes
        room, prompt = _room(design, load, fleet[-1].holds), float(load.requests.prompt.mean())
        way = room.times(between.per_token * prompt / float(room.of(prompt)))
        transfer = Transfer(
            way.growing,
            between.latency,
            between.together,
            True,
            between.blocks,
            fixed=way.fixed,
            windows=way.windows,
            layers=layers(mapping.serving, load),
        )
    return Deployment(tuple(pools), transfer, mapping.serving.routing), off, between


def _memory(of: Pipelines, load: Load, mapping: Mapping) -> tuple[Memory, Prefixes]:
    """Blocks in local memories and in HBM, or buffers there, one a request; and what of prefixes is kept there."""
    longest, block, kept = served.longest(load), int(mapping.serving.block), float(mapping.serving.prefix)
    near, form = of.near, two_paged if mapping.serving.overflow == "pages" else two_level
    # the longest request must fit, which is a limit
    hbm = max(of.free * (1 - kept), least(of, load, mapping))
    memory = form(near, hbm, of.room, longest=longest, block=block)
    return memory, prefixes(of.free * kept, of.room, load.requests.block, int(mapping.serving.snapshot or 0))


def _room(design: Design, load: Load, plan: PoolPlan) -> Room:
    """What a request has on a core, in all layers."""
    said = _mapping(design).precision

    def nbytes(cached: Any, sequences: float) -> Any:
        return cached_here(load.model, plan, cached, sequences, said)

    return room_of(load.model, nbytes)


def _ways(design: Design, load: Load, fleet: tuple[Pipelines, ...], reader: Reader) -> Ways:
    """Caches on their way from pipelines that prefill to those that decode."""
    chip, mapping, asked = _chip(design), _mapping(design), load.requests
    fleets, prompt = [], float(load.requests.prompt.mean())
    for of in fleet:
        position = float(_room(design, load, of.holds).of(prompt)) / (prompt * load.model.layers)
        stages = of.stages
        nbytes = (stages.carried or load.model.hidden) * float(BYTES[mapping.precision.activations])
        fleets.append(Fleet(int(of.plan.tp), int(of.plan.pp), of.dp, stages.of_layer, position, nbytes))
    # as many as come, or as pipelines can do
    rates = (
        min(asked.rate * float(lengths.mean()), capacity)
        for lengths, (_, capacity) in zip((asked.prompt, asked.output), (paces(load, of, reader) for of in fleet), strict=True)
    )
    rows, cols, block = (int(size) for size in (chip.mesh.rows, chip.mesh.cols, mapping.serving.block))
    # more groups than there is room for, which is a limit, are as many columns wider
    cols = max(cols, -(-sum(of.tp * of.pp * of.dp for of in fleets) // rows))
    layout, fabric = Layout(rows, cols, mapping.serving.arrangement, *fleets), tile_fabric(chip)
    if reader.play is None:
        return ways(layout, fabric, block, *rates)
    return played_ways(layout, fabric, block, *rates, reader.play)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
