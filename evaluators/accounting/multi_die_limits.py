"""What many dies hold a split to: that it can be laid out, has its links, and spreads its requests; and what would do."""

from dataclasses import replace

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.cost_models.die_exchange_jobs import has_two_levels, members_per_node
from dse.evaluators.layouts.legal_splits import max_stages, split_advice_text, split_bounds
from dse.evaluators.layouts.multi_die import DieSplit, die_split, placed_experts
from dse.evaluators.machine.die_network import group_rectangle, max_ports, place_groups
from dse.space.array_math import Array, ceil_div
from dse.space.chip import Chip, node_grid
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.mapping import Mapping, MultiDiePlan
from dse.space.model import Model
from dse.space.parameter_counts import shared_expert_width
from dse.space.workload import BatchCase


def layout_limits(design: Design, job: BatchArrays) -> list[Limit]:
    """What cannot be laid out at all: more ranks than dies, stages than units, or groups that do not fit one another."""
    (case,) = job.cases
    found = [limit for name in ("prefill", "decode") for limit in phase_layout_limits(design, case, name)]
    return found if any(limit.need > limit.have for limit in found) else []


def phase_layout_limits(
    design: Design, case: BatchCase, phase: str, said: DieSplit | None = None, rows: int = 0
) -> list[Limit]:
    """That a phase of a case can be laid out.

    Args:
        design, case, phase: as they are.
        said: how it is divided; None where the batch says how many micro-batches.
        rows: of dies that it has; 0 for all.
    """
    chip, model, where = _chip(design), case.model, f"mapping.{phase}"
    of = said or phase_split(design, case, phase)
    routed = 1 if model.experts is None else placed_experts(model.experts, of.redundant, of.shared)
    routed = of.ep if of.attention and model.experts is None else routed
    whole = of.ep if of.attention else of.tp if of.ep == 1 else _multiple(of.ep, of.tp)
    rows_, cols_ = rows or int(chip.dies.rows), int(chip.dies.cols)
    blocks = _plan(design, phase).placement in RECTANGULAR_PLACEMENTS and of.ranks <= rows_ * cols_ and routed % of.ep == 0
    size = 1 if chip.boxes is None else int(chip.boxes.size)
    boxed = (
        []
        if chip.boxes is None
        else [Limit("chip.boxes.size", _multiple(chip_die_count(chip), size), chip_die_count(chip) * 1.0, "1")]
    )
    uncut = blocks and not group_rectangle(rows_, cols_, of.dp * of.pp, of.group)[0]
    idle = of.redundant > 0 and (model.experts is None or of.ep == 1)
    copied = [Limit(f"{where}.experts.redundant", 2.0, 1.0, "layout")] if idle else []
    return [
        Limit(f"{where}.tp", of.tp * 1.0, model.heads * 1.0, "1"),
        Limit(f"{where}.pp", of.pp * 1.0, max_stages(case) * 1.0, "1"),
        Limit(f"{where}.ep", _multiple(routed, of.ep), routed * 1.0, "1"),
        Limit(f"{where}.ep", whole, max(of.ep, of.tp if of.ep == 1 else 1) * 1.0, "1"),
        Limit("chip.dies", of.ranks * 1.0, chip_die_count(chip) * 1.0, "1"),
        Limit(f"{where}.placement", 2.0 if uncut else 1.0, 1.0, "layout"),
        Limit(f"{where}.all_to_all", 1.0 if uncut or can_route_by_node(chip, _plan(design, phase), of) else 2.0, 1.0, "layout"),
        *boxed,
        *copied,
        *_apart_limits(_plan(design, phase), of, where),
        Limit(f"{where}.experts.shared_copies", 1.0 if _placeable(model, of) else 2.0, 1.0, "layout"),
        *_levels(chip, _plan(design, phase), of, f"{where}.allreduce", uncut=uncut),
    ]


def _apart_limits(plan: MultiDiePlan, of: DieSplit, where: str) -> list[Limit]:
    """That dies of attention are whole copies of it, and that tokens go between them and FFNs in the one way that there is."""
    if not of.attention:
        return []
    others = {
        "all_to_all": plan.all_to_all != "direct",
        "overlap": plan.overlap != "none",
        "allreduce": plan.allreduce == "two_level",
        "experts.shared_copies": of.shared > 0,
    }
    return [
        Limit(f"{where}.attention_dies", _multiple(of.attention, of.tp), of.attention * 1.0, "1"),
        *(Limit(f"{where}.{name}", 2.0, 1.0, "layout") for name, said in others.items() if said),
    ]


def _placeable(model: Model, of: DieSplit) -> bool:
    """Whether shared experts can be placed as experts, where somebody asks for that: they are as wide, on several dies."""
    experts = model.experts
    if not of.shared:
        return True
    return experts is not None and experts.shared > 0 and of.ep > 1 and shared_expert_width(experts) == experts.intermediate


RECTANGULAR_PLACEMENTS = ("blocks", "entwine")
"""Placements in which groups are rectangles."""


def _levels(chip: Chip, plan: MultiDiePlan, of: DieSplit, where: str, *, uncut: bool) -> list[Limit]:
    """That sums of two levels have several nodes of as many dies each, where somebody asks for them: else they are one ring."""
    if plan.allreduce != "two_level" or of.tp == 1 or of.attention:
        return []
    divided = uncut or of.ranks > chip_die_count(chip) or of.group % of.tp or has_two_levels(chip, _at(chip, plan, of), of.tp)
    return [Limit(where, 1.0 if divided else 2.0, 1.0, "layout")]


def _at(chip: Chip, plan: MultiDiePlan, of: DieSplit) -> Array:
    """Dies of each stage of each copy of the model."""
    return place_groups(plan.placement, int(chip.dies.rows), int(chip.dies.cols), of.dp * of.pp, of.group, of.tp)


def can_route_by_node(chip: Chip, plan: MultiDiePlan, of: DieSplit) -> bool:
    """Whether tokens can go as a plan says: by boxes only where groups that share out experts are in several of them, with as
    many dies in each, one after the other; from the nearest die of a copy of attention only where it has several.
    """
    if of.attention or plan.all_to_all == "direct":
        return True
    if plan.all_to_all == "nearest_replica":
        return of.tp > 1 and of.ep > 1
    if chip.boxes is None or of.ep == 1:
        return False
    if of.ranks > chip_die_count(chip) or of.group % of.tp:
        return True  # refused by itself
    return 0 < members_per_node(_at(chip, plan, of), int(chip.boxes.size)) < of.group


def _places(design: Design, case: BatchCase, phase: str) -> int:
    """Places that requests are spread over evenly; prompts that go one by one are as many micro-batches as there are."""
    of = phase_split(design, case, phase)
    one_by_one = phase == "prefill" and not _mapping(design).prefill.microbatches
    return of.dp * of.copies * of.halves if one_by_one else of.slots


def _multiple(number: int, of: int) -> float:
    """The next multiple."""
    return float(ceil_div(number, of) * of)


def early_limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Limits that are known before anything is priced: layouts, and requests that are spread evenly."""
    (case,), found = job.cases, []
    for name in ("prefill", "decode"):
        found += phase_layout_limits(design, case, name)
        slots = _places(design, case, name)
        found.append(Limit("workload.batch", _multiple(case.batch, slots), case.batch * 1.0, "1"))
    return found


def limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Layouts, ports of dies, and requests that are spread evenly."""
    (case,) = job.cases
    both = [phase_split(design, case, name) for name in ("prefill", "decode")]
    return [*early_limits(design, job), equal_split_limit(*both), port_limit(_chip(design))]


def equal_split_limit(before: DieSplit, after: DieSplit) -> Limit:
    """Where the same dies do both phases."""
    alike = before._replace(batches=0, halves=0) == after._replace(batches=0, halves=0)
    return Limit("mapping.decode.tp", 1.0 if alike else 2.0, 1.0, "1")


def port_limit(chip: Chip) -> Limit:
    """Links of a die, which its topology takes."""
    boxes = chip.boxes
    rows, cols = int(chip.dies.rows), int(chip.dies.cols)
    rows, cols = (rows, cols) if boxes is None else node_grid(cols, int(boxes.size))
    return Limit("chip.d2d.ports", max_ports(rows, cols, chip.d2d.topology) * 1.0, chip.d2d.ports, "1")


def remedy_text(worst: Infeasibility, design: Design, asked: tuple[BatchArrays, ...]) -> str:
    """In words, what would do."""
    chip, address, case = _chip(design), worst.limit, asked[0].cases[0]
    phase, _, field = address.removeprefix("mapping.").partition(".")
    apart = phase in ("prefill", "decode") and phase_split(design, case, phase).attention
    if apart and field in WITH_APART:
        return f"dies of attention and of FFNs are apart: {WITH_APART[field]}"
    if address == "workload.batch":
        slots = max(_places(design, case, name) for name in ("prefill", "decode"))
        near = [count for count in (case.batch // slots * slots, ceil_div(case.batch, slots) * slots) if count]
        said = " or ".join(f"{count:,}" for count in dict.fromkeys(near))
        return f"copies of attention x micro-batches are {slots}: {said} requests are spread evenly over them"
    if address == "chip.dies":
        ranks = {name: phase_split(design, case, name) for name in ("prefill", "decode")}
        phase, of = max(ranks.items(), key=lambda pair: pair[1].ranks)
        copies = f", {of.dp} copies of them" if of.dp > 1 else ""
        return f"{of.pp} stages of {of.group} dies{copies}: {_nearest(design, case, phase)}"
    if address == "chip.d2d.ports":
        sides = f"{chip.dies.rows:.0f} x {chip.dies.cols:.0f}" if chip.boxes is None else f"{chip.boxes.size:.0f}"
        return f"a {chip.d2d.topology} of {sides} dies takes {worst.need:.0f} links a die"
    if address == "chip.boxes.size":
        return f"{chip_die_count(chip)} dies are no whole number of boxes: other sides of chip.dies"
    if field == "all_to_all" and _plan(design, phase).all_to_all == "nearest_replica":
        return "tokens are near by where several dies share attention, and experts: mapping.both.tp and ep above 1, or direct"
    if field == "all_to_all":
        return _not_by_boxes(chip, _plan(design, phase), phase_split(design, case, phase))
    if field == "allreduce":
        whose = "row of dies" if chip.boxes is None else "box"
        return (
            f"two levels need copies of attention with two dies or more, as many, in each {whose}, and several of these: "
            + ("another tp or placement, or allreduce=ring or ktree")
        )
    if field == "ep":
        return _uneven(case.model, phase_split(design, case, phase), _nearest(design, case, phase))
    if field == "experts.redundant":
        why = "no dies share out experts" if case.model.experts else f"{case.model.name} has no experts"
        return f"{why}, and copies of them are for that: mapping.both.experts.redundant=0"
    if field == "experts.shared_copies":
        why = _unplaced(case.model, phase_split(design, case, phase))
        return f"{why}: mapping.both.experts.shared_copies=0 has one on every die"
    if field == "placement":
        others = filter(None, (_nearest(design, case, phase), "mapping.both.placement=linear, snake or interleave"))
        return f"no rectangles of so many dies fit: {', or '.join(others)}"
    if field == "pp":
        units = f"the embedding, {case.model.layers} layers, {case.guesses} MTP modules and the head"
        return f"{worst.have:.0f} units, {units}: {_nearest(design, case, phase)}"
    if field == "tp" and worst.have > 1:
        return f"{case.model.heads} heads: {_nearest(design, case, phase)}"
    if field == "tp":
        return "prefill and decode are on the same dies: mapping.both.tp, pp, ep, dp and experts count for both phases"
    if address == "chip.hbm.capacity":
        return "more dies share weights with larger mapping.both.ep, pp or tp; fewer or shorter requests have smaller caches"
    return ""


def _not_by_boxes(chip: Chip, plan: MultiDiePlan, of: DieSplit) -> str:
    """Why tokens cannot go by boxes, and what would do."""
    if chip.boxes is None:
        return "hierarchical goes by boxes, and the chip has none: mapping.both.all_to_all=direct, or give it chip.boxes"
    if of.ep == 1:
        return "no dies share out experts: mapping.both.ep above 1, or all_to_all=direct"
    if members_per_node(_at(chip, plan, of), int(chip.boxes.size)) == of.group:
        return (
            f"hierarchical goes between boxes, and each group of {of.group} dies is in one: all_to_all=direct, or a larger ep"
        )
    return "groups have not as many dies in each box: mapping.both.placement=linear, other ep or tp, or all_to_all=direct"


def _uneven(model: Model, of: DieSplit, near: str) -> str:
    """Why experts cannot be shared out, and what would do: other splits, or copies of experts that make the number even."""
    whole = f"in groups of whole copies of attention on {of.tp} {'die' if of.tp == 1 else 'dies'}"
    if model.experts is None:
        return f"{model.name} has no experts: {near}"
    every = placed_experts(model.experts, of.redundant, of.shared)
    more = of.redundant + -every % of.ep
    copies = f"mapping.both.experts.redundant={more}" if every % of.ep and of.ep % of.tp == 0 else ""
    said = ", or ".join(filter(None, (near, copies)))
    return f"{model.name} has {every} experts, {whole}: {said}"


def _unplaced(model: Model, of: DieSplit) -> str:
    """Why shared experts cannot be placed as experts."""
    if model.experts is None or not model.experts.shared:
        return f"{model.name} has no shared experts"
    return "no dies share out experts" if of.ep == 1 else "shared experts are not as wide as routed ones"


WITH_APART = {
    "attention_dies": "mapping.both.attention_dies in whole copies of tp",
    "all_to_all": "tokens go to them directly, mapping.both.all_to_all=direct",
    "overlap": "micro-batches go to and fro between them, mapping.both.overlap=none",
    "allreduce": "mapping.both.allreduce=ring or ktree",
    "experts.shared_copies": "each die of FFNs has all shared experts, mapping.both.experts.shared_copies=0",
}
"""What would do beside dies of attention alone, by fields of a plan."""


def _nearest(design: Design, case: BatchCase, phase: str) -> str:
    """In overrides, the nearest splits that can be laid out."""
    if (of := phase_split(design, case, phase)).attention:
        return f"a stage has attention_dies and ep dies, {of.attention} and {of.ep}: smaller ones, or fewer stages"
    plan = _plan(design, phase)
    return split_advice_text(phase_split(design, case, phase), int(plan.dp), split_bounds(plan, _chip(design).dies, case))


def phase_split(design: Design, case: BatchCase, phase: str) -> DieSplit:
    """How a phase of a case is divided."""
    return die_split(_plan(design, phase), _chip(design).dies, case.batch, prompts=phase == "prefill")


def _plan(design: Design, phase: str) -> MultiDiePlan:
    plan: MultiDiePlan = getattr(_mapping(design), phase)
    return plan


def single_die_chip(chip: Chip) -> Chip:
    """One die, with nothing around it."""
    return replace(chip, dies=None, d2d=None, boxes=None)


def chip_die_count(chip: Chip) -> int:
    """Dies."""
    return int(chip.dies.rows) * int(chip.dies.cols)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
