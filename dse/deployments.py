"""Deployments of a model on so many devices: instances that do both phases, or pools that prefill and that decode, with the
estimate of each from its steady state.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dse.build import Question
from dse.evaluators.evaluation import binding
from dse.evaluators.judges.serving import deployed
from dse.evaluators.serving.capacity import Bounds
from dse.evaluators.serving.loop import Deployment
from dse.evaluators.serving.steady import Steady, prompts, steady
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import at, replaced
from dse.space.knobs import Space, Value
from dse.space.software import SERVED_DEVICES, SERVED_DIES, SERVED_POOLED_DIES, software_of
from dse.space.workload import Load

MARGIN = 1.4
"""By how much the loop may serve more than the steady state says where nothing bounds a token's time, short loads apart. No
deployment of `studies/capacity` needs it: there it is 0.97 times that at most."""

ALONE = 1.05
"""By how much the loop may compute prompts faster than `steady.prompts` says, which takes iterations as full and equal."""

SPLITS = 2
"""Ways to divide devices between pools that are played of each kind, by either estimate."""

BATCH = "mapping.serving.batch"

INSTANCES, PREFILL = "mapping.serving.instances", "mapping.serving.prefill_instances"

PHASE = ("mapping.prefill.", "mapping.decode.")

TP = ("mapping.prefill.tp", "mapping.decode.tp")

SPLIT = ("tp", "pp", "ep")
"""Of many dies, what divides a copy of the model."""

ROWS, COLS = "chip.dies.rows", "chip.dies.cols"
"""Of a system of many dies, which has as many rows of them as its instances take."""

DIES = (SERVED_DIES, SERVED_POOLED_DIES)
"""Software whose devices are dies of one system."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A deployment that could be asked.

    Attributes:
        values: leaves that tell it from the others.
        devices: that it takes.
        apart: whether some instances only prefill.
        estimate: of its steady state.
        unbound: rate of the steady state with no bound on the time of a token. [1/s]
        most: what the loop's rate may be, with so few requests as there are. [1/s]
    """

    design: Design
    values: dict[str, Any]
    devices: int
    apart: bool
    deployment: Deployment = field(repr=False)
    estimate: Steady
    unbound: float
    most: float

    @property
    def text(self) -> str:
        """In words."""
        counts = {name: int(at(self.design, f"mapping.serving.{name}")) for name in ("prefill_instances", "instances")}
        if self.apart:
            who = f"{counts['prefill_instances']} that prefill{_split(self.design, PHASE[0])}, "
            who += f"{counts['instances']} that decode{_split(self.design, PHASE[1])}"
        else:
            who = f"{counts['instances']} alike{_split(self.design, PHASE[0])}"
        rest = [
            f"{address.rpartition('.')[2]} {value}"
            for address, value in self.values.items()
            if address not in (*TP, INSTANCES, PREFILL, ROWS)
            and not _divides(address)
            and not (self.apart and address.endswith(".policy"))
        ]
        return ", ".join([who, *rest])

    @property
    def words(self) -> list[str]:
        """As overrides of ``dse evaluate``."""
        both = {
            PHASE[0] + leaf.removeprefix(PHASE[1]): value for leaf, value in self.values.items() if leaf.startswith(PHASE[1])
        }
        alike = {leaf for leaf, value in both.items() if self.values.get(leaf) == value}
        found = []
        for address, value in self.values.items():
            if address in alike:
                found.append(f"mapping.both.{address.removeprefix(PHASE[0])}={value}")
            elif not (address.startswith(PHASE[1]) and PHASE[0] + address.removeprefix(PHASE[1]) in alike):
                found.append(f"{address}={value}")
        return found


def candidates(
    usual: Question,
    load: Load,
    bounds: Bounds,
    knobs: Space,
    devices: int,
    *,
    apart: bool,
    every: bool = False,
) -> tuple[list[Candidate], dict[str, int]]:
    """Deployments that fit, by falling estimate; and how many each limit refuses.

    Args:
        usual: the question without knobs.
        load, bounds: what is served, and what requests must keep.
        knobs: of an instance.
        devices: that there are.
        apart: whether some instances may only prefill.
        every: whether pools that lack prefill or decode, and batches that there is no room for, are kept.
    """
    found: list[Candidate] = []
    refused: dict[str, int] = {}
    fits: dict[str, str] = {}
    for values, divided in _plans(usual, knobs, devices, apart=apart):
        design = replaced(usual.base, values)
        alone = replaced(design, {INSTANCES: 1, PREFILL: int(divided)})
        key = repr(sorted((address, value) for address, value in values.items() if address not in (INSTANCES, PREFILL)))
        if key not in fits:
            worst = binding(alone, replace(usual.workload, cases=(load,)))
            fits[key] = worst.limit if worst else ""
        if fits[key]:
            refused[fits[key]] = refused.get(fits[key], 0) + 1
            continue
        deployment, _ = deployed(design, load, "closed", checked=False)
        estimate = steady(deployment, load.requests, tpot=bounds.tpot)
        unbound = steady(deployment, load.requests, tpot=math.inf).rate
        most = of_most(deployment, unbound, load, bounds)
        found.append(Candidate(design, values, _devices(design), divided, deployment, estimate, unbound, most))
    found = found if every else _balanced(_of_room(found, load))
    order = sorted(range(len(found)), key=lambda place: (-found[place].estimate.rate, found[place].devices, place))
    return [found[place] for place in order], refused


def of_most(of: Deployment, unbound: float, load: Load, bounds: Bounds) -> float:
    """What the loop's rate may be: by all that is computed, and by prompts alone. [1/s]

    Infinite where prompts may be reused: what is not computed again bounds nothing.

    Args:
        of: pools.
        unbound: rate of the steady state with no bound on the time of a token. [1/s]
        load: what comes.
        bounds: what requests have to keep.
    """
    if len(load.requests.starts) and any(pool.prefix or pool.pooled for pool in of.pools):
        return math.inf
    return min(unbound * MARGIN * of_few(unbound, load, bounds), of_prompts(of, load, bounds))


def of_few(rate: float, load: Load, bounds: Bounds) -> float:
    """By how much so few requests may come faster than they are served: queues grow, and are gone before bounds are broken.

    The last one that has to keep them comes when the backlog is as long as a request may take:
    `n p (1 / served - 1 / coming) = ttft + output tpot`.

    Args:
        rate: at which requests are served in the long run. [1/s]
        load: how many they are, and how long.
        bounds: what they have to keep.
    """
    may_take = bounds.ttft + float(load.requests.output.mean()) * bounds.tpot
    gained = rate * may_take / (len(load.requests) * bounds.share)
    return 1 / (1 - gained) if gained < 1 else math.inf


def of_prompts(of: Deployment, load: Load, bounds: Bounds) -> float:
    """The rate above which prompts alone, were there nothing to decode, are computed too late.

    As many prompts as must keep their bound are done when the last one may still have its first token, `ttft` after it comes.

    Args:
        of: pools, of which the first one has the prompts.
        load: what comes.
        bounds: what requests have to keep.
    """
    count = len(load.requests) * bounds.share
    left = count / (ALONE * prompts(of.pools[0], load.requests)) - bounds.ttft
    comes = load.requests.arrival[-1] * load.rate  # in which they come, at one a second
    return comes / left if left > 0 else math.inf


def _of_room(found: Sequence[Candidate], load: Load) -> list[Candidate]:
    """Without those whose batch is more than memory has room for, where a smaller one is too."""
    least = int(load.requests.prompt.min())
    kept: dict[tuple[Any, ...], Candidate] = {}
    for one in sorted(found, key=lambda one: float(one.values.get(BATCH, 0))):
        memory = one.deployment.pools[-1].memory
        room = memory.blocks // max(1, -(-least // memory.block))
        batch = min(float(one.values.get(BATCH, 0)), float(room))
        kept.setdefault((batch, *(pair for pair in one.values.items() if pair[0] != BATCH)), one)
    here = {id(one) for one in kept.values()}
    return [one for one in found if id(one) in here]


def _balanced(found: Sequence[Candidate]) -> list[Candidate]:
    """Of pools apart that differ in how many instances each has, those that are best by the estimates, with the bound on a
    token's time and without; the others lack either prefill or decode.
    """
    kinds: dict[tuple[Any, ...], list[Candidate]] = {}
    for one in found:
        kinds.setdefault(
            tuple((address, value) for address, value in one.values.items() if address not in (INSTANCES, PREFILL)), []
        ).append(one)
    kept = set()
    for some in kinds.values():
        for rate in (lambda one: one.estimate.rate, lambda one: one.unbound):
            kept |= {id(one) for one in sorted(some, key=lambda one, rate=rate: -rate(one))[:SPLITS]}  # type: ignore[misc]
    return [one for one in found if not one.apart or id(one) in kept]


def _plans(usual: Question, knobs: Space, devices: int, *, apart: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Leaves of each deployment on so many devices at most, and whether phases are apart."""
    base = usual.base
    rows = _rows(knobs)
    said = int(at(base, INSTANCES)), int(at(base, PREFILL))
    for values in rows:
        leaves = _leaves(knobs, values)
        each = [_each(base, leaves, phase) for phase in PHASE]
        if not said[1] and each[0] == each[1] and each[0] <= devices:
            many = devices // each[0]
            yield {**leaves, INSTANCES: many, **_system(base, (many * each[0],))}, False
    if not apart:
        return
    seen = set()
    for values in rows:
        leaves = {
            a: v for a, v in _leaves(knobs, values).items() if not a.startswith("mapping.serving.") or a.endswith("batch")
        }
        for other in rows:
            decode = _leaves(knobs, other)
            both = leaves | {leaf: value for leaf, value in decode.items() if leaf.startswith(PHASE[1]) and _divides(leaf)}
            if "mapping.serving.policy" in knobs.targets:
                both["mapping.serving.policy"] = "prefill_first"  # decode instances have no prompts to mix
            each = [_each(base, both, phase) for phase in PHASE]
            key = tuple(sorted(both.items()))
            if key in seen:
                continue
            seen.add(key)
            for prefill in _shares(base, (devices - each[1]) // each[0]):
                if many := _left(base, devices, prefill * each[0]) // each[1]:
                    sizes = (prefill * each[0], many * each[1])
                    yield {**both, PREFILL: prefill, INSTANCES: many, **_system(base, sizes)}, True


def _rows(knobs: Space) -> list[Mapping[str, Value]]:
    if not knobs.knobs:
        return [{}]
    total = knobs.combinations
    if total is None:
        raise DesignError("space: dse capacity takes choices, as in choice(1, 2, 4); an interval has no end of deployments")
    columns = knobs.grid(0, total)
    return [knobs.canonical(knobs.row(columns, place)) for place in range(len(next(iter(columns.values()))))]


def _leaves(knobs: Space, values: Mapping[str, Value]) -> dict[str, Any]:
    return {leaf: value for address, value in values.items() for leaf in knobs.targets[address]}


def _each(base: Design, leaves: Mapping[str, Any], phase: str) -> int:
    """Devices of an instance, of a phase."""
    software = software_of(base.mapping)
    said = {name: int(leaves.get(phase + name, at(base, phase + name))) for name in _splits(software)}
    return max(said.get("tp", 1), said.get("ep", 1)) * said.get("pp", 1)


def _splits(software: str) -> tuple[str, ...]:
    """What divides a copy of the model over devices."""
    return SPLIT if software in DIES else SPLIT[:1] if software == SERVED_DEVICES else ()


def _divides(address: str) -> bool:
    """Whether a leaf of a mapping is one of these."""
    return address.startswith(PHASE) and address.rpartition(".")[2] in SPLIT


def _left(base: Design, devices: int, taken: int) -> int:
    """Devices beside those of a pool, which has whole rows of dies."""
    if software_of(base.mapping) not in DIES:
        return devices - taken
    cols = int(at(base, COLS))
    return max(devices // cols - -(-taken // cols), 0) * cols


def _shares(base: Design, most: int) -> Iterable[int]:
    """How many instances may prefill: any number; of many dies, whose links are shared otherwise by each, powers of two."""
    every = range(1, most + 1)
    return every if software_of(base.mapping) not in DIES else [many for many in every if many & (many - 1) == 0]


def _system(base: Design, sizes: Sequence[int]) -> dict[str, int]:
    """Rows of dies that pools of so many take; nothing where devices are chips by themselves."""
    if software_of(base.mapping) not in DIES:
        return {}
    return {ROWS: sum(-(-size // int(at(base, COLS))) for size in sizes)}


def _split(design: Design, phase: str) -> str:
    """Of an instance, in words."""
    said = {name: int(at(design, phase + name)) for name in _splits(software_of(design.mapping))}
    found = [f"{name.upper()} {many}" for name, many in said.items() if many > 1 or name == "tp"]
    return f" of {' x '.join(found)}" if found else ""


def _devices(design: Design) -> int:
    if software_of(design.mapping) in DIES:
        return int(at(design, ROWS)) * int(at(design, COLS))
    prefill, instances = int(at(design, PREFILL)), int(at(design, INSTANCES))
    return prefill * _each(design, {}, PHASE[0]) + instances * _each(design, {}, PHASE[1])
