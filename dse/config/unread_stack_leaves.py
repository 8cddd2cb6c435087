"""Unread settings of a stack: parts without kernels in the workload, and links that are never used."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, Knob
from dse.space.software import DEVICES, SERVED_DEVICES, SERVED_REGIONS, SERVED_WHOLE_CHIP, software_of
from dse.space.workload import (
    EXPERT_EXCHANGES,
    AttentionCase,
    BatchCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    ProductCase,
    ServingLoad,
    Workload,
)

ATTENTION = ("prefill_attention", "decode_attention", "mla_prefill_attention", "mla_decode_attention")
COLLECTIVES = ("ring_collectives", "all_to_all", "one_shot_allreduce", "moe_all_to_all")
OF_KIND: dict[type, str] = {ProductCase: "gemm", ExpertsCase: "grouped_gemm", ElementwiseCase: "elementwise"}
"""Parts of a stack that price what is asked for by itself."""

KERNELS = tuple(OF_KIND.values())
FLAT = (
    "matrix_efficiency",
    "hbm_efficiency",
    "operator_launch",
    "attention_passes",
    "matrix_energy",
    "roofline_exponent",
    "product_block",
)
LINKS = ("network_efficiency", "collective_launch", "network_half_size", "reduction_format")
ENGINE = ("iteration", "moe")
"""Parts of a stack that an inference engine adds to the kernels of a model."""

PASSES = ("moe.row_passes", "moe.intermediate_passes", "moe.expanded_pace")
"""Passes over rows of experts, and expansion of their weights, which a library's expert products contain."""

NODES = ("inter_node_efficiency", "inter_node_launch")
CROSSED = (
    *("mapping.prefill.tp", "mapping.decode.tp", "mapping.prefill.pp", "mapping.decode.pp"),
    "chip.network.nodes.size",
)
"""What decides whether dies of a stage are in several nodes."""


ON_DEVICES = (DEVICES, SERVED_DEVICES)
"""Software whose dies share layers alone, and add up by a library where their stack has one."""

PREFILL = "mapping.serving.prefill_instances"

USUAL = {"prefill_policy": "prefill_first", "prefill_max_batch_size": 0, "prefill_max_batched_tokens": 0}
"""What prefill instances do where nothing is said of them."""


def refuse_unread_prefill(base: Design, knobs: tuple[Knob, ...]) -> None:
    """Refuse settings of prefill instances if there are none.

    Args:
        base: chip and mapping that knobs vary.
        knobs: of the search.

    Raises:
        DesignError: the first such leaf or knob, by its address, and what to say instead.
    """
    serving, by_address = base.mapping.serving, {knob.address: knob for knob in knobs}
    if getattr(serving, "prefill_instances", None) is None:
        return
    counts = by_address.get(PREFILL)
    counts_read = () if counts is None else _leaf_values(counts, 0)
    if counts is None and serving.prefill_instances:
        return
    for leaf, usual in USUAL.items():
        address = f"mapping.serving.{leaf}"
        knob = by_address.get(address)
        if not any(counts_read) and (knob is not None or getattr(serving, leaf) != usual):
            raise DesignError(
                f"{address}: has no effect, since every instance does both phases; set {PREFILL}=1, or leave it out"
            )
        if knob is not None and not all(counts_read) and 0 in dict(knob.when).get(PREFILL, (0,)):
            counts_text = ", ".join(f"{value:g}" for value in counts_read if value)
            raise DesignError(f"space.{address}: has no effect where {PREFILL} is 0; add when: {{{PREFILL}: [{counts_text}]}}")


HOST, PREEMPTION = "mapping.serving.host_bandwidth", "mapping.serving.preemption"

HOST_CAPACITY = "mapping.serving.host_kv_capacity"
"""For prefixes that go to the host, where they have a pool."""

BY_HOST = (SERVED_REGIONS, SERVED_WHOLE_CHIP)
"""Software whose prefill instances send caches on by way of the host: chips without links to others."""


def refuse_unread_host_link(base: Design, knobs: tuple[Knob, ...]) -> None:
    """Refuse a knob of the host memory link if KV caches never move to the host.

    Args:
        base: chip and mapping that knobs vary.
        knobs: of the search.

    Raises:
        DesignError: no design swaps caches or sends them by the host, or some do not and the knob moves there, too.
    """
    by_address = {knob.address: knob for knob in knobs}
    knob, serving = by_address.get(HOST), base.mapping.serving
    if knob is None or getattr(serving, "host_kv_capacity", None) or HOST_CAPACITY in by_address:
        return
    kinds = _leaf_values(by_address.get(PREEMPTION), serving.preemption)
    sent = software_of(base.mapping) in BY_HOST
    counts = _leaf_values(by_address.get(PREFILL), serving.prefill_instances) if sent else (0,)
    if "swap" not in kinds and not any(counts):
        why = "no KV cache is swapped or transferred" if sent else "no KV cache is swapped"
        raise DesignError(f"space.{HOST}: has no effect, since {why}; set {PREEMPTION}=swap, or leave it out")
    when = dict(knob.when)
    if set(when.get(PREEMPTION, kinds)) == {"swap"} or all(when.get(PREFILL, counts)):
        return
    counts_text = ", ".join(f"{value:g}" for value in counts if value)
    ways = [f"{{{PREEMPTION}: [swap]}}"] * ("swap" in kinds) + [f"{{{PREFILL}: [{counts_text}]}}"] * bool(counts_text)
    raise DesignError(f"space.{HOST}: has no effect unless KV caches move to the host; add when: {' or '.join(ways)}")


def _leaf_values(knob: Knob | None, prefill_instances: Any) -> tuple[Any, ...]:
    """That a leaf may have: its knob's, or the ends of them, or what is said."""
    if knob is None:
        return (prefill_instances,)
    return tuple(knob.values) if isinstance(knob, ChoiceKnob) else (knob.low, knob.high)


def find_unread_serving_leaves(base: Design, asked_for: Workload) -> dict[str, str]:
    """Serving settings that nothing reads for the given requests, each with the reason."""
    loads = [case.requests for case in asked_for.cases if isinstance(case, ServingLoad)]
    if not loads or any(len(load.hashes) or len(load.before) for load in loads):
        return {}
    advice = "no requests share a prefix or are turns of a session; leave it out, or set workload.trace or workload.sessions"
    return {"mapping.serving.prefix_cache": advice, HOST_CAPACITY: advice}


def find_unread_stack_leaves(base: Design, asked_for: Workload, moved: Collection[str] = ()) -> dict[str, str]:
    """Settings and parts of the stack that nothing reads, each with the reason.

    `moved`: settings that knobs move.
    """
    stack, cases = base.mapping.stack, asked_for.cases
    if stack is None:
        return {}
    between = () if can_cross_nodes(base, moved) else NODES
    idle = dict.fromkeys(between, "no collective leaves a node") | _unread_leaves(base, cases, moved)
    if base.chip.network is None:
        idle |= {"collective_launch": "start times of messages are those of chip.d2d and chip.nodes"}
    return idle | (
        dict.fromkeys((*COLLECTIVES, *LINKS, *NODES), "mapping.both.tp=1 exchanges nothing")
        if has_no_peers(base, moved)
        else {}
    )


def has_no_peers(base: Design, moved: Collection[str]) -> bool:
    """Whether no shared-cache die shares its layers with another die."""
    plans = [getattr(base.mapping, phase) for phase in ("prefill", "decode")]
    return (
        software_of(base.mapping) in ON_DEVICES
        and all(np.all(plan.tp == 1) and _stages(plan) == 1 for plan in plans)
        and {*CROSSED}.isdisjoint(moved)
    )


def _stages(plan: Any) -> int:
    """Pipeline stages of a plan; 1 where it has none."""
    return int(getattr(plan, "pp", None) or 1)


def can_transfer_kv(base: Design, moved: Collection[str]) -> bool:
    """Whether prefill instances may transfer KV caches."""
    serving = base.mapping.serving
    return serving is not None and (getattr(serving, "prefill_instances", 0) != 0 or PREFILL in moved)


def can_cross_nodes(base: Design, moved: Collection[str]) -> bool:
    """Whether dies may communicate between nodes."""
    network = base.chip.network
    if network is None or network.nodes is None:
        return False
    counts = [plan.tp * _stages(plan) for plan in (base.mapping.prefill, base.mapping.decode)]
    return can_transfer_kv(base, moved) or not {*CROSSED}.isdisjoint(moved) or max(counts) > network.nodes.size


def _unread_leaves(base: Design, cases: Sequence[Any], moved: Collection[str]) -> dict[str, str]:
    stack = base.mapping.stack
    if base.mapping.kernel is not None:
        return dict.fromkeys(
            (*ATTENTION, *COLLECTIVES, *KERNELS, *FLAT, *LINKS[1:], *ENGINE), "dies communicate by simulated programs"
        )
    if isinstance(cases[0], CollectiveCase):
        reasons = dict.fromkeys((*ATTENTION, *KERNELS, *FLAT, *ENGINE, LINKS[-1]), "the workload is a single collective")
        patterns = {case.pattern for case in cases if isinstance(case, CollectiveCase)}
        if not patterns & {*EXPERT_EXCHANGES}:
            reasons["moe_all_to_all"] = "the workload has no exchange with experts"
        if not patterns - {*EXPERT_EXCHANGES}:
            unread = ("ring_collectives", "all_to_all", "one_shot_allreduce", *LINKS, *NODES)
            return reasons | dict.fromkeys(unread, "the workload has only exchanges with experts")
        return reasons | _unread_link_leaves(base, patterns - {*EXPERT_EXCHANGES}, can_cross_nodes(base, moved))
    if isinstance(cases[0], AttentionCase):
        kinds = {attention_library_part(case) for case in cases if isinstance(case, AttentionCase)}
        others = (*(kind for kind in ATTENTION if kind not in kinds), *COLLECTIVES, *KERNELS, *LINKS, *ENGINE)
        priced = all(getattr(stack, kind) is not None for kind in kinds)
        flat = dict.fromkeys(FLAT, f"mapping.stack.{'/'.join(sorted(kinds))} gives the time of this kernel") if priced else {}
        passed = () if {"decode_attention", "mla_decode_attention"} & kinds else ("attention_passes",)
        return (
            dict.fromkeys(others, "the workload is attention alone")
            | dict.fromkeys(passed, "the workload has prompts only")
            | flat
        )
    models = [case.model for case in cases if isinstance(case, BatchCase | ServingLoad)]
    if not models:
        reasons = dict.fromkeys((*ATTENTION, "attention_passes"), "the workload has no attention")
        reasons |= dict.fromkeys(COLLECTIVES, "the workload has no collective of a library") | _of_kernels(stack, cases)
        reasons |= dict.fromkeys(ENGINE, "the workload has no iterations of a model")
        sums = () if isinstance(cases[0], ProductCase) else (*LINKS, *NODES)
        return reasons | dict.fromkeys(sums, "dies exchange nothing")
    reasons = {"all_to_all": "no model on such chips uses a library for exchanges"}
    if not any(model.experts for model in models):
        reasons |= dict.fromkeys(("grouped_gemm", "moe"), "no model here has experts")
    if stack.grouped_gemm is not None:
        reasons |= dict.fromkeys(PASSES, "mapping.stack.grouped_gemm gives the time of what is around expert products")
    if not any(model.latent is not None or model.compressed is not None for model in models):
        reasons["mla_decode_attention"] = "no model here has latents"
    if software_of(base.mapping) not in ON_DEVICES:
        return reasons | dict.fromkeys(
            ("ring_collectives", "one_shot_allreduce"), "dies communicate over links by simulated programs"
        )
    reasons |= dict.fromkeys(("moe_all_to_all", "moe.imbalance"), "experts are not on other dies")
    return reasons | _unread_link_leaves(base, {"allreduce"}, can_cross_nodes(base, moved))


def _of_kernels(stack: Any, cases: Sequence[Any]) -> dict[str, str]:
    """Of what prices kernels by themselves, that which is not read for those of one kind."""
    own = OF_KIND[type(cases[0])]
    kernels = {kind: f"the workload has only {own}" for kind in KERNELS if kind != own}
    part = getattr(stack, own)
    sorts = {case.sort for case in cases if isinstance(case, ElementwiseCase)}
    if part is not None and all(getattr(part, sort) is not None for sort in sorts):
        kernels |= dict.fromkeys(FLAT, f"mapping.stack.{own} gives the time of this kernel")
    return kernels


def attention_library_part(case: AttentionCase) -> str:
    """Part of a stack that gives the time of attention as a single kernel."""
    prompts = case.causal or case.queries == case.keys
    latent = case.latent or (prompts and case.qk != case.v)
    return ("mla_" if latent else "") + ("prefill_attention" if prompts else "decode_attention")


def _unread_link_leaves(base: Design, patterns: set[str], crossing: bool) -> dict[str, str]:
    """Of what prices collectives, that which is not read for some patterns."""
    stack: Any = base.mapping.stack
    plans = (base.mapping.prefill, base.mapping.decode)
    library = [plan.allreduce == "library" for plan in plans] if "allreduce" in patterns else [True]
    links: dict[str, str] = {}
    if not any(library):
        links |= dict.fromkeys(("ring_collectives", "one_shot_allreduce"), "allreduces are not the library's")
    if patterns == {"allreduce"}:
        links["all_to_all"] = "the workload has only allreduces"
    if "allreduce" not in patterns:
        links["one_shot_allreduce"] = "the workload has no allreduce"
    if patterns == {"all_to_all"}:
        links["ring_collectives"] = "the workload has only exchanges"
    if all(library):
        if not crossing:
            links["network_efficiency"] = "mapping.both.allreduce is the library's, within a node"
        links["network_half_size"] = "mapping.both.allreduce is the library's"
        if stack.one_shot_allreduce is not None and patterns == {"allreduce"}:
            links["collective_launch"] = "mapping.stack.one_shot_allreduce gives the start time"
    return links
