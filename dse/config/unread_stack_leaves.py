"""What nothing reads: knobs of a stack that a question or a mapping has no kernels for, and pools that are not there."""

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
FLAT = ("matrix_efficiency", "hbm_efficiency", "operator_launch", "attention_passes")
LINKS = ("network_efficiency", "collective_launch")
NODES = ("inter_node_efficiency", "inter_node_launch")
CROSSED = ("mapping.prefill.tp", "mapping.decode.tp", "chip.network.nodes.size")
"""What decides whether dies of a stage are in several nodes."""


ON_DEVICES = (DEVICES, SERVED_DEVICES)
"""Software whose dies share layers alone, and add up by a library where their stack has one."""

PREFILL = "mapping.serving.prefill_instances"

USUAL = {"prefill_policy": "prefill_first", "prefill_max_batch_size": 0, "prefill_max_batched_tokens": 0}
"""What prefill instances do where nothing is said of them."""


def refuse_unread_prefill(base: Design, knobs: tuple[Knob, ...]) -> None:
    """Raises for what is said of prefill instances where there are none.

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
    some = () if counts is None else _values(counts, 0)
    if counts is None and serving.prefill_instances:
        return
    for leaf, usual in USUAL.items():
        address = f"mapping.serving.{leaf}"
        knob = by_address.get(address)
        if not any(some) and (knob is not None or getattr(serving, leaf) != usual):
            raise DesignError(
                f"{address}: nothing reads it, for every instance does both phases; say {PREFILL}=1, or leave it out"
            )
        if knob is not None and not all(some) and 0 in dict(knob.when).get(PREFILL, (0,)):
            there = ", ".join(f"{value:g}" for value in some if value)
            raise DesignError(f"space.{address}: nothing reads it where {PREFILL} is 0; add when: {{{PREFILL}: [{there}]}}")


HOST, PREEMPTION = "mapping.serving.host_bandwidth", "mapping.serving.preemption"

HOST_CAPACITY = "mapping.serving.host_kv_capacity"
"""For prefixes that go to the host, where they have a pool."""

BY_HOST = (SERVED_REGIONS, SERVED_WHOLE_CHIP)
"""Software whose prefill instances send caches on by way of the host: chips without links to others."""


def refuse_unread_host_link(base: Design, knobs: tuple[Knob, ...]) -> None:
    """Raises for a knob of the way to the host's memory where caches never go there.

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
    kinds = _values(by_address.get(PREEMPTION), serving.preemption)
    sent = software_of(base.mapping) in BY_HOST
    counts = _values(by_address.get(PREFILL), serving.prefill_instances) if sent else (0,)
    if "swap" not in kinds and not any(counts):
        why = "no cache is swapped, and none is sent on" if sent else "no cache is swapped"
        raise DesignError(f"space.{HOST}: nothing reads it, for {why}; say {PREEMPTION}=swap, or leave it out")
    when = dict(knob.when)
    if set(when.get(PREEMPTION, kinds)) == {"swap"} or all(when.get(PREFILL, counts)):
        return
    there = ", ".join(f"{value:g}" for value in counts if value)
    ways = [f"{{{PREEMPTION}: [swap]}}"] * ("swap" in kinds) + [f"{{{PREFILL}: [{there}]}}"] * bool(there)
    raise DesignError(f"space.{HOST}: nothing reads it where caches stay where they are; add when: {' or '.join(ways)}")


def _values(knob: Knob | None, said: Any) -> tuple[Any, ...]:
    """That a leaf may have: its knob's, or the ends of them, or what is said."""
    if knob is None:
        return (said,)
    return tuple(knob.values) if isinstance(knob, ChoiceKnob) else (knob.low, knob.high)


def unread_serving_leaves(base: Design, asked_for: Workload) -> dict[str, str]:
    """Leaves of how requests are served that nothing reads for what these requests are, each with the reason."""
    loads = [case.requests for case in asked_for.cases if isinstance(case, ServingLoad)]
    if not loads or any(len(some.hashes) or len(some.before) for some in loads):
        return {}
    told = "no requests here begin alike or are turns of a session; leave it out, or give a trace, or workload.sessions"
    return {"mapping.serving.prefix_cache": told, HOST_CAPACITY: told}


def unread_stack_leaves(base: Design, asked_for: Workload, moved: Collection[str] = ()) -> dict[str, str]:
    """Leaves and parts of the stack that nothing reads, each with the reason; `moved`: leaves that knobs move."""
    stack, cases = base.mapping.stack, asked_for.cases
    if stack is None:
        return {}
    between = () if may_cross_nodes(base, moved) else NODES
    idle = dict.fromkeys(between, "no collective leaves a node") | _unread(base, cases, moved)
    if base.chip.network is None:
        idle |= {"collective_launch": "dies here start messages as chip.d2d and chip.boxes say"}
    return idle | (
        dict.fromkeys((*COLLECTIVES, *LINKS, *NODES), "mapping.both.tp=1 exchanges nothing")
        if has_no_peers(base, moved)
        else {}
    )


def has_no_peers(base: Design, moved: Collection[str]) -> bool:
    """Whether no die with a cache has another that it shares layers with."""
    plans = [getattr(base.mapping, phase) for phase in ("prefill", "decode")]
    return (
        software_of(base.mapping) in ON_DEVICES and all(np.all(plan.tp == 1) for plan in plans) and {*CROSSED}.isdisjoint(moved)
    )


def may_transfer_kv(base: Design, moved: Collection[str]) -> bool:
    """Whether instances that prefill may send caches on."""
    serving = base.mapping.serving
    return serving is not None and (getattr(serving, "prefill_instances", 0) != 0 or PREFILL in moved)


def may_cross_nodes(base: Design, moved: Collection[str]) -> bool:
    """Whether dies may exchange something between nodes."""
    network = base.chip.network
    if network is None or network.nodes is None:
        return False
    counts = (base.mapping.prefill.tp, base.mapping.decode.tp)
    return may_transfer_kv(base, moved) or not {*CROSSED}.isdisjoint(moved) or max(counts) > network.nodes.size


def _unread(base: Design, cases: Sequence[Any], moved: Collection[str]) -> dict[str, str]:
    stack = base.mapping.stack
    if base.mapping.kernel is not None:
        return dict.fromkeys((*ATTENTION, *COLLECTIVES, *KERNELS, *FLAT, "collective_launch"), "dies exchange as programs do")
    if isinstance(cases[0], CollectiveCase):
        found = dict.fromkeys((*ATTENTION, *KERNELS, *FLAT), "only a collective is asked for")
        patterns = {case.pattern for case in cases if isinstance(case, CollectiveCase)}
        if not patterns & {*EXPERT_EXCHANGES}:
            found["moe_all_to_all"] = "no exchange with experts is asked for"
        if not patterns - {*EXPERT_EXCHANGES}:
            unread = ("ring_collectives", "all_to_all", "one_shot_allreduce", *LINKS, *NODES)
            return found | dict.fromkeys(unread, "only exchanges with experts are asked for")
        return found | _links(base, patterns - {*EXPERT_EXCHANGES}, may_cross_nodes(base, moved))
    if isinstance(cases[0], AttentionCase):
        kinds = {attention_library_part(case) for case in cases if isinstance(case, AttentionCase)}
        others = (*(kind for kind in ATTENTION if kind not in kinds), *COLLECTIVES, *KERNELS, *LINKS)
        priced = all(getattr(stack, kind) is not None for kind in kinds)
        flat = dict.fromkeys(FLAT, f"mapping.stack.{'/'.join(sorted(kinds))} prices what is asked") if priced else {}
        passed = () if {"decode_attention", "mla_decode_attention"} & kinds else ("attention_passes",)
        return dict.fromkeys(others, "only attention is asked for") | dict.fromkeys(passed, "only prompts are asked for") | flat
    models = [case.model for case in cases if isinstance(case, BatchCase | ServingLoad)]
    if not models:
        found = dict.fromkeys((*ATTENTION, "attention_passes"), "no attention is asked for")
        found |= dict.fromkeys(COLLECTIVES, "no collective of a library is asked for") | _of_kernels(stack, cases)
        sums = () if isinstance(cases[0], ProductCase) else (*LINKS, *NODES)
        return found | dict.fromkeys(sums, "dies exchange nothing here")
    found = {"all_to_all": "no model on such chips exchanges by a library"}
    if not any(model.experts for model in models):
        found["grouped_gemm"] = "no model here has experts"
    if not any(model.latent is not None or model.compressed is not None for model in models):
        found["mla_decode_attention"] = "no model here has latents"
    if software_of(base.mapping) not in ON_DEVICES:
        return found | dict.fromkeys(("ring_collectives", "one_shot_allreduce"), "dies exchange over links as programs do")
    found["moe_all_to_all"] = "experts are not on other dies"
    return found | _links(base, {"allreduce"}, may_cross_nodes(base, moved))


def _of_kernels(stack: Any, cases: Sequence[Any]) -> dict[str, str]:
    """Of what prices kernels by themselves, that which is not read for those of one kind."""
    own = OF_KIND[type(cases[0])]
    found = {kind: f"only {own} are asked for" for kind in KERNELS if kind != own}
    part = getattr(stack, own)
    sorts = {case.sort for case in cases if isinstance(case, ElementwiseCase)}
    if part is not None and all(getattr(part, sort) is not None for sort in sorts):
        found |= dict.fromkeys(FLAT, f"mapping.stack.{own} prices what is asked")
    return found


def attention_library_part(case: AttentionCase) -> str:
    """The part of a stack that prices attention by itself."""
    prompts = case.causal or case.queries == case.keys
    latent = case.latent or (prompts and case.qk != case.v)
    return ("mla_" if latent else "") + ("prefill_attention" if prompts else "decode_attention")


def _links(base: Design, patterns: set[str], crossing: bool) -> dict[str, str]:
    """Of what prices collectives, that which is not read for some patterns."""
    stack: Any = base.mapping.stack
    plans = (base.mapping.prefill, base.mapping.decode)
    library = [plan.allreduce == "library" for plan in plans] if "allreduce" in patterns else [True]
    found: dict[str, str] = {}
    if not any(library):
        found |= dict.fromkeys(("ring_collectives", "one_shot_allreduce"), "allreduces are not the library's")
    if patterns == {"allreduce"}:
        found["all_to_all"] = "only allreduces are asked for"
    if "allreduce" not in patterns:
        found["one_shot_allreduce"] = "no allreduce is asked for"
    if patterns == {"all_to_all"}:
        found["ring_collectives"] = "only exchanges are asked for"
    if all(library):
        if not crossing:
            found["network_efficiency"] = "mapping.both.allreduce is the library's, within a node"
        if stack.one_shot_allreduce is not None and patterns == {"allreduce"}:
            found["collective_launch"] = "mapping.stack.one_shot_allreduce says what starting costs"
    return found
