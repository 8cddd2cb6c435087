"""``dse capacity``: maximum rate within SLOs of every deployment of a model on a number of devices.

A deployment has instances that do both phases, or some that prefill and some that decode. Each has an estimate from the
steady state (`evaluators.serving.steady_state`). The serving simulation runs those whose estimate could win, the best first, at
the best rate so far: a deployment that misses an SLO there by far is dropped, for others their own maximum rate is searched.

A rate must last (`evaluators.serving.max_rate`): as many requests are simulated as it takes to see queues that grow, for
several seeds. If the first of these streams would have more than `MOST_PLAYED` requests, devices are divided into equal cells,
each with a router and its part of the requests, and one cell is simulated. With workload.requests set, no more requests are
simulated; a trace is simulated as it is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from dse.accuracy.stack_basis import StackBasis
from dse.analysis.deployment_search import (
    Alone,
    SimulatedDeployment,
    can_hold_rate,
    describe_unloaded_latency,
    drop_hopeless,
    explain_no_deployment,
    find_best_deployment,
    find_best_of_other_kinds,
    simulate_latency_curve,
    thread_pool,
)
from dse.analysis.deployments import (
    INSTANCES,
    MULTI_DIE_SERVING,
    POLICY,
    PREFILL,
    CandidateDeployment,
    InstanceKinds,
    bound_rate,
    find_candidates,
    find_fewest_devices,
    has_only_routing,
    list_routings,
)
from dse.analysis.published_formats import describe_published_formats
from dse.config.arrival_times import MAX_RATE_OPTION
from dse.config.compose import compose, find_study_folder
from dse.config.published_formats import WIDE, activation_format
from dse.config.question import Question, build_question
from dse.config.record_parser import parse_settings
from dse.config.renamed_addresses import rename_typed
from dse.config.renamed_words import rename_query_words
from dse.config.searchable_knobs import find_searchable_knobs
from dse.config.unread_stack_leaves import USUAL as OF_IDLE
from dse.config.workloads import MAX_REQUESTS
from dse.evaluators.serving.max_rate import MOST_PLAYED, USUAL, decisive, enough_requests
from dse.evaluators.serving.slo_bounds import BREAKING_FACTOR, SloBounds, make_slo_bounds
from dse.evaluators.workloads.serving import system_and_token_price
from dse.execution.precompile import start_precompile
from dse.huggingface.quantization import OPTIONAL
from dse.space.compatibility import case_type_of as kind_of
from dse.space.design import PREFILL_ADDRESS, Design, prefill_mapping
from dse.space.errors import DesignError
from dse.space.fields import (
    integer_field,
    iterate_leaves,
    match_addresses_or_none,
    option_field,
    quantity_field,
    record_class,
    replace_leaves,
    text_field,
)
from dse.space.knobs import Space
from dse.space.machines import POOL, POOLED, machine_of
from dse.space.mapping import FormatPlan
from dse.space.number_formats import FORMATS, FormatRates, formats_of_tensor
from dse.space.safe_text import count_text
from dse.space.software import SERVED_DEVICES, SERVED_PIPELINES, SERVED_POOLED_DIES, SOFTWARE, software_of
from dse.space.unread_leaves import explain_unread as beside
from dse.space.workload import ServingLoad
from dse.space.workload_settings import CLOSED
from dse.terminal.progress import ProgressBar

CHIP_ORDERS = ("devices", "price")
"""What chips are put in order by; as they are typed where nobody says it."""

FFN_PLACES = ("colocated", "disaggregated")
"""Where FFNs may be: on the dies of attention, or on dies of their own as well."""

EXAMPLE = "dse capacity chip=h200 model=qwen3_32b devices=16 workload.ttft='2 s' workload.tpot='50 ms'"

SPACE = "capacity"
SPACES = dict.fromkeys(MULTI_DIE_SERVING, "capacity_dies") | {SERVED_PIPELINES: "capacity_pipelines"}
"""What is looked through where nobody says it: by software, and by any other."""

MAX_DEVICES = 1 << 16


@record_class
class CapacityOptions:
    """Options of a capacity question, as they are typed; all else is an override."""

    devices: int = integer_field("number of devices; 0 if a rate is given", high=MAX_DEVICES, default=0)
    rate: float = quantity_field("Hz", "rate that the fewest devices serve; 0 if devices are given", positive=True, default=0.0)
    slo_percentile: float = quantity_field(
        "1", "per cent of the requests that must keep each SLO, as in 99", low=1.0, high=100.0, default=90.0
    )
    disaggregated: str = option_field("whether there are prefill instances", ("true", "false"), default="true")
    ffn: str = option_field("dies of FFNs: those of attention, or dies of their own as well", FFN_PLACES, default=FFN_PLACES[0])
    by: str = option_field("order of chips by the devices or the price of their best deployments", CHIP_ORDERS, default="")
    formats: str = text_field("formats of weights to look at, as in [fp8,fp16]", default="")


QUERY_OPTIONS = tuple(spec.name for spec in fields(CapacityOptions))
"""Names of the options of a capacity question."""

MAX_SEARCHED_DEVICES = 256
"""Devices up to which the fewest are looked for: so many serve the rates of `MOST_PLAYED` requests, where any do."""


@dataclass(frozen=True, eq=False)
class ChipCapacity:
    """Best deployment of one chip with its latency curve, and the deployments that were tried.

    Attributes:
        tried: in the order of the search.
        candidates: that fit, by falling estimate; `refused` do not, by what limit, or are left out, by what reason.
        curve: of the best deployment: times its largest rate, percentiles of TTFT and TPOT, which bound is broken.
        why: why there is none; "" where there is one.
        cells: alike, of which this is one.
        asked: devices that there are for all cells; 0 if the fewest are sought.
        typed: overrides of the question.
        published: whether the deployments have the formats that the model is published in, in words.
        variant: overrides of the best deployment's variant, of formats or of dies that share out experts.
        others: what the other variants serve, in words.
        extrapolated: which constants of the best one's software were fitted on other chips alone; "" where none were.
        stack_basis: which kernels of its software stack were measured; None of a chip without one.
        kernel_basis: kernels of the best one that no measured row of the stack covers; "" where there are none.
    """

    chip: str
    load: ServingLoad
    bounds: SloBounds
    devices: int
    tried: tuple[SimulatedDeployment, ...]
    candidates: tuple[CandidateDeployment, ...]
    refused: dict[str, int]
    curve: tuple[tuple[float, float, float, float, str], ...] = ()
    why: str = ""
    cells: int = 1
    asked: int = 0
    typed: tuple[str, ...] = ()
    published: str = ""
    variant: tuple[str, ...] = ()
    others: str = ""
    extrapolated: str = ""
    stack_basis: StackBasis | None = None
    kernel_basis: str = ""

    @property
    def prefill_chip(self) -> str:
        """Chip of a prefill pool that is of another kind; empty string where one kind does both."""
        name = f"{PREFILL_ADDRESS}chip="
        return next((word.removeprefix(name) for word in self.typed if word.startswith(name)), "")

    @property
    def words(self) -> tuple[str, ...]:
        """Overrides of the requests that confirm the rate; none of requests that are replayed."""
        best = self.best and self.best.capacity
        return (f"workload.requests={best.count}", f"seed={best.seed}") if best and self.load.draw is not None else ()

    @property
    def breaks(self) -> str:
        """Bounds that the best deployment misses at `BEYOND` times its rate, in the words of the curve."""
        return next((broken for times, *_, broken in self.curve if times == BREAKING_FACTOR), "")

    @cached_property
    def best(self) -> SimulatedDeployment | None:
        """The deployment with the highest rate; the first of equals."""
        rated = [deployment for deployment in self.tried if deployment.rate > 0]
        return max(rated, key=lambda deployment: deployment.rate) if rated else None

    @cached_property
    def front(self) -> list[tuple[float, float, SimulatedDeployment]]:
        """Pareto front of simulated runs: tokens per second of a user against tokens per second of a device."""
        points = [
            (user, device, deployment) for deployment in self.tried for _, device, user in deployment.points if user == user
        ]
        front: list[tuple[float, float, SimulatedDeployment]] = []
        for user, device, deployment in sorted(points, key=lambda point: (-point[0], -point[1])):
            if not front or device > front[-1][1]:
                front.append((user, device, deployment))
        return front[::-1]


@dataclass(frozen=True)
class CapacityQuery:
    """One question of ``dse capacity``: chips, overrides, devices or rate, and deployments to consider.

    Attributes:
        devices: that there are; 0 if the fewest that serve `rate` are sought.
        rate: to be served; 0 if the largest is sought. [1/s]
        apart: whether instances that only prefill are looked at.
        by: a word of `ORDERS`; "" for none.
        ffn: whether instances whose attention and FFNs are on dies of their own are looked at, too.
        most: requests that are simulated at most; 0 for no limit.
        formats: of weights, each of which is looked at; empty for those of the mapping or of the published model.
    """

    chips: tuple[str, ...]
    overrides: tuple[str, ...]
    devices: int
    rate: float
    share: float
    apart: bool
    by: str = ""
    ffn: bool = False
    most: int = 0
    formats: tuple[str, ...] = ()


OF_PREFILL = tuple(f"mapping.serving.{leaf}" for leaf in (*OF_IDLE, "kv_transfer"))
"""Leaves that only prefill instances read."""


def find_unread_overrides(deployment: CandidateDeployment, words: Sequence[str]) -> list[str]:
    """Overrides of the user that nothing reads in one deployment; its own overrides leave them out."""
    together = not deployment.apart
    overrides = []
    for word in words:
        address = word.lstrip("+").partition("=")[0]
        targets = (
            match_addresses_or_none([leaf for leaf, _, _ in iterate_leaves(deployment.design)], address)
            if address.startswith("mapping.")
            else []
        )
        if targets and (all(beside(deployment.design, leaf) for leaf in targets) or (together and address in OF_PREFILL)):
            overrides.append(word)
    return overrides


def find_capacity(words: Sequence[str], *, trust: bool = False) -> list[ChipCapacity]:
    """Capacity of each chip, by its best deployment.

    Args:
        words: those of `WORDS`, and overrides.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: a wrong question, in one line.
    """
    query = parse_query(words)
    start_precompile()
    sides = [replace(_search_variants(chip, query, trust), typed=query.overrides) for chip in query.chips]
    if all(side.why for side in sides):
        raise DesignError(f"capacity: {'; '.join(side.why for side in sides)}")
    return sorted(sides, key=lambda side: _sort_value(side, query)) if query.by else sides


def _sort_value(side: ChipCapacity, query: CapacityQuery) -> float:
    """What chips are put in order by: devices; or what all cost where the fewest are asked for, else what a token costs."""
    if side.best is None:
        return math.inf
    if query.by == "devices":
        return side.cells * side.best.candidate.devices
    return side.cells * side.best.price if query.rate else side.best.per_mtoken


def parse_query(words: Sequence[str]) -> CapacityQuery:
    """Capacity question from the words of the command line.

    >>> asked = parse_query(["chip=[h200,h100]", "devices=16", "model=qwen3_32b"])
    >>> asked.chips, asked.devices, asked.overrides
    (('h200', 'h100'), 16, ('model=qwen3_32b',))
    """
    words = rename_query_words(words)
    options = {key: value for key, _, value in (word.partition("=") for word in words) if key in QUERY_OPTIONS}
    chips = [word.partition("=")[2] for word in words if word.startswith("chip=")]
    names = [name.strip() for name in chips[-1].strip("[]").split(",")] if chips else []
    if not names or not all(names):
        raise DesignError(f"capacity: name a chip, as in {EXAMPLE}")
    if len(set(names)) < len(names):
        raise DesignError(f"capacity: a chip is listed twice in {', '.join(names)}")
    others = rename_typed([word for word in words if word.partition("=")[0] not in (*QUERY_OPTIONS, "chip")])
    for word in others:
        if word.startswith(("study=", "chips=", "mappings=")):
            raise DesignError(f"capacity: {word.partition('=')[0]} is for studies; set chip=[...] and the workload")
    if "rate" in options:
        options["rate"] = options["rate"].strip("'\"")
    if not options.keys() & {"devices", "rate"}:
        for word in others:
            if close := get_close_matches(word.partition("=")[0], ("devices", "rate"), n=1, cutoff=0.7):
                raise DesignError(f"capacity: no setting {word.partition('=')[0]!r}; did you mean {close[0]}=?")
        raise DesignError(
            f"capacity: set devices=16 for their maximum rate, or rate='10 Hz' for the fewest devices, as in {EXAMPLE}"
        )
    if {"devices", "rate"} <= options.keys():
        raise DesignError("capacity: expected devices or rate, got both; set one of them")
    typed = parse_settings(CapacityOptions, options, "")
    others, most = _split_request_count(others)
    return CapacityQuery(
        tuple(names),
        others,
        typed.devices,
        typed.rate,
        typed.slo_percentile / 100,
        typed.disaggregated == "true",
        typed.by,
        typed.ffn == FFN_PLACES[1],
        most,
        _parse_formats(options.get("formats")),
    )


def _parse_formats(text: str | None) -> tuple[str, ...]:
    """Formats of weights to look at, as in formats=[fp8,fp16]; none if nobody says any."""
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.strip("[]").split(","))
    valid = formats_of_tensor("weights")
    for name in names:
        if name not in valid:
            raise DesignError(f"formats: no format of weights {name!r}; valid: {', '.join(valid)}")
    return tuple(dict.fromkeys(names))


def _split_request_count(words: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """Overrides without the number of requests, and that number, where it is one and they are no trace's; else as they are."""
    counts = [word.partition("=")[2] for word in words if word.startswith("workload.requests=")]
    if not counts or not counts[-1].isdigit() or not 1 <= int(counts[-1]) <= MAX_REQUESTS or _uses_trace(words):
        return words, 0
    return tuple(word for word in words if not word.startswith("workload.requests=")), int(counts[-1])


def _uses_trace(words: Sequence[str]) -> bool:
    """Whether requests are a trace's."""
    return any(word.startswith("workload.trace=") and word != "workload.trace=null" for word in words)


def _search_variants(chip: str, query: CapacityQuery, trust: bool) -> ChipCapacity:
    """The best deployment of a chip: by each format that is asked for, and with experts over dies where models have any."""
    usual = build_chip_query(chip, query, trust=trust)
    sides: list[ChipCapacity] = []
    errors: list[tuple[tuple[str, ...], DesignError]] = []
    for variant in _list_variants(usual[0], query):
        own = replace(query, overrides=(*query.overrides, *variant))
        try:
            side = _search_side(chip, own, trust, build_chip_query(chip, own, trust=trust) if variant else usual)
        except DesignError as error:
            errors.append((variant, error))
        else:
            sides.append(replace(side, variant=variant))
    if not sides:
        raise errors[0][1]
    best = min(sides, key=lambda side: _served_order(side, query))  # the first of equals
    others = [_variant_text(side) for side in sides if side is not best]
    others += [f"{_variant_name(variant)}: {error}" for variant, error in errors]
    return replace(best, others="; ".join(others))


def _served_order(side: ChipCapacity, query: CapacityQuery) -> tuple[float, float]:
    """Order of variants: by the fewest devices where a rate is asked for, else by the highest rate of all cells."""
    if side.best is None:
        return math.inf, 0.0
    return (side.cells * side.devices if query.rate else 0.0), -side.cells * side.best.rate


def _variant_text(side: ChipCapacity) -> str:
    """What a variant serves that is not the best, in words."""
    name = _variant_name(side.variant)
    if side.best is None:
        return f"{name}: {side.why.removeprefix(f'{side.chip}: ')}"
    rate, devices = side.cells * side.best.rate, side.cells * side.devices
    unit = "users" if side.load.requests.users else "requests/s"
    return f"{name}: {rate:.4g} {unit} on {count_text(devices, 'device')} by {side.best.candidate.text}"


def _variant_name(variant: Sequence[str]) -> str:
    """Name of a variant: its overrides; the question as it is has none."""
    return " ".join(variant) or "devices that share no experts"


def _list_variants(kinds: InstanceKinds, query: CapacityQuery) -> list[tuple[str, ...]]:
    """Overrides of each variant that is looked at, those of the question as it is first."""
    base, variants = kinds.usual.base, [()] if not query.formats else list[tuple[str, ...]]()
    rates = base.chip.core.rates if machine_of(base.chip) in (POOL, POOLED) else None
    variants += [_format_words(name, rates) for name in query.formats]
    is_named = any(word.startswith("mapping=") for word in query.overrides)
    if kinds.node and kinds.load.model.experts and not is_named and software_of(base.mapping) == SERVED_DEVICES:
        node = f"+part@chip={kinds.node}"
        variants += [(node, *(variant or _same_formats(base.mapping.precision))) for variant in variants]
    return variants


def _same_formats(precision: FormatPlan) -> tuple[str, ...]:
    """Overrides with the formats of a mapping, so that variants by other mappings have no others."""
    words = {name: word for name, word, _ in iterate_leaves(precision) if name != "combine" and word is not None}
    return tuple(f"{'++' * (name in OPTIONAL)}mapping.precision.{name}={word}" for name, word in words.items())


def _format_words(name: str, rates: FormatRates | None) -> tuple[str, ...]:
    """Overrides of a format of weights, and of activations that engines multiply with them."""
    activations = activation_format(name, rates) or (name if FORMATS[name].bits >= FORMATS[WIDE].bits else WIDE)
    return f"mapping.precision.weights={name}", f"mapping.precision.activations={activations}"


def _search_side(chip: str, query: CapacityQuery, trust: bool, usual: tuple[InstanceKinds, SloBounds, Space]) -> ChipCapacity:
    kinds, bounds, knobs = usual
    if kinds.by_chip:
        return _in_cells(chip, query, trust, 1, usual)
    if _uses_trace(query.overrides):
        return (_find_fewest_devices if query.rate else _find_best_side)(chip, query, kinds, bounds, knobs)
    if query.most or (query.rate and enough_requests(kinds.load, bounds, query.rate) <= MOST_PLAYED):
        rate = query.rate or _estimated_rate(kinds, bounds, knobs, query.devices, query)
        more = _build_kinds(chip, query, trust, enough_requests(kinds.load, bounds, rate), kinds)
        return (_find_fewest_devices if query.rate else _find_best_side)(chip, query, *more)
    return _in_cells(chip, query, trust, query.devices or MAX_DEVICES, usual)


def _build_kinds(
    chip: str, query: CapacityQuery, trust: bool, count: int, before: InstanceKinds
) -> tuple[InstanceKinds, SloBounds, Space]:
    """The question with so many requests; what was known of fewer is known still."""
    kinds, bounds, knobs = build_chip_query(chip, query, trust=trust, count=count)
    kinds.recall(before)
    return kinds, bounds, knobs


def _in_cells(
    chip: str, query: CapacityQuery, trust: bool, most: int, usual: tuple[InstanceKinds, SloBounds, Space]
) -> ChipCapacity:
    """The best deployment of as many devices as so many requests tell about, and how many such cells there are.

    The first streams have as many requests as the estimate asks for. Where somebody says how many there are, these are one
    cell's. Instances that somebody says are all that there are: one cell.

    Args:
        chip, asked, trust: what is asked.
        most: devices of a cell.
        usual: what `posed` says of that.
    """
    kinds, bounds, knobs = usual
    has_counts = bool(kinds.counts)
    devices, rate = _cell_size(
        most, lambda devices: _estimated_rate(kinds, bounds, knobs, devices, query), kinds.load, bounds, alone=has_counts
    )
    needed = enough_requests(kinds.load, bounds, rate)
    if has_counts and not query.most and devices > 1 and needed > MOST_PLAYED:
        part = f"1/{math.ceil(needed / MOST_PLAYED)} of them, or workload.requests={needed} for all"
        selected_devices = f"{_instances_text(kinds)} serve some {rate:.4g} requests/s on {devices} devices"
        raise DesignError(f"capacity: {chip}: {selected_devices}, too many to simulate; set {part}")
    many = 1 if has_counts else MAX_DEVICES // devices
    beyond = f"the given {_instances_text(kinds)}" if has_counts else f"{MAX_DEVICES:,} devices"
    count = needed if needed <= MOST_PLAYED else USUAL  # so long bounds are told about by none that can be played
    if kinds.load.requests.users:  # prices are for the longest of the requests that decide
        count = decisive(kinds.load, bounds, rate, count)
    kinds, bounds, knobs = usual if _uses_trace(query.overrides) else _build_kinds(chip, query, trust, count, kinds)
    load, least = kinds.load, query.rate / many
    if query.rate > (whole := many * bound_rate(kinds, bounds, knobs, devices, apart=query.apart, least=least)):
        why = f"{chip}: {query.rate:g} requests/s need more than {beyond}, which serve {whole:.4g} requests/s at most"
        return ChipCapacity(chip, load, bounds, devices, (), (), {}, why=why)
    side = _find_best_side(chip, replace(query, devices=devices), kinds, bounds, knobs, least=least)
    if side.best is None:
        return side
    if query.rate > (whole := many * side.best.rate):
        why = f"{query.rate:g} requests/s need more than {beyond}, which serve {whole:.4g} requests/s"
        return replace(side, why=f"{chip}: {why}")
    if has_counts:
        return side
    return replace(side, cells=math.ceil(query.rate / side.best.rate) or query.devices // devices, asked=query.devices)


def _instances_text(kinds: InstanceKinds) -> str:
    """How many somebody says that there are, in words."""
    names = {INSTANCES: "instance", PREFILL: "prefill instance"}
    return " and ".join(count_text(many, names[address]) for address, many in kinds.counts.items())


def _estimated_rate(kinds: InstanceKinds, bounds: SloBounds, knobs: Space, devices: int, query: CapacityQuery) -> float:
    """The largest rate by the estimates, 0 where none fits; of instances that do both phases, where nobody says how many there
    are, or where these are dies, whose pools that share links are priced one by one. [1/s]
    """
    prefill = kinds.counts.get(PREFILL) or (kinds.counts and software_of(kinds.usual.base.mapping) not in MULTI_DIE_SERVING)
    candidates, _ = find_candidates(kinds, bounds, knobs, devices, apart=query.apart and bool(prefill))
    return max((candidate.estimate.rate for candidate in candidates), default=0.0)


def _cell_size(
    most: int, estimated: Callable[[int], float], load: ServingLoad, bounds: SloBounds, *, alone: bool = False
) -> tuple[int, float]:
    """Devices of a cell, and their rate by the estimate: all, or the most of 1, 2, 4 and so on that can be played.

    Of a cell that is alone, as many as help, where that is less.
    """
    # more devices serve no less: where all can be played, fewer need no look
    if most <= MAX_SEARCHED_DEVICES and (rate := estimated(most)) > 0 and enough_requests(load, bounds, rate) <= MOST_PLAYED:
        return most, rate
    devices, rate = 1, estimated(1)
    while devices < most:
        more = min(2 * devices, most)
        next_rate = estimated(more)
        if rate and (next_rate <= rate if alone else enough_requests(load, bounds, next_rate) > MOST_PLAYED):
            break
        devices, rate = more, next_rate
        if alone and enough_requests(load, bounds, rate) > MOST_PLAYED:
            break
    return devices, rate


def _refuse_unsized_pools(base: Design) -> None:
    """Refuse pools of unlike chips whose devices are not counted one by one."""
    for address, mapping in (("", base.mapping), (PREFILL_ADDRESS, prefill_mapping(base))):
        if software_of(mapping) != SERVED_DEVICES:
            raise DesignError(
                f"{address}mapping: dse capacity sizes pools of devices only, got {SOFTWARE[software_of(mapping)].name}; use "
                "dse run with knobs mapping.serving.instances and mapping.serving.prefill_instances"
            )


def build_chip_query(
    chip: str, query: CapacityQuery, *, trust: bool, count: int = USUAL
) -> tuple[InstanceKinds, SloBounds, Space]:
    """Instances of one chip, their load and SLOs, and the knobs to search.

    Args:
        chip, asked, trust: what is asked.
        count: requests, where they are no trace's; no more than are said.

    Raises:
        DesignError: the chip does not support the question.
    """
    words = [f"chip={chip}", *query.overrides]
    counts = _typed_counts(query)
    if counts.get(PREFILL) and not query.apart:
        raise DesignError(f"disaggregated: false excludes prefill instances, but {PREFILL} is set; remove one of them")
    fixed = {address: 1 for address in (PREFILL,) if query.apart and address not in counts and _said_of_prefill(query)}
    words += [f"{address}={count}" for address, count in fixed.items()]
    if not any(word.startswith("workload=") for word in words):
        words.insert(1, "workload=serving")
    drawn = not any(word.startswith(("workload.requests=", "workload.trace=")) for word in words)
    if drawn:
        words.append(f"workload.requests={min(count, query.most or count)}")
    words += _closed_loop_overrides(query)
    free = not any(word.lstrip("+").startswith(("space=", "space.")) for word in words)
    # of most chips the space is this one: to compose once is half of a short answer
    config = compose([*words, f"space={SPACE}"] if free else words, trust=trust)
    if config["fidelity"] != "analytical":
        raise DesignError(
            "fidelity: dse capacity simulates serving with analytical iteration times; for other fidelities use dse evaluate"
        )
    if kind_of(config["workload"]) is not ServingLoad:
        raise DesignError("capacity: the workload has no arriving requests; choose workload=serving")
    if several := has_only_routing(query.overrides, counts) and "instances" in (config["mapping"].get("serving") or {}):
        config["mapping"]["serving"]["instances"] = 2
    usual = build_question({**config, "space": {}}, find_study_folder(config))
    if free and (own := SPACES.get(software_of(usual.base.mapping), SPACE)) != SPACE:
        config = compose([*words, f"space={own}"], trust=trust)
    load = usual.workload.cases[0]
    assert isinstance(load, ServingLoad)
    load = replace(load, most=query.most) if drawn else load
    if len(usual.workload.cases) > 1:
        raise DesignError(f"capacity: {len(usual.workload.cases)} models; serve one, as in model=qwen3_32b")
    if len(load.requests) < 2:
        raise DesignError(f"workload.requests: a rate needs at least 2 requests, got {len(load.requests)}")
    if not math.isfinite(load.requests.rate) and not load.requests.users:
        raise DesignError(
            "workload.arrivals: requests that arrive at once have no rate; choose poisson, gamma, constant or a trace's"
        )
    bounds = make_slo_bounds(load, query.share)
    if query.ffn and software_of(usual.base.mapping) != SERVED_POOLED_DIES:
        raise DesignError(
            f"ffn: disaggregated needs a chip with several dies per node (h800_ep, h100_ep), got chip={chip}; remove it"
        )
    if usual.base.pools is not None:
        _refuse_unsized_pools(usual.base)
    knobs = _instance_space(config, usual, words)
    # what is said of prefill instances, or of several, has been looked at; there need be none, or one
    unsaid = {PREFILL: 0} if usual.base.pools is not None and PREFILL not in counts else {}
    changes = unsaid | dict.fromkeys(fixed, 0) | ({INSTANCES: 1} if several else {})
    usual = replace(usual, base=replace_leaves(usual.base, changes))
    routing = list_routings(usual.base, load, query.overrides)
    kinds = InstanceKinds(
        usual, load, config["choices"], ffn=query.ffn, counts=counts, routings=routing, models=config["model"],
        node=config["chip"].get("node"),
    )  # fmt: skip
    return kinds, bounds, knobs


def _closed_loop_overrides(query: CapacityQuery) -> list[str]:
    """Of a closed population, one user: how many there may be is looked for."""
    values = {address: value for address, _, value in (word.partition("=") for word in query.overrides)}
    if values.get("workload.arrivals") != CLOSED:
        return []
    if query.rate:
        raise DesignError(f"rate: arrivals={CLOSED} is a closed loop without a rate; set devices=N for the most users")
    if "workload.users" in values:
        raise DesignError("workload.users: dse capacity searches the most users; remove it, or use dse evaluate")
    return ["workload.users=1"]


def _typed_counts(query: CapacityQuery) -> dict[str, int]:
    """How many instances somebody says that there are, by address."""
    values = {address: value for address, _, value in (word.partition("=") for word in query.overrides)}
    for address in ("workload.rate", "workload.rate_scale"):
        if values.get(address, MAX_RATE_OPTION) != MAX_RATE_OPTION:
            raise DesignError(
                f"{address}: dse capacity searches the maximum rate; remove it, or set rate='10 Hz' for the fewest devices"
            )
    return {address: int(values[address]) for address in (INSTANCES, PREFILL) if values.get(address, "").isdigit()}


def _said_of_prefill(query: CapacityQuery) -> bool:
    """Whether somebody says something of prefill instances, how many there are apart."""
    return any(word.partition("=")[0] in OF_PREFILL for word in query.overrides)


def _instance_space(config: Mapping[str, Any], usual: Question, words: Sequence[str]) -> Space:
    """The knobs of an instance that its mapping has and the user has not set."""
    space = _space_of_engine(config["space"], usual.base)
    question = build_question({**config, "space": find_searchable_knobs(space, usual, words)}, find_study_folder(config))
    assert isinstance(question.space, Space)
    return question.space


def _space_of_engine(space: Mapping[str, Any], base: Design) -> dict[str, Any]:
    """A space whose scheduling policy is the inference engine's, which has no other; as it is without an engine."""
    knob = space.get(POLICY)
    if base.mapping.inference_engine is None or knob is None:
        return dict(space)
    policy = base.mapping.serving.policy
    others = {address: entry for address, entry in space.items() if address != POLICY}
    return {POLICY: {**knob, "values": [policy]}, **others} if policy in knob.get("values", ()) else others


def _find_best_side(
    chip: str, query: CapacityQuery, kinds: InstanceKinds, bounds: SloBounds, knobs: Space, least: float = 0.0
) -> ChipCapacity:
    """The best deployment on so many devices, with what it is compared with where it serves the least that is asked for."""
    devices, load = query.devices, kinds.load
    deployments, refused = find_candidates(kinds, bounds, knobs, devices, apart=query.apart)
    side = ChipCapacity(chip, load, bounds, devices, (), tuple(deployments), refused)
    if not deployments:
        return replace(side, why=_why_none(chip, refused, devices, kinds, knobs))
    with ProgressBar(f"capacity of {chip} on {devices}") as progress, thread_pool() as several:
        tried = find_best_deployment(deployments, load, bounds, progress, several)
        side = replace(side, tried=tuple(tried))
        if side.best is not None and side.best.rate >= least:
            best, drawn = simulate_latency_curve(side.best, load, bounds, several)
            others = find_best_of_other_kinds(deployments, tried, load, bounds, several)
            again = {id(deployment.candidate) for deployment in others}  # lost at the best rate, and searched for its own since
            every = [
                best if deployment is side.best else deployment for deployment in tried if id(deployment.candidate) not in again
            ]
            side = replace(side, tried=tuple(_with_price(deployment, load) for deployment in (*every, *others)), curve=drawn)
    if side.best is None:
        return replace(side, why=explain_no_deployment(chip, describe_unloaded_latency(deployments, load, bounds)))
    design = side.best.candidate.design
    return replace(
        side,
        published=describe_published_formats(design, kinds.models),
        extrapolated=kinds.extrapolation_text(design),
        stack_basis=kinds.stack_basis(design),
        kernel_basis=kinds.kernel_basis(design),
    )


def _find_fewest_devices(
    chip: str, query: CapacityQuery, kinds: InstanceKinds, bounds: SloBounds, knobs: Space
) -> ChipCapacity:
    """The fewest devices of which some deployment keeps the bounds at a rate."""
    load, known = kinds.load, Alone()

    def find_keeper(devices: int) -> CandidateDeployment | None:
        candidates, _ = find_candidates(kinds, bounds, knobs, devices, apart=query.apart)
        left = [candidate for candidate in candidates if candidate.most >= query.rate]
        while left:
            candidate, *left = left
            if can_hold_rate(candidate, load, bounds, query.rate):
                return candidate
            left = drop_hopeless(left, load, bounds, known)
        return None

    few, many = 0, 1
    with ProgressBar(f"capacity of {chip}") as progress:
        while find_keeper(many) is None:
            progress.update(0, 1, f"{many} devices are too few")
            few, many = many, many * 2
            if many > MAX_SEARCHED_DEVICES:
                deployments, refused = find_candidates(kinds, bounds, knobs, few, apart=query.apart)
                side = ChipCapacity(chip, load, bounds, few, (), tuple(deployments), refused)
                if not deployments:
                    why = _why_none(chip, refused, few, kinds, knobs)
                    return replace(side, why=f"{why}; {few} devices do not serve {query.rate:g} requests/s")
                alone, most = (
                    describe_unloaded_latency(deployments, load, bounds),
                    max(deployment.most for deployment in deployments),
                )
                if most < query.rate and not any(broken for broken, _ in alone):  # at lower rates bounds are kept
                    why = f"{query.rate:g} requests/s need more than {few} devices, which serve {most:.4g} requests/s at most"
                    return replace(side, why=f"{chip}: {why}")
                why = explain_no_deployment(chip, alone)
                return replace(side, why=f"{why}; {few} devices do not serve {query.rate:g} requests/s")
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if find_keeper(middle) is None else (few, middle)
            progress.update(0, 1, f"between {few} and {many} devices")
    return _find_best_side(chip, replace(query, devices=many), kinds, bounds, knobs)


def _with_price(deployment: SimulatedDeployment, load: ServingLoad) -> SimulatedDeployment:
    """A deployment with what it costs at its largest rate, where it has one."""
    if deployment.capacity is None or deployment.capacity.served is None:
        return deployment
    run = deployment.capacity.served
    price, per_mtoken = system_and_token_price(
        deployment.candidate.design, replace(load, requests=run.requests), run, "analytical"
    )
    return replace(deployment, price=price, per_mtoken=per_mtoken)


def _why_none(chip: str, refused: Mapping[str, int], devices: int, kinds: InstanceKinds, knobs: Space) -> str:
    if not refused:
        least = "" if kinds.by_chip else f"; the smallest needs {find_fewest_devices(kinds, knobs)}"
        return f"{chip}: no deployment of the space has {devices} devices or fewer{least}"
    most = max(refused, key=lambda name: refused[name])
    devices_text = count_text(devices, "device")
    if (nearest := kinds.nearest) is None:
        return f"{chip}: none of {sum(refused.values())} deployments on {devices_text} starts: {'; '.join(kinds.obstacles)}"
    none = f"{chip}: none of {sum(refused.values())} deployments on {devices_text} fits; {most} refuses {refused[most]}"
    return f"{none}; the nearest {nearest}"
