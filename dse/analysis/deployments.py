"""Deployments of a model on a number of devices, with a steady-state estimate of each.

Instances do both phases, or there are pools that prefill and pools that decode. If instances are pipelines on one chip, a
deployment is a chip.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from dse.accuracy.foreign_constants import describe_foreign_constants
from dse.accuracy.stack_basis import StackBasis, describe_unmeasured_kernels, stack_basis
from dse.analysis.capacity_bounds import bound_max_rate, compute_rate_bound
from dse.analysis.published_formats import propose_published_formats
from dse.config.question import Question
from dse.evaluators.evaluation import explain, explain_infeasibility, find_worst_violation
from dse.evaluators.layouts.startable_degrees import design_obstacle
from dse.evaluators.serving.simulator import Deployment, InstancePool
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.evaluators.serving.sustained_rate import PoolPaces, SustainedRate, pool_paces, sustained_rates_of_counts
from dse.evaluators.workloads.serving import deployment_factory, make_pools
from dse.space.array_math import Array
from dse.space.design import PREFILL_ADDRESS, Design, prefill_mapping
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.space.knobs import Space, Value
from dse.space.layers import layers
from dse.space.limits import Infeasibility
from dse.space.machines import CHAIN_LENGTH
from dse.space.mapping import Mapping as ModelMapping
from dse.space.requests import Requests
from dse.space.safe_text import count_text
from dse.space.serving_plan import WHOLE_PROMPTS
from dse.space.software import SERVED_DEVICES, SERVED_DIES, SERVED_PIPELINES, SERVED_POOLED_DIES, software_of
from dse.space.workload import ServingLoad, Workload

SPLITS = 2
"""Ways to divide devices between pools that are played of each kind, by either estimate."""

FINE = 64
"""Steps to twice as many instances that prefill, where there are more than twice as many as steps."""

BATCH, TOKENS = "mapping.serving.max_batch_size", "mapping.serving.max_batched_tokens"

NO_ROOM, UNBALANCED, NOT_STARTED = REASONS = "same batch by memory", "pools out of balance", "degrees that no engine starts"
"""Why a deployment that breaks no limit is left out: memory has room for no more than a smaller batch that is looked at; others
of its kind share devices better between prefill and decode; heads, columns or blocks of scales do not divide over devices."""

SIZES = (TOKENS, BATCH)
"""What says how large iterations become."""

INSTANCES, PREFILL = "mapping.serving.instances", "mapping.serving.prefill_instances"
POLICY = "mapping.serving.policy"

ADMISSION = "mapping.serving.admission"

ROUTING, ROUTINGS = "mapping.serving.routing", ("cache_aware", "least_loaded")
"""Who gets a prompt, and what is looked through of it where prompts share prefixes that instances keep."""

PHASE = ("mapping.prefill.", "mapping.decode.")

TP = ("mapping.prefill.tp", "mapping.decode.tp")

STAGES = ("mapping.prefill.pp", "mapping.decode.pp")

SPLIT = ("tp", "pp", "ep")
"""Of many dies, what divides a copy of the model."""

ATTENTION = ("mapping.prefill.attention_dies", "mapping.decode.attention_dies")
"""Of many dies, those of a stage that have attention alone."""

CORES = "mapping.serving.prefill_cores"
"""Of a chip whose pipelines are the instances, those that only prefill."""

ROWS, COLS = "chip.dies.rows", "chip.dies.cols"
"""Of a system of many dies, which has as many rows of them as its instances take."""

MULTI_DIE_SERVING = (SERVED_DIES, SERVED_POOLED_DIES)
"""Software whose devices are dies of one system."""


@dataclass(frozen=True, eq=False)
class CandidateDeployment:
    """One deployment that fits its devices, with its pools and its estimate.

    Attributes:
        load: what is served.
        values: leaves that tell it from the others.
        devices: that it takes.
        apart: whether some instances only prefill.
        pools: of instances.
        estimate: of its steady state.
        unbound: rate of the steady state with no bound on the time of a token. [1/s]
        most: what the loop's rate may be, or its users, with so few requests as there are. [1/s]
    """

    design: Design
    load: ServingLoad = field(repr=False)
    values: dict[str, Any]
    devices: int
    apart: bool
    pools: tuple[InstancePool, ...] = field(repr=False)
    estimate: SustainedRate[float]
    unbound: float
    most: float

    @cached_property
    def make_deployment(self) -> Callable[[Requests], Deployment]:
        """Serving simulator of the deployment for requests at their arrival times."""
        return deployment_factory(self.design, self.load, self.pools)

    @cached_property
    def but_batch(self) -> tuple[Any, ...]:
        """Key of a run without the batch limit.

        Equal for deployments whose runs are the same while no batch is full.
        """
        names = [field.name for field in fields(InstancePool) if field.name not in ("price", "batch")]
        return (
            self.values.get(ROUTING, ""),
            *((id(pool.price), *(getattr(pool, name) for name in names)) for pool in self.pools),
        )

    @property
    def text(self) -> str:
        """The deployment as text: instances of each phase, parallelism and other settings."""
        if software_of(self.design.mapping) == SERVED_PIPELINES:
            each = [
                f"{address.removeprefix('mapping.').rpartition('.')[2]} {value}"
                for address, value in self.merged_leaves.items()
            ]
            return ", ".join(each) or "settings of the mapping"
        counts = {name: int(leaf_at(self.design, f"mapping.serving.{name}")) for name in ("prefill_instances", "instances")}
        if self.apart:
            who = f"{counts['prefill_instances']} that prefill{_instance_text(self.design, PHASE[0])}, "
            who += f"{counts['instances']} that decode{_instance_text(self.design, PHASE[1])}"
        else:
            who = f"{counts['instances']} equal instances{_instance_text(self.design, PHASE[0])}"
        rest = [
            f"{address.rpartition('.')[2]} {value}"
            for address, value in self.values.items()
            if address not in (*TP, INSTANCES, PREFILL, ROWS)
            and not _divides_model(address)
            and not (self.apart and address.endswith(".policy"))
        ]
        return ", ".join([who, *rest])

    @property
    def words(self) -> list[str]:
        """The deployment as overrides of ``dse evaluate``."""
        return [f"{address}={value}" for address, value in self.merged_leaves.items()]

    @property
    def merged_leaves(self) -> dict[str, Any]:
        """Settings of the deployment by address; equal settings of both phases once."""
        both = {
            PHASE[0] + leaf.removeprefix(PHASE[1]): value for leaf, value in self.values.items() if leaf.startswith(PHASE[1])
        }
        alike = {leaf for leaf, value in both.items() if self.values.get(leaf) == value}
        overrides = {}
        for address, value in self.values.items():
            if address in alike:
                overrides[f"mapping.both.{address.removeprefix(PHASE[0])}"] = value
            elif not (address.startswith(PHASE[1]) and PHASE[0] + address.removeprefix(PHASE[1]) in alike):
                overrides[address] = value
        return overrides


class InstanceKinds:
    """Kinds of instances, each evaluated once for all deployments that have it."""

    def __init__(
        self,
        usual: Question,
        load: ServingLoad,
        names: Mapping[str, str] | None = None,
        *,
        ffn: bool = False,
        counts: Mapping[str, int] | None = None,
        routings: tuple[str, ...] = (),
        models: Mapping[str, Any] | None = None,
        node: str | None = None,
    ) -> None:
        """Of a question without knobs, and what is served.

        Args:
            usual, load: these.
            names: what was chosen by name: chip, stack.
            ffn: whether those with FFNs on dies of their own are looked at, too.
            counts: of instances that somebody says, by address; none where they follow from the devices.
            routings: that are looked through; none where it stays as it is.
            models: entries of the configuration, of which those of files say in which formats models are published.
            node: part that puts the chip into nodes whose dies share out experts; None if the chip names none.
        """
        self.node = node
        self.routings, self.models = routings, models or {}
        self.usual, self.load, self.ffn, self.counts, self.names = usual, load, ffn, counts or {}, names or {}
        self._limits: dict[str, tuple[Design, Infeasibility | None]] = {}
        self.obstacles: dict[str, None] = {}
        self._pools: dict[str, tuple[list[InstancePool], PoolPaces]] = {}

    def recall(self, before: "InstanceKinds") -> None:
        """Reuse limits and pools of the same question with another number of requests.

        Only if all requests have one length: drawn lengths differ in their mean, and instances are then evaluated again.
        """
        if _equal_lengths(self.load) == _equal_lengths(before.load) != ():
            self._limits, self._pools = before._limits, before._pools

    @property
    def by_chip(self) -> bool:
        """Whether the instances are pipelines on one chip."""
        return software_of(self.usual.base.mapping) == SERVED_PIPELINES

    def extrapolation_text(self, design: Design) -> str:
        """One line on constants of a deployment's software that were fitted on other chips only.

        Empty string if there are none.
        """
        names = {group: str(self.names.get(group, "")) for group in ("chip", "stack")}
        return describe_foreign_constants(self.usual.sources, names, design, self._load_workload)

    def stack_basis(self, design: Design) -> StackBasis | None:
        """Measured and assumed parts of a deployment's software stack; None without a stack."""
        return stack_basis(self.usual.sources, self.names, design, self._load_workload)

    def kernel_basis(self, design: Design) -> str:
        """Kernels of a deployment's mean iterations that no measured row covers, as one line.

        Empty string if there are none.
        """
        basis = self.stack_basis(design)
        if basis is None:
            return ""
        return describe_unmeasured_kernels(basis, explain(design, self._load_workload.cases[0]).rows)

    def find_violated_limit(self, design: Design, values: Mapping[str, Any]) -> str:
        """Limit that one instance of each pool violates; empty string if none."""
        key = _kind_key(values)
        if key not in self._limits:
            changes = {INSTANCES: 1, PREFILL: int(values.get(PREFILL, 0) > 0)}
            alone = design if self.by_chip else replace_leaves(design, changes)
            self._limits[key] = alone, find_worst_violation(alone, self._load_workload)
        worst = self._limits[key][1]
        return worst.limit if worst else ""

    def find_start_obstacle(self, design: Design) -> str:
        """Why no inference engine starts an instance; empty string if one does, or where the chip has none."""
        if software_of(design.mapping) not in (SERVED_DEVICES, SERVED_POOLED_DIES):
            return ""
        if obstacle := design_obstacle(design.mapping, self.load.model):
            self.obstacles.setdefault(obstacle)
        return obstacle

    @property
    def nearest(self) -> Infeasibility | None:
        """Violated limit of the deployment nearest to feasible, with the change that helps.

        None if all fit.
        """
        refused = [(worst.excess, alone) for alone, worst in self._limits.values() if worst]
        if not refused:
            return None
        design = min(refused, key=lambda refusal: refusal[0])[1]
        return propose_published_formats(
            explain_infeasibility(design, self._load_workload), design, self._load_workload, self.models
        )

    @property
    def _load_workload(self) -> Workload:
        return replace(self.usual.workload, cases=(self.load,))

    def price_key(self, values: Mapping[str, Any]) -> str:
        """What tells deployments apart whose instances have other iteration times or another routing."""
        # how many instances share the links of a system of dies is in their prices
        counts = _instance_counts(values) if software_of(self.usual.base.mapping) in MULTI_DIE_SERVING else ""
        return f"{_kind_key(values)} {counts} {values.get(ROUTING, '')}"

    def make_pools(self, design: Design, values: Mapping[str, Any]) -> tuple[tuple[InstancePool, ...], PoolPaces]:
        """Pools of a deployment, and the iteration times of one instance of each."""
        if self.by_chip:
            made = deployment_factory(design, self.load, ())(self.load.requests).pools
            return made, pool_paces(made, self.load.requests)
        key = self.price_key({address: value for address, value in values.items() if address != ROUTING})
        if key not in self._pools:
            pools, _ = make_pools(design, self.load, "analytical")
            self._pools[key] = pools, pool_paces(pools, self.load.requests)
        pools, taken = self._pools[key]
        return with_counts(pools, values), taken


def _instance_counts(values: Mapping[str, Any]) -> tuple[int, int]:
    """Instances that prefill alone, and others."""
    return int(values.get(PREFILL, 0)), int(values.get(INSTANCES, 1))


def with_counts(pools: Sequence[InstancePool], values: Mapping[str, Any]) -> tuple[InstancePool, ...]:
    """Pools with as many instances as a deployment has; as they are where these are on one chip."""
    if INSTANCES not in values:
        return tuple(pools)
    counts = _instance_counts(values)[-len(pools) :]
    return tuple(replace(pool, instances=count) for pool, count in zip(pools, counts, strict=True))


def _equal_lengths(load: ServingLoad) -> tuple[int, ...]:
    """Prompt and output of all requests; nothing where they differ, or share prefixes."""
    requests = load.requests
    ends = [int(end) for lengths in (requests.prompt, requests.output) for end in (lengths.min(), lengths.max())]
    alike = ends[0] == ends[1] and ends[2] == ends[3] and not len(requests.starts) and not len(requests.before)
    return tuple(ends) if alike else ()


def _kind_key(values: Mapping[str, Any]) -> str:
    """What tells kinds of instances apart: all but how many there are, of those that prefill and of all others."""
    settings = sorted((address, value) for address, value in values.items() if address not in (INSTANCES, PREFILL, ROUTING))
    return repr((values.get(PREFILL, 0) > 0, settings))


def find_candidates(
    kinds: InstanceKinds, bounds: SloBounds, knobs: Space, devices: int, *, apart: bool, every: bool = False, least: float = 0.0
) -> tuple[list[CandidateDeployment], dict[str, int]]:
    """Deployments that fit, by falling estimate, and the number of others by limit or reason.

    The reasons are `REASONS`.

    Args:
        kinds: of the question.
        bounds: what requests must keep.
        knobs: of an instance.
        devices: that there are.
        apart: whether some instances may only prefill.
        every: whether pools that lack prefill or decode, and batches that there is no room for, are kept.
        least: a rate; those whose engines do not serve it are left out. [1/s]
    """
    priced, refused = dict[int, _PricedPlan](), dict[str, int]()
    for places, plans in _plans_by_price(kinds, bounds, knobs, devices, apart=apart, least=least):
        values, divided = plans[0]
        design = replace_leaves(kinds.usual.base, values)
        if why := NOT_STARTED if kinds.find_start_obstacle(design) else kinds.find_violated_limit(design, values):
            refused[why] = refused.get(why, 0) + len(plans)
            continue
        pools, taken = kinds.make_pools(design, values)
        counts = np.array([[pool.instances for pool in with_counts(pools, values)] for values, _ in plans])
        estimate, unbound = (
            estimate_steady_state_users(sustained_rates_of_counts(pools, taken, counts, tpot=tpot), kinds.load)
            for tpot in (bounds.tightest[1], math.inf)
        )
        for number, (place, (values, _)) in enumerate(zip(places, plans, strict=True)):
            steady = SustainedRate(*(float(each[number]) for each in estimate))
            priced[place] = _PricedPlan(values, divided, pools, taken, steady, float(unbound.rate[number]))
    kept = [priced[place] for place in sorted(priced)]
    for why, choose in ((NO_ROOM, partial(_of_room, load=kinds.load)), (UNBALANCED, _best_balanced)) if not every else ():
        left = choose(kept)
        if len(left) < len(kept):
            refused[why] = len(kept) - len(left)
        kept = left
    deployments = [_build_candidate(kinds, bounds, plan) for plan in kept]
    return sorted(deployments, key=lambda deployment: (-deployment.estimate.rate, deployment.devices)), refused


class _PricedPlan(NamedTuple):
    """A deployment that fits, with its estimates, before it is built.

    Attributes:
        values, apart: as of `CandidateDeployment`.
        pools: as many instances as another deployment of equal iteration times has.
        taken: iteration times of one instance of each pool.
        estimate, unbound: as of `CandidateDeployment`.
    """

    values: dict[str, Any]
    apart: bool
    pools: tuple[InstancePool, ...]
    taken: PoolPaces
    estimate: SustainedRate[float]
    unbound: float


def _build_candidate(kinds: InstanceKinds, bounds: SloBounds, plan: _PricedPlan) -> CandidateDeployment:
    """The deployment of a plan, with the bound on its rate."""
    design, pools = replace_leaves(kinds.usual.base, plan.values), with_counts(plan.pools, plan.values)
    most = bound_max_rate(pools, plan.taken, kinds.load, bounds)
    devices = _device_count(design)
    return CandidateDeployment(design, kinds.load, plan.values, devices, plan.apart, pools, plan.estimate, plan.unbound, most)


Plan = tuple[dict[str, Any], bool]
"""Leaves of a deployment, and whether phases are apart."""


def _plans_by_price(
    kinds: InstanceKinds, bounds: SloBounds, knobs: Space, devices: int, *, apart: bool, least: float
) -> Iterator[tuple[list[int], list[Plan]]]:
    """Deployments in groups that differ in instance counts alone: places in the space, and plans.

    Limits, obstacles and iteration times of a group are those of any of its deployments.
    """
    plans = [
        single_plan
        for plan in _deployment_plans(kinds, knobs, devices, apart=apart)
        for single_plan in _routing_plans(kinds, *plan)
    ]
    groups: dict[str, list[int]] = {}
    # a table of prices has the points of those of smaller iterations: the largest are looked at first
    for place in sorted(range(len(plans)), key=lambda place: [-float(plans[place][0].get(size, 0)) for size in SIZES]):
        if not (least and _engine_rate_bound(kinds, bounds, *plans[place]) < least):
            groups.setdefault(kinds.price_key(plans[place][0]), []).append(place)
    yield from ((places, [plans[place] for place in places]) for places in groups.values())


def _routing_plans(kinds: InstanceKinds, values: dict[str, Any], divided: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """A plan by every routing that is looked through, where several instances have prompts."""
    several = int(values.get(PREFILL, 0) if divided else values.get(INSTANCES, 1)) > 1
    for routing in kinds.routings if several else ():
        yield {**values, ROUTING: routing}, divided
    if not (several and kinds.routings):
        yield values, divided


def bound_rate(kinds: InstanceKinds, bounds: SloBounds, knobs: Space, devices: int, *, apart: bool, least: float) -> float:
    """Upper bound on the rate of any deployment; infinite if none fits or no rate is required. [1/s]

    Iteration times of dies take long to compute, each split separately: dies whose engines cannot reach the required rate are
    skipped.
    """
    if not least:
        return math.inf
    below = 0.0
    if software_of(kinds.usual.base.mapping) in MULTI_DIE_SERVING:
        engines = [_engine_rate_bound(kinds, bounds, *plan) for plan in _deployment_plans(kinds, knobs, devices, apart=apart)]
        below = max((rate for rate in engines if rate < least), default=0.0)
        if engines and max(engines) < least:
            return below
    candidates, _ = find_candidates(kinds, bounds, knobs, devices, apart=apart, least=least if below else 0.0)
    return max(below, max((candidate.most for candidate in candidates), default=math.inf))


def _engine_rate_bound(kinds: InstanceKinds, bounds: SloBounds, values: dict[str, Any], divided: bool) -> float:
    """What a deployment does not exceed by engines that never wait, whether it fits or not. [1/s]"""
    design = replace_leaves(kinds.usual.base, values)
    stages = int(leaf_at(design, STAGES[0]) or 1) if "pp" in _split_fields(software_of(design.mapping)) else 1
    return compute_rate_bound(design, kinds.load, bounds, stages, apart=divided)


def estimate_steady_state_users(users: SustainedRate[Array], load: ServingLoad) -> SustainedRate[Array]:
    """Users that closed loops have in a steady state, by Little's law; the estimates with these rates.

    Each user thinks, and is answered.
    """
    if not load.requests.users:
        return users
    further = float(load.requests.output.mean()) - 1
    cycle = float(load.requests.think.mean()) + users.ttft + further * np.where(users.rate > 0, users.tpot, 0.0)
    return users._replace(rate=np.where(users.rate > 0, np.maximum(1.0, users.rate * cycle), users.rate))


def has_only_routing(words: Sequence[str], counts: Mapping[str, int]) -> bool:
    """Whether overrides set the routing of requests but not the number of instances."""
    return INSTANCES not in counts and any(word.partition("=")[0] == ROUTING for word in words)


def list_routings(base: Design, load: ServingLoad, words: Sequence[str]) -> tuple[str, ...]:
    """Routing policies to search; none if requests share no prefixes or the user set a policy.

    None as well if instances keep no prefixes.
    """
    serving = base.mapping.serving
    keeps = float(getattr(serving, "prefix_cache_share", 0)) > 0 or getattr(serving, "prefix_cache", "reserved") == "shared"
    shares = keeps and len(load.requests.starts) > 0 and software_of(base.mapping) != SERVED_PIPELINES
    return ROUTINGS if shares and not any(word.partition("=")[0] == ROUTING for word in words) else ()


def find_fewest_devices(kinds: InstanceKinds, knobs: Space) -> int:
    """Devices of the smallest deployment in a space, for a given number of instances."""
    base, many = kinds.usual.base, kinds.counts.get(INSTANCES, 1)
    prefill, decode = (
        [_instance_devices(base, _leaves_of_knobs(knobs, row), phase) for row in _knob_rows(knobs)] for phase in PHASE
    )
    return many * min(decode) + kinds.counts.get(PREFILL, 0) * min(prefill)


def _of_room(deployments: Sequence[_PricedPlan], load: ServingLoad) -> list[_PricedPlan]:
    """Without those whose batch is more than memory has room for, where a smaller one is too."""
    least = int(load.requests.prompt.min())
    kept: dict[tuple[Any, ...], _PricedPlan] = {}
    for deployment in sorted(deployments, key=lambda candidate: float(candidate.values.get(BATCH, 0))):
        memory = deployment.pools[-1].memory
        room = memory.blocks // max(1, -(-least // memory.block))
        batch = min(float(deployment.values.get(BATCH, 0)), float(room))
        kept.setdefault((batch, *(pair for pair in deployment.values.items() if pair[0] != BATCH)), deployment)
    kept_ids = {id(candidate) for candidate in kept.values()}
    return [deployment for deployment in deployments if id(deployment) in kept_ids]


def _best_balanced(deployments: Sequence[_PricedPlan]) -> list[_PricedPlan]:
    """Of pools apart that differ in how many instances each has, those that are best by the estimates, with the bound on a
    token's time and without; the others lack either prefill or decode.
    """
    kinds: dict[tuple[Any, ...], list[_PricedPlan]] = {}
    for deployment in deployments:
        kinds.setdefault(
            tuple((address, value) for address, value in deployment.values.items() if address not in (INSTANCES, PREFILL)), []
        ).append(deployment)
    kept = set()
    for kind in kinds.values():
        for rate in (lambda deployment: deployment.estimate.rate, lambda deployment: deployment.unbound):
            kept |= {id(candidate) for candidate in sorted(kind, key=lambda candidate, rate=rate: -rate(candidate))[:SPLITS]}  # type: ignore[misc]
    return [deployment for deployment in deployments if not deployment.apart or id(deployment) in kept]


def _deployment_plans(
    kinds: InstanceKinds, knobs: Space, devices: int, *, apart: bool
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Leaves of each deployment on so many devices at most, and whether phases are apart."""
    base = kinds.usual.base
    rows = [_leaves_of_knobs(knobs, values) for values in _knob_rows(knobs)]
    if base.pools is not None:  # whose chips prefill by a plan of their own
        rows = _distinct_settings({a: v for a, v in row.items() if not a.startswith(PHASE[0])} for row in rows)
    if kinds.ffn:
        rows = [row_with_ffn for row in rows for row_with_ffn in _with_ffns_apart(base, row)]
    if software_of(base.mapping) == SERVED_DEVICES:
        rows += _rows_with_stages(kinds, rows, devices)
    if software_of(base.mapping) == SERVED_PIPELINES:
        cores = [int(row.get(CORES, leaf_at(base, CORES))) for row in rows]
        yield from ((row, many > 0) for row, many in zip(rows, cores, strict=True) if apart or not many)
        return
    count, prefills = kinds.counts.get(INSTANCES, 0), int(leaf_at(base, PREFILL))
    for leaves in rows:
        each = [_instance_devices(base, leaves, phase) for phase in PHASE]
        many = count or devices // each[0]
        if not prefills and base.pools is None and each[0] == each[1] and 0 < many * each[0] <= devices:
            yield {**leaves, INSTANCES: many, **_die_rows(base, (many * each[0],))}, False
    if not apart or kinds.counts.get(PREFILL) == 0:
        return
    policy = "mapping.serving.policy"
    pools = [
        {
            a: v
            for a, v in row.items()
            if (not a.startswith("mapping.serving.") or a.endswith("batch_size")) and a not in ATTENTION
        }
        for row in rows
    ]
    decodes = [{a: v for a, v in row.items() if a.startswith(PHASE[1]) and _divides_model(a)} for row in rows]
    # decode instances have no prompts to mix
    rule = {policy: "prefill_first"} if policy in knobs.targets else {}
    for both in _distinct_settings(
        leaves | decode | rule for leaves in _distinct_settings(pools) for decode in _distinct_settings(decodes)
    ):
        each = [_instance_devices(base, both, phase) for phase in PHASE]
        for prefill in _prefill_counts(base, (devices - each[1]) // each[0], prefills):
            left = _devices_left(base, devices, prefill * each[0]) // each[1]
            if (many := count or left) and many <= left:
                sizes = (prefill * each[0], many * each[1])
                yield {**both, PREFILL: prefill, INSTANCES: many, **_die_rows(base, sizes)}, True


def _rows_with_stages(kinds: InstanceKinds, rows: Sequence[dict[str, Any]], devices: int) -> list[dict[str, Any]]:
    """Instances in pipeline stages of devices, where no instance without stages holds the model inside a node.

    Of each TP inside a node: the fewest stages that hold the model, and up to twice as many. Stages are powers of two, or
    divide the layers. None where the mapping sets stages itself.
    """
    base, network = kinds.usual.base, kinds.usual.base.chip.network
    if any(getattr(base.mapping, name.split(".")[1]).pp for name in PHASE) or network is None:
        return []
    size = devices if network.nodes is None else min(devices, int(network.nodes.size))
    by_tp: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        tp = [int(row.get(address, leaf_at(base, address))) for address in TP]
        if max(tp) <= size and tp[0] == tp[1] and not kinds.find_start_obstacle(replace_leaves(base, row)):
            by_tp.setdefault(tp[0], []).append(row)

    def holds(row: dict[str, Any]) -> bool:
        return not kinds.find_violated_limit(replace_leaves(base, row), row)

    if any(holds(several[0]) for several in by_tp.values()):
        return []
    count = len(layers(kinds.load.model).line)
    every = [stages for stages in range(2, count + 1) if count % stages == 0 or stages & (stages - 1) == 0]
    staged = list[dict[str, Any]]()
    for tp, several in by_tp.items():
        fewest = next((n for n in every if n * tp <= devices and holds(several[0] | _stage_leaves(base, several[0], n))), 0)
        for stages in every if fewest else ():
            if fewest <= stages <= min(STAGE_SLACK * fewest, devices // tp):
                staged += [row | _stage_leaves(base, row, stages) for row in several]
    return staged


STAGE_SLACK = 2
"""Stages that are looked at, at most, over the fewest that hold a model."""


def _stage_leaves(base: Design, row: Mapping[str, Any], stages: int) -> dict[str, Any]:
    """Leaves that put an instance into stages, whose memory is reserved for whole prompts if they are cut into chunks."""
    leaves = dict.fromkeys(STAGES, stages)
    chunked = str(row.get(POLICY, leaf_at(base, POLICY))) not in WHOLE_PROMPTS
    return leaves | ({ADMISSION: "prompt"} if chunked else {})


def _with_ffns_apart(base: Design, leaves: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A deployment, and those of its split with half, as many and twice as many dies of attention as of FFNs."""
    yield leaves
    tp, ep = (int(leaves.get(PHASE[1] + name, leaf_at(base, PHASE[1] + name))) for name in ("tp", "ep"))
    for attention in (ep // 2, ep, 2 * ep):
        if attention and attention % tp == 0:
            yield leaves | dict.fromkeys(ATTENTION, attention)


def _distinct_settings(several: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each once, where it stands first."""
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for values in several:
        distinct.setdefault(tuple(sorted(values.items())), values)
    return list(distinct.values())


def _knob_rows(knobs: Space) -> list[Mapping[str, Value]]:
    if not knobs.knobs:
        return [{}]
    total = knobs.combinations
    if total is None:
        raise DesignError(
            "space: dse capacity needs choices, as in choice(1, 2, 4); an interval has infinitely many deployments"
        )
    columns = knobs.grid(0, total)
    return [knobs.canonical(knobs.row(columns, place)) for place in range(len(next(iter(columns.values()))))]


def _leaves_of_knobs(knobs: Space, values: Mapping[str, Value]) -> dict[str, Any]:
    return {leaf: value for address, value in values.items() for leaf in knobs.targets[address]}


def _instance_devices(base: Design, leaves: Mapping[str, Any], phase: str) -> int:
    """Devices of an instance, of a phase."""
    mapping, prefix = _pool_plan(base, phase)
    given_leaves = {
        name: int(leaves.get(prefix + name, leaf_at(base, prefix + name)) or 1) for name in _split_fields(software_of(mapping))
    }
    attention = _attention_dies(base, leaves, phase)
    group = attention + given_leaves["ep"] if attention else max(given_leaves.get("tp", 1), given_leaves.get("ep", 1))
    return group * given_leaves.get("pp", 1) * _chain_chips(base, leaves)


def _chain_chips(base: Design, leaves: Mapping[str, Any]) -> int:
    """Chips that share the layers of a model beside any parallelism; 1 without a chain."""
    return 1 if base.chip.chain is None else int(leaves.get(CHAIN_LENGTH, base.chip.chain.chips))


def _pool_plan(base: Design, phase: str) -> tuple[ModelMapping, str]:
    """Mapping of the pool that does a phase, and the address of its plan."""
    if base.pools is not None and phase == PHASE[0]:
        return prefill_mapping(base), f"{PREFILL_ADDRESS}{phase}"
    return base.mapping, phase


def _attention_dies(base: Design, leaves: Mapping[str, Any], phase: str) -> int:
    """Dies of a stage that have attention alone; 0 where each has FFNs too."""
    if software_of(base.mapping) != SERVED_POOLED_DIES:
        return 0
    return int(leaves.get(phase + "attention_dies", leaf_at(base, phase + "attention_dies")) or 0)


def _split_fields(software: str) -> tuple[str, ...]:
    """What divides a copy of the model over devices."""
    return SPLIT if software in MULTI_DIE_SERVING else SPLIT[:2] if software == SERVED_DEVICES else ()


def _divides_model(address: str) -> bool:
    """Whether a leaf of a mapping is one of these."""
    return address.startswith(PHASE) and (address.rpartition(".")[2] in SPLIT or address in ATTENTION)


def _devices_left(base: Design, devices: int, taken: int) -> int:
    """Devices beside those of a pool, which has whole rows of dies."""
    if software_of(base.mapping) not in MULTI_DIE_SERVING:
        return devices - taken
    cols = int(leaf_at(base, COLS))
    return max(devices // cols - -(-taken // cols), 0) * cols


def _prefill_counts(base: Design, most: int, prefills: int) -> Iterable[int]:
    """How many instances may prefill: what is said, or any number, of many in steps of a `FINE`th; of many dies, whose links
    they share, powers of two.
    """
    if prefills:
        return [prefills] if prefills <= most else []
    shares, many, dies = list[int](), 1, software_of(base.mapping) in MULTI_DIE_SERVING
    while many <= most:
        shares.append(many)
        many += many if dies else max(1, many // FINE)
    return shares


def _die_rows(base: Design, sizes: Sequence[int]) -> dict[str, int]:
    """Rows of dies that pools of so many take; nothing where devices are chips by themselves."""
    if software_of(base.mapping) not in MULTI_DIE_SERVING:
        return {}
    return {ROWS: sum(-(-size // int(leaf_at(base, COLS))) for size in sizes)}


def _instance_text(design: Design, phase: str) -> str:
    """Of an instance, in words."""
    mapping, prefix = _pool_plan(design, phase)
    leaves = {name: int(leaf_at(design, prefix + name) or 1) for name in _split_fields(software_of(mapping))}
    texts = [f"{name.upper()} {many}" for name, many in leaves.items() if many > 1 or name == "tp"]
    if design.chip.chain is not None:
        texts.append(count_text(_chain_chips(design, {}), "chip"))
    if attention := _attention_dies(design, {}, phase):
        texts.append(f"{attention} separate attention dies")
    return f" of {' x '.join(texts)}" if texts else ""


def _device_count(design: Design) -> int:
    if software_of(design.mapping) == SERVED_PIPELINES:
        return 1
    if software_of(design.mapping) in MULTI_DIE_SERVING:
        return int(leaf_at(design, ROWS)) * int(leaf_at(design, COLS))
    prefill, instances = int(leaf_at(design, PREFILL)), int(leaf_at(design, INSTANCES))
    return prefill * _instance_devices(design, {}, PHASE[0]) + instances * _instance_devices(design, {}, PHASE[1])
