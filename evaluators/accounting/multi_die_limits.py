"""Limits of dividing a model over many dies, and levers: layout, links and even spread of requests."""

from collections.abc import Sequence
from dataclasses import replace

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.remedies import Lever, advise
from dse.evaluators.cost_models.die_exchange_jobs import has_two_levels, members_per_node
from dse.evaluators.graph.expert_loads import placed_experts
from dse.evaluators.layouts.legal_splits import max_stages, split_advice_text, split_bounds
from dse.evaluators.layouts.multi_die import DieSplit, die_split
from dse.evaluators.machine.die_network import group_rectangle, max_ports, place_groups
from dse.space.array_math import Array, ceil_div
from dse.space.chip import Chip, node_grid
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import CAPACITY_LIMITS
from dse.space.mapping import Mapping, MultiDiePlan
from dse.space.model import Model
from dse.space.parameter_counts import shared_expert_width
from dse.space.safe_text import count_text
from dse.space.workload import BatchCase


def layout_limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Limits of an impossible layout: more ranks than dies, more stages than units, or uneven groups."""
    (case,) = job.cases
    limits = [limit for name in ("prefill", "decode") for limit in phase_layout_limits(design, case, name)]
    return limits if any(limit.need > limit.have for limit in limits) else []


def phase_layout_limits(
    design: Design, case: BatchCase, phase: str, die_split: DieSplit | None = None, rows: int = 0
) -> list[Limit]:
    """Limits of one phase's layout of a case.

    Args:
        design, case, phase: as they are.
        die_split: how it is divided; None where the batch says how many micro-batches.
        rows: of dies that it has; 0 for all.
    """
    chip, model, where = _chip_of(design), case.model, f"mapping.{phase}"
    given_die_split = die_split or phase_split(design, case, phase)
    routed = 1 if model.experts is None else placed_experts(model.experts, given_die_split.redundant, given_die_split.shared)
    routed = given_die_split.ep if given_die_split.attention and model.experts is None else routed
    whole = (
        given_die_split.ep
        if given_die_split.attention
        else given_die_split.tp
        if given_die_split.ep == 1
        else _next_multiple(given_die_split.ep, given_die_split.tp)
    )
    rows_, cols_ = rows or int(chip.dies.rows), int(chip.dies.cols)
    blocks = (
        _phase_plan(design, phase).placement in RECTANGULAR_PLACEMENTS
        and given_die_split.ranks <= rows_ * cols_
        and routed % given_die_split.ep == 0
    )
    size = 1 if chip.nodes is None else int(chip.nodes.size)
    boxed = (
        []
        if chip.nodes is None
        else [Limit("chip.nodes.size", _next_multiple(chip_die_count(chip), size), chip_die_count(chip) * 1.0, "1")]
    )
    uncut = blocks and not group_rectangle(rows_, cols_, given_die_split.dp * given_die_split.pp, given_die_split.group)[0]
    idle = given_die_split.redundant > 0 and (model.experts is None or given_die_split.ep == 1)
    copied = [Limit(f"{where}.experts.redundant", 2.0, 1.0, "layout")] if idle else []
    return [
        Limit(f"{where}.tp", given_die_split.tp * 1.0, model.heads * 1.0, "1"),
        Limit(f"{where}.pp", given_die_split.pp * 1.0, max_stages(case) * 1.0, "1"),
        Limit(f"{where}.ep", _next_multiple(routed, given_die_split.ep), routed * 1.0, "1"),
        Limit(f"{where}.ep", whole, max(given_die_split.ep, given_die_split.tp if given_die_split.ep == 1 else 1) * 1.0, "1"),
        Limit("chip.dies", given_die_split.ranks * 1.0, chip_die_count(chip) * 1.0, "1"),
        Limit(f"{where}.placement", 2.0 if uncut else 1.0, 1.0, "layout"),
        Limit(
            f"{where}.all_to_all",
            1.0 if uncut or can_route_by_node(chip, _phase_plan(design, phase), given_die_split) else 2.0,
            1.0,
            "layout",
        ),
        *boxed,
        *copied,
        *_apart_limits(_phase_plan(design, phase), given_die_split, where),
        Limit(f"{where}.experts.shared_copies", 1.0 if _can_place_shared(model, given_die_split) else 2.0, 1.0, "layout"),
        *_level_limits(chip, _phase_plan(design, phase), given_die_split, f"{where}.allreduce", uncut=uncut),
    ]


def _apart_limits(plan: MultiDiePlan, die_split: DieSplit, where: str) -> list[Limit]:
    """That dies of attention are whole copies of it, and that tokens go between them and FFNs in the one way that there is."""
    if not die_split.attention:
        return []
    others = {
        "all_to_all": plan.all_to_all != "direct",
        "overlap": plan.overlap != "none",
        "allreduce": plan.allreduce == "two_level",
        "experts.shared_copies": die_split.shared > 0,
    }
    return [
        Limit(f"{where}.attention_dies", _next_multiple(die_split.attention, die_split.tp), die_split.attention * 1.0, "1"),
        *(Limit(f"{where}.{name}", 2.0, 1.0, "layout") for name, setting in others.items() if setting),
    ]


def _can_place_shared(model: Model, die_split: DieSplit) -> bool:
    """Whether shared experts can be placed as experts, if requested: they have equal width, on several dies."""
    experts = model.experts
    if not die_split.shared:
        return True
    return (
        experts is not None and experts.shared > 0 and die_split.ep > 1 and shared_expert_width(experts) == experts.intermediate
    )


RECTANGULAR_PLACEMENTS = ("blocks", "entwine")
"""Placements in which groups are rectangles."""


def _level_limits(chip: Chip, plan: MultiDiePlan, die_split: DieSplit, where: str, *, uncut: bool) -> list[Limit]:
    """Limit that two-level sums have several nodes of equally many dies, if requested: else they are one ring."""
    if plan.allreduce != "two_level" or die_split.tp == 1 or die_split.attention:
        return []
    divided = (
        uncut
        or die_split.ranks > chip_die_count(chip)
        or die_split.group % die_split.tp
        or has_two_levels(chip, _stage_dies(chip, plan, die_split), die_split.tp)
    )
    return [Limit(where, 1.0 if divided else 2.0, 1.0, "layout")]


def _stage_dies(chip: Chip, plan: MultiDiePlan, die_split: DieSplit) -> Array:
    """Dies of each stage of each copy of the model."""
    return place_groups(
        plan.placement, int(chip.dies.rows), int(chip.dies.cols), die_split.dp * die_split.pp, die_split.group, die_split.tp
    )


def can_route_by_node(chip: Chip, plan: MultiDiePlan, die_split: DieSplit) -> bool:
    """Whether tokens can take the plan's exchange: by node, or from the nearest die.

    By node needs expert groups that span several nodes with equally many consecutive dies in each. Near needs
    several dies per attention replica.
    """
    if die_split.attention or plan.all_to_all == "direct":
        return True
    if plan.all_to_all == "nearest_replica":
        return die_split.tp > 1 and die_split.ep > 1
    if plan.all_to_all == "gather":
        return die_split.ep > 1
    if chip.nodes is None or die_split.ep == 1:
        return False
    if die_split.ranks > chip_die_count(chip) or die_split.group % die_split.tp:
        return True  # refused by itself
    return 0 < members_per_node(_stage_dies(chip, plan, die_split), int(chip.nodes.size)) < die_split.group


def _request_places(design: Design, case: BatchCase, phase: str) -> int:
    """Places that requests are spread over evenly; prompts that go one by one are as many micro-batches as there are."""
    die_split = phase_split(design, case, phase)
    one_by_one = phase == "prefill" and not _mapping_of(design).prefill.microbatches
    return die_split.dp * die_split.copies * die_split.halves if one_by_one else die_split.slots


def _next_multiple(number: int, tp: int) -> float:
    """The next multiple."""
    return float(ceil_div(number, tp) * tp)


def early_limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Limits known before any cost is computed: layout, and even spread of requests."""
    (case,), limits = job.cases, []
    for name in ("prefill", "decode"):
        limits += phase_layout_limits(design, case, name)
        slots = _request_places(design, case, name)
        limits.append(Limit("workload.batch", _next_multiple(case.batch, slots), case.batch * 1.0, "1"))
    return limits


def limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Limits of a multi-die design: layout, ports of dies, and even spread of requests."""
    (case,) = job.cases
    both = [phase_split(design, case, name) for name in ("prefill", "decode")]
    return [*early_limits(design, job), equal_split_limit(*both), port_limit(_chip_of(design))]


def equal_split_limit(before: DieSplit, after: DieSplit) -> Limit:
    """Limit that both phases on the same dies are divided equally."""
    alike = before._replace(batches=0, halves=0) == after._replace(batches=0, halves=0)
    return Limit("mapping.decode.tp", 1.0 if alike else 2.0, 1.0, "1")


def port_limit(chip: Chip) -> Limit:
    """Limit on the links that the topology needs per die."""
    boxes = chip.nodes
    rows, cols = int(chip.dies.rows), int(chip.dies.cols)
    rows, cols = (rows, cols) if boxes is None else node_grid(cols, int(boxes.size))
    return Limit("chip.d2d.ports", max_ports(rows, cols, chip.d2d.topology) * 1.0, chip.d2d.ports, "1")


def die_levers(worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
    """What to change where the division of a model over dies violates a limit."""
    return advise(_advice_text(worst, design, arrays))


def _advice_text(worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> str:
    """Advice by limit and chosen options; empty string for limits of a die."""
    chip, address, case = _chip_of(design), worst.limit, arrays[0].cases[0]
    phase, _, field = address.removeprefix("mapping.").partition(".")
    apart = phase in ("prefill", "decode") and phase_split(design, case, phase).attention
    if apart and field in WITH_APART:
        return f"attention and FFNs are on different dies: {WITH_APART[field]}"
    if address == "workload.batch":
        slots = max(_request_places(design, case, name) for name in ("prefill", "decode"))
        near = [count for count in (case.batch // slots * slots, ceil_div(case.batch, slots) * slots) if count]
        counts_text = " or ".join(f"{count:,}" for count in dict.fromkeys(near))
        return f"attention replicas x micro-batches are {slots}: use {counts_text} requests, which divide evenly over them"
    if address == "chip.dies":
        ranks = {name: phase_split(design, case, name) for name in ("prefill", "decode")}
        phase, die_split = max(ranks.items(), key=lambda pair: pair[1].ranks)
        copies = f", {die_split.dp} replicas" if die_split.dp > 1 else ""
        stages = f"{count_text(die_split.pp, 'stage')} of {count_text(die_split.group, 'die')}"
        return f"{stages}{copies}: {_nearest_splits(design, case, phase)}"
    if address == "chip.d2d.ports":
        sides = f"{chip.dies.rows:.0f} x {chip.dies.cols:.0f}" if chip.nodes is None else f"{chip.nodes.size:.0f}"
        return f"{chip.d2d.topology} of {sides} dies needs {worst.need:.0f} links per die"
    if address == "chip.nodes.size":
        return f"{chip_die_count(chip)} dies do not fill whole nodes (chip.nodes.size): change the sides of chip.dies"
    if field == "all_to_all" and _phase_plan(design, phase).all_to_all == "nearest_replica":
        return "exchange=near needs several dies for attention and experts: set mapping.both.tp and ep above 1, or use direct"
    if field == "all_to_all":
        return _not_by_boxes(chip, _phase_plan(design, phase), phase_split(design, case, phase))
    if field == "allreduce":
        whose = "row of dies" if chip.nodes is None else "node"
        return (
            f"two_level needs attention replicas with equally many dies, at least two, in each of several {whose}s: "
            + "change tp or placement, or use allreduce=ring or ktree"
        )
    if field == "ep":
        return _uneven_text(case.model, phase_split(design, case, phase), _nearest_splits(design, case, phase))
    if field == "experts.redundant":
        why = "no dies share experts (ep=1)" if case.model.experts else f"{case.model.name} has no experts"
        return f"{why}, which redundant copies need: set mapping.both.experts.redundant=0"
    if field == "experts.shared_copies":
        why = _unplaced_text(case.model, phase_split(design, case, phase))
        return f"{why}: set mapping.both.experts.shared_copies=0 for one on every die"
    if field == "placement":
        others = filter(None, (_nearest_splits(design, case, phase), "mapping.both.placement=linear, snake or interleave"))
        return f"no rectangle of so many dies fits: {', or '.join(others)}"
    if field == "pp":
        units = f"the embedding, {case.model.layers} layers, {case.guesses} MTP modules and the head"
        return f"{worst.have:.0f} units, {units}: {_nearest_splits(design, case, phase)}"
    if field == "tp" and worst.have > 1:
        return f"{case.model.heads} heads: {_nearest_splits(design, case, phase)}"
    if field == "tp":
        return "prefill and decode share dies: set tp, pp, ep, dp and experts equally for both phases, by mapping.both"
    if address in CAPACITY_LIMITS:
        return "raise mapping.both.ep, pp or tp to share weights, or use fewer or shorter requests"
    return ""


def _not_by_boxes(chip: Chip, plan: MultiDiePlan, die_split: DieSplit) -> str:
    """Why tokens cannot go by boxes, or to all dies, and what would do."""
    if plan.all_to_all == "gather":
        return "no dies share experts: set mapping.both.ep above 1, or all_to_all=direct"
    if chip.nodes is None:
        return "hierarchical needs nodes (chip.nodes), and the chip has none: mapping.both.all_to_all=direct, or set chip.nodes"
    if die_split.ep == 1:
        return "no dies share experts: set mapping.both.ep above 1, or all_to_all=direct"
    if members_per_node(_stage_dies(chip, plan, die_split), int(chip.nodes.size)) == die_split.group:
        return (
            f"hierarchical needs several nodes, and each group of {die_split.group} dies is in one: "
            "use all_to_all=direct, or a larger ep"
        )
    return (
        "groups need equally many dies in each node: use mapping.both.placement=linear, another ep or tp, or all_to_all=direct"
    )


def _uneven_text(model: Model, die_split: DieSplit, near: str) -> str:
    """Why experts cannot be shared, and the remedy: other divisions, or copies of experts that make the number even."""
    whole = f"in groups of whole attention replicas on {die_split.tp} {'die' if die_split.tp == 1 else 'dies'}"
    if model.experts is None:
        return f"{model.name} has no experts: {near}"
    every = placed_experts(model.experts, die_split.redundant, die_split.shared)
    more = die_split.redundant + -every % die_split.ep
    copies = f"mapping.both.experts.redundant={more}" if every % die_split.ep and die_split.ep % die_split.tp == 0 else ""
    advice = ", or ".join(filter(None, (near, copies)))
    return f"{model.name} has {every} experts, {whole}: {advice}"


def _unplaced_text(model: Model, die_split: DieSplit) -> str:
    """Why shared experts cannot be placed as experts."""
    if model.experts is None or not model.experts.shared:
        return f"{model.name} has no shared experts"
    return "no dies share experts" if die_split.ep == 1 else "shared experts differ in width from routed ones"


WITH_APART = {
    "attention_dies": "set mapping.both.attention_dies to a multiple of tp",
    "all_to_all": "use mapping.both.all_to_all=direct",
    "overlap": "use mapping.both.overlap=none, as micro-batches alternate between them",
    "allreduce": "use mapping.both.allreduce=ring or ktree",
    "experts.shared_copies": "use mapping.both.experts.shared_copies=0, as each FFN die has all shared experts",
}
"""What would do beside dies of attention alone, by fields of a plan."""


def _nearest_splits(design: Design, case: BatchCase, phase: str) -> str:
    """In overrides, the nearest splits that can be laid out."""
    if (die_split := phase_split(design, case, phase)).attention:
        return f"a stage has attention_dies={die_split.attention} and ep={die_split.ep} dies: lower them, or use fewer stages"
    plan = _phase_plan(design, phase)
    return split_advice_text(phase_split(design, case, phase), int(plan.dp), split_bounds(plan, _chip_of(design).dies, case))


def phase_split(design: Design, case: BatchCase, phase: str) -> DieSplit:
    """Division of a phase of a case over dies."""
    return die_split(_phase_plan(design, phase), _chip_of(design).dies, case.batch, prompts=phase == "prefill")


def _phase_plan(design: Design, phase: str) -> MultiDiePlan:
    plan: MultiDiePlan = getattr(_mapping_of(design), phase)
    return plan


def single_die_chip(chip: Chip) -> Chip:
    """Chip record of one die, without the other dies and links."""
    return replace(chip, dies=None, d2d=None, nodes=None)


def chip_die_count(chip: Chip) -> int:
    """Number of dies of the chip."""
    return int(chip.dies.rows) * int(chip.dies.cols)


def _chip_of(design: Design) -> Chip:
    return design.chip


def _mapping_of(design: Design) -> Mapping:
    return design.mapping
