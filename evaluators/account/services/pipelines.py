"""Meshes of tiles that serve requests as they come: pipelines that do both phases, or some for each.

An iteration of a pipeline is one micro-batch's pass through all its stages, prompts and decodes together: products over all
tokens, attention of each kind by itself. What of the KV cache is not in local memory comes
from HBM. An iteration is priced by
the plan of the phase that its pipeline is for, and a design's iterations once, as a table.
"""

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.partitions import with_partition
from dse.evaluators.account.pipelines import parallelism, pass_rows, plan_limits, smallest
from dse.evaluators.account.played import drawn, peak, served, steady
from dse.evaluators.account.played.served import Checked
from dse.evaluators.account.played.steady import STEADY
from dse.evaluators.account.profile import Profile, idle
from dse.evaluators.account.services import Composition, priced_by
from dse.evaluators.account.services import pipelines_standing as standing
from dse.evaluators.account.services.fleet import (
    Pipelines,
    all_cores,
    chosen,
    cores_of,
    decode_cores,
    fleet_of,
    forms,
    iteration,
    least,
)
from dse.evaluators.account.services.least import Least, fastest, read_weights, worked_prompt
from dse.evaluators.account.services.pipeline_pools import assembled, moved, paced, priced
from dse.evaluators.account.services.pipeline_work import fullest_core, mean_iteration, moving, watts, worked
from dse.evaluators.account.services.prompts import of_load
from dse.evaluators.layouts.kv_transfer import Ways
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.readers import READERS
from dse.evaluators.serving.loop import Deployment, Served
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import spread
from dse.evaluators.silicon import area, price
from dse.evaluators.silicon.energy import design_parts, dynamic
from dse.space.chip import Chip, decoding, memory_channels
from dse.space.design import Design
from dse.space.elementwise import maximum, minimum, option, where
from dse.space.fields import leaves, replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import AUTO, PARTITIONS, STAGES, Mapping
from dse.space.requests import Requests
from dse.space.workload import Load

FIDELITIES = tuple(READERS)

TOGETHER_AT = {STEADY: (standing.parts, chosen)}
"""Rows of a design that are worked out together, and how some are taken of them, by fidelity."""

WORDS = (*(f"mapping.{phase}.{word}" for phase in ("prefill", "decode") for word in ("placement", "stages")),
         "mapping.serving.arrangement")  # fmt: skip
"""Words in which designs that are worked out at once may differ."""

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


def at_least(design: Design, load: Load) -> Least:
    """One chip; and what the cores of a stage take at least, since a chunk or a token goes through one stage after the other.

    Weights that local memories of all stages have room for may be there; what a cache in front of main memory has is not known.
    """
    chip, mapping = _chip(design), _mapping(design)
    apart, last, alone = mapping.serving.prefill_cores > 0, mapping.decode, decoding(chip)
    sram = where(apart, alone.tile.sram, chip.tile.sram)
    channel = where(apart, alone.hbm.channel_bandwidth, chip.hbm.channel_bandwidth)
    away = maximum(read_weights(load.model, mapping.precision) - last.tp * last.pp * sram, 0.0) if chip.l2 is None else 0.0
    channels = last.tp if chip.hbm.place == "core" else memory_channels(chip)
    each = fastest(chip) / all_cores(design) * where(apart, mapping.prefill.tp, last.tp)
    return Least(decode_cores=decode_cores(design), decode=away / (channels * channel), prompt=worked_prompt(load.model) / each)


def words(design: Design) -> tuple[str, ...]:
    """Those of `WORDS`; none where partitions are of a group that is a mesh, or left open."""
    mapping = _mapping(design)
    return WORDS if {mapping.prefill.partition, mapping.decode.partition} <= set(PARTITIONS) else ()


def limits(design: Design, load: Load) -> list[Limit]:
    """Cores for both phases, and what those of each hold; of designs that have cores for both, or of those that have not."""
    mapping, found = _mapping(design), _divided(design)
    if any(np.any(limit.need > limit.have) for limit in found):
        return found  # nothing can be said of pipelines on cores that there are not
    if _two_sets(design, load):
        return [Limit("mapping.decode.partition", 2.0, 1.0, "layout")]
    fleet = fleet_of(design, load)
    for of in fleet:
        found += plan_limits(of.chip, of.name, of.plan, of.held, least(of, load, mapping), _most_stages(of, load), of.groups)
        found.append(Limit(f"mapping.{of.name}.dp", of.dp * of.plan.pp * 1.0, maximum(of.groups, 1) * 1.0, "1"))
    if len(fleet) == 1:
        # the same cores serve both phases
        chunk = policy(mapping.serving.policy).chunk or 1
        usual = {"dp": maximum(1, fleet[0].groups // mapping.decode.pp), "chunk": chunk}
        for knob in ("tp", "pp", "dp", "microbatch", "chunk"):
            said = [getattr(plan, knob) * 1.0 for plan in (mapping.prefill, mapping.decode)]
            values = [where(value > 0, value, usual[knob]) if knob in usual else value for value in said]
            found.append(Limit(f"mapping.decode.{knob}", maximum(*values), minimum(*values), "1"))
        of_both = ("partition", "placement", "experts", "stages")
        alike = reduce(operator.and_, (getattr(mapping.prefill, word) == getattr(mapping.decode, word) for word in of_both))
        found.append(Limit("mapping.decode.partition", where(alike, 1.0, 2.0), 1.0, "layout"))
        for part in ("prefetch", "sums"):
            same = _alike(getattr(mapping.prefill, part), getattr(mapping.decode, part))
            found.append(Limit(f"mapping.decode.{part}", where(same, 1.0, 2.0), 1.0, "layout"))
    return found


def _alike(one: Any, other: Any) -> Any:
    """Whether parts of two plans are the same, design by design."""
    if one is None or other is None:
        return one is other
    pairs = zip(leaves(one), leaves(other), strict=True)
    return reduce(operator.and_, (mine == its for (_, mine, _), (_, its, _) in pairs), True)


def metrics(design: Design, load: Load, fidelity: str) -> dict[str, Any]:
    """What a run is worth, or the steady state, and what it has used; of the latter leaves of shape (designs,)."""
    if fidelity == STEADY:
        return standing.metrics(design, load)
    chip, fleet, apart = _chip(design), fleet_of(design, load), decode_cores(design)
    run, tables, between = _served(design, load, fleet, fidelity, 0)
    if run is None:
        return {"max_rate": 0.0}
    made = float(area.die(chip, apart)), float(area.total(chip, apart))
    values = served.worth(run, load, *made) | {"step_price_error": served.errors_of([tables])[0].mean}
    values |= {"max_rate": run.rate} if load.largest else {}
    load = served.of_run(load, run)
    counts = run.state.work
    read = counts["positions"].sum() + counts["past"].sum()
    values["kv_spilled"] = float(counts["far"].sum() / read) if read else 0.0
    means = [[mean for kind in served.by_span(run, number) for mean in kind if mean.times] for number in range(len(fleet))]
    gone = ~np.isnan(run["ready"])
    values |= worked(design, load, fleet, READERS[fidelity], means, peak.of_run(run), between, gone, served.span(run))
    return values | {"devices": 1.0, "sram_used": fullest_core(fleet)}


def profile(design: Design, load: Load, fidelity: str) -> Profile | None:
    """Power over the first iterations, caches on their way all the time, in the mean; None where no rate keeps the bounds."""
    chip, fleet = _chip(design), fleet_of(design, load)
    run, _, between = _served(design, load, fleet, fidelity, served.KEPT)
    if run is None:
        return None
    rest = idle(chip, decode_cores=decode_cores(design))
    if between is not None:
        moved = moving(design, load, fleet, between, ~np.isnan(run["ready"]))
        rest += float(dynamic(moved, chip)) / served.span(run)
    return drawn.profile(run, watts(load, fleet, READERS[fidelity], between), rest)


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

    def of_mean(pool: int, mean: served.Mean) -> list[Row]:
        return operators(design, load, pool, mean.times, mean.composition, fidelity)

    made = _chip(design), decode_cores(design)
    found = served.explained(run, area.parts(*made), of_mean, names=names, beside=beside)
    return replace(found, power=design_parts(*made), price=price.parts(*made))


def _standing(design: Design, load: Load, fleet: tuple[Pipelines, ...]) -> Breakdown:
    """The time of pipelines by operator, in the steady state."""
    made = _chip(design), decode_cores(design)
    means = [[mean.of(0) for mean in some if mean.times[0]] for some in standing.standing_of(design, load, fleet).means]

    def of_mean(pool: int, mean: served.Mean) -> list[Row]:
        return operators(design, load, pool, mean.times, mean.composition, steady.PRICES)

    return replace(steady.explained(means, area.parts(*made), of_mean), power=design_parts(*made), price=price.parts(*made))


def operators(design: Design, load: Load, pool: int, times: float, made_of: Composition, fidelity: str) -> list[Row]:
    """Operators of an iteration."""
    of, mean = fleet_of(design, load)[pool], served.Mean(bool(made_of[0]), times, *made_of)
    return pass_rows("", mean_iteration(load, of, READERS[fidelity], mean), times, of_tiles(of.chip))


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


def _most_stages(of: Pipelines, load: Load) -> Any:
    """Into which a model can be divided."""
    return where(option(of.plan.stages, STAGES) == STAGES.index("layers"), float(load.model.layers), float("inf"))


def _divided(design: Design) -> list[Limit]:
    """How many cores are set apart for each phase."""
    asked, cores = _mapping(design).serving, all_cores(design)
    apart = asked.prefill_cores * 1.0
    found = [Limit("mapping.serving.prefill_cores", apart, cores - 1.0, "1")] if np.any(apart) else []
    return [*found, Limit("mapping.serving.decode_cores", asked.decode_cores * 1.0, maximum(cores - apart, 1.0), "1")]


def _served(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str, log: int
) -> tuple[Served | None, list[Checked], Ways | None]:
    """A run, its prices, and how caches are moved, where they are; None where no rate keeps the bounds."""
    at, found = _by_rate(design, load, fleet, fidelity)
    run = served.run(at, load, log)
    _, tables, between = found[run.requests.rate if run is not None and len(fleet) == 2 else next(iter(found))]
    return run, tables, between


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
    means = [[mean for kind in served.by_span(run, number) for mean in kind if mean.times] for number in range(len(fleet))]
    gone = ~np.isnan(run["ready"])
    return worked(design, load, fleet, READERS[fidelity], means, peak.of_run(run), between, gone, served.span(run))


def _by_rate(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str
) -> tuple[Callable[[Requests], Deployment], dict[float, tuple[Deployment, list[Checked], Ways | None]]]:
    """What serves a load at any rate, and what has been made of that so far, by rate; 0 where all rates have the same."""
    found: dict[float, tuple[Deployment, list[Checked], Ways | None]] = {}

    def at(requests: Requests) -> Deployment:
        # how much is on the links at a time depends on the rate
        rate = requests.rate if len(fleet) == 2 else 0.0
        if rate not in found:
            found[rate] = _deployed(design, replace(load, requests=requests), fleet, fidelity)
        return found[rate][0]

    return at, found


def _deployed(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], fidelity: str
) -> tuple[Deployment, list[Checked], Ways | None]:
    longest, reader, paces = served.longest(load), READERS[fidelity], paced(load, fleet, READERS[fidelity])
    between = moved(design, load, fleet, paces, reader)
    tables = list[Checked]()
    for place, of in enumerate(fleet):
        crowding = 1.0 if between is None else (between.prefill, between.decode)[place]
        table = served.table(
            priced(load, of, reader, between, crowding), of.rule, int(of.plan.microbatch), longest + 1,
            spread=partial(spread, spilled=True, whole=of_load(load)),
            key=priced_by(design, load, place, crowding, fidelity, of.words, without=()),
        )  # fmt: skip
        tables.append(table)
    (found,) = assembled(design, load, fleet, [table.price for table in tables], paces, between)
    return found, tables, between


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
