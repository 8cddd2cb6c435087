"""Single kernels on shared-cache dies: products, attention, experts, elementwise work, collectives.

The plan divides work between dies: the inner dimension of a product, which an allreduce sums, heads, and columns of
experts and of elements, which exchange nothing here. Prompt attention (causal, or with as many queries as keys) uses
the plan of prefill; everything else uses the plan of decode. A collective runs among the plan's dies: an allreduce by
the plan's algorithm, others by the stack's library.
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting import breakdown
from dse.evaluators.accounting import tensor_parallel as devices
from dse.evaluators.accounting.breakdown import BreakdownRow, timeline_bars
from dse.evaluators.accounting.kernel_workloads import KernelOutcome, KernelWorkload, TimelineSpans
from dse.evaluators.accounting.memory_contents import main_memory_contents, memory_limits
from dse.evaluators.accounting.metrics import rated_power
from dse.evaluators.accounting.tensor_parallel import device_activity, port_limit
from dse.evaluators.calls.call import CallBlock, KernelCall, LeadingCollective, equal_call_index, sort_breadth_first
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.analytical_collectives import (
    allreduce_hop_bytes,
    die_allreduce_seconds,
    library_seconds,
    link_energy_inputs,
)
from dse.evaluators.cost_models.call_cost import CostModel, TimedBlock, block_timeline
from dse.evaluators.graph.benchmark_expert_loads import busiest_device_share
from dse.evaluators.graph.elementwise_costs import GATE_COST, NORM_COST, ROPE_COST
from dse.evaluators.graph.operators import AttentionOp as Scores
from dse.evaluators.graph.operators import ElementwiseOp, MatMulOp, MatrixDim, Operator, Segment, local_width
from dse.evaluators.kernels.collective import LIBRARY_OPTION
from dse.evaluators.kernels.library.node_collectives import token_bytes
from dse.evaluators.layouts.tensor_parallel import device_call, kv_heads_per_device
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.silicon.energy import PooledActivity, pooled_dynamic_energy
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.layers import causal_pairs
from dse.space.limits import IncompatibleOptionsError, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import BYTES_BY_FORMAT, TensorParallelPlan
from dse.space.workload import (
    DIE_EXCHANGES,
    EXPERT_EXCHANGES,
    AttentionCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    ProductCase,
    WorkloadCase,
)

FIDELITIES = tuple(READERS)
UNREAD = (ElementwiseCase, CollectiveCase)
"""Cases that read no weights and no KV cache, so that only the analytical model supports them."""

OPERATOR_NAMES = {
    "norm": "norm",
    "gate": "activation",
    "rotate": "rope",
    "copy": "copy",
    "gather": "embedding",
    "softmax": "softmax",
}
"""Names in the graph of elementwise operators, which also give the sort of a library kernel."""

ELEMENTWISE_COSTS = {
    "norm": NORM_COST,
    "gate": GATE_COST,
    "rotate": ROPE_COST,
    "copy": (0, 2),
    "gather": (0, 2),
    "softmax": (4, 2),
}
"""Their operations an element, and reads plus writes of it."""

MemoryItems = tuple[tuple[str, Any], ...]
"""Bytes in main memory, by what they are for. [B]"""


class DieKernel(NamedTuple):
    """Work of one die for a case: metrics, memory, counts and breakdown.

    Attributes:
        plan: that divides it.
        metrics: with the latency.
        held: items in the die's memory.
        ports: whether dies exchange something.
        done: counts.
        told: function that returns breakdown rows and bars.
        by: function from a fidelity to the same kernel at that fidelity; None where no memory is read.
        divided: heads or columns that dies share, at least one each, and the phase whose plan sets the number of dies.
    """

    plan: TensorParallelPlan
    metrics: dict[str, Any]
    held: MemoryItems
    ports: bool
    done: Callable[[], PooledActivity]
    told: Callable[[], tuple[list[BreakdownRow], TimelineSpans]]
    by: "Callable[[str], DieKernel] | None" = None
    divided: tuple[float, str] = (inf, "decode")


def prepare_case(design: Design, cases: tuple[WorkloadCase, ...]) -> DieKernel:
    """Work of one die for a case, timed by the analytical model."""
    (case,) = cases
    lay = CASES[type(case)]
    die_kernel = lay(design, case, READERS[ANALYTICAL_FIDELITY])
    return (
        die_kernel
        if isinstance(case, UNREAD)
        else die_kernel._replace(by=lambda fidelity: lay(design, case, READERS[fidelity]))
    )


ANALYTICAL_FIDELITY = FIDELITIES[0]


def simulation_obstacle(design: Design) -> str:
    """Why memory reads cannot be simulated, as in `accounting.tensor_parallel`."""
    return devices.simulation_obstacle(design)


def _kernel_by_fidelity(kernel: DieKernel, fidelity: str) -> DieKernel:
    """A case at a fidelity; refuses simulation of cases that read nothing from banks."""
    if fidelity == ANALYTICAL_FIDELITY:
        return kernel
    if kernel.by is None:
        raise DesignError(
            f"fidelity: {fidelity} simulates only main memory on a shared-cache die; collectives and "
            f"elementwise operators read no weights and no KV cache; use {ANALYTICAL_FIDELITY}"
        )
    return kernel.by(fidelity)


def limits(design: Design, kernel: DieKernel) -> list[Limit]:
    """Limits of memory, of work for each die, and of ports where dies exchange."""
    whole, phase = kernel.divided
    limits = memory_limits([main_memory_contents(design.chip, kernel.held)])
    limits += [Limit(f"mapping.{phase}.tp", kernel.plan.tp * 1.0, whole, "1")] if np.any(kernel.plan.tp > whole) else []
    return [*limits, port_limit(design.chip, kernel.plan)] if kernel.ports else limits


def kernel_outcome(design: Design, kernel: DieKernel, fidelity: str) -> KernelOutcome:
    """Metrics of a kernel on all dies, with energy on demand."""
    kernel, chip, dies = _kernel_by_fidelity(kernel, fidelity), design.chip, kernel.plan.tp
    held = "hbm_used" if "mfu" in kernel.metrics else ""
    return KernelOutcome(kernel.metrics, lambda: pooled_dynamic_energy(kernel.done(), chip) * dies, dies, held)


def kernel_breakdown(
    design: Design, case: WorkloadCase, kernel: DieKernel, fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of one die's kernel, including its exchanges."""
    return _kernel_by_fidelity(kernel, fidelity).told()


SMALLEST_CHUNK = 16
"""Queries of the smallest chunk of a prompt that was measured ([llmservingsim2026])."""


def is_prefill(case: AttentionCase) -> bool:
    """Whether the queries are those of prompts or of prompt chunks.

    Absorbed weights belong to decode, and so do a few queries over a longer cache: drafted tokens, masked or not.
    """
    if not case.decodes and (case.latent or case.queries < min(SMALLEST_CHUNK, case.keys)):
        return False
    return case.causal or case.queries == case.keys


def attention_pairs(case: AttentionCase) -> float:
    """Query-key pairs of all sequences per head, with decodes in the same launch.

    >>> (
    ...     attention_pairs(AttentionCase("", 2, 8, 8, 4, 6, 64, 64, True, False)),
    ...     attention_pairs(AttentionCase("", 2, 8, 8, 4, 6, 64, 64, True, False, 2)),
    ... )
    (36.0, 16.0)
    """
    beside = float(case.decodes * case.cached)
    if not case.causal:
        return beside + float(case.batch * case.queries * case.keys)
    return beside + float(case.batch * causal_pairs(case.queries, case.keys, case.window))


def attention_operator(case: AttentionCase) -> Scores:
    """Attention operator of the graph that represents a case."""
    attention_case = case
    prompt = is_prefill(attention_case)
    tokens, sequences = (
        float(attention_case.batch * attention_case.queries + attention_case.decodes),
        float(attention_case.batch + attention_case.decodes),
    )
    before = attention_case.batch * (attention_case.keys - attention_case.queries if prompt else attention_case.keys)
    heads, kv_heads = (
        MatrixDim(attention_case.heads, split=True),
        MatrixDim(attention_case.kv_heads, split=not attention_case.latent),
    )
    return Scores(
        "attention", (), heads, kv_heads, attention_case.qk, attention_case.v,
        attention_case.qk if attention_case.latent else attention_case.qk + attention_case.v, attention_case.qk, tokens,
        attention_pairs(attention_case),
        float(before + attention_case.decodes * attention_case.cached), sequences=sequences, prompts=prompt,
        decodes=float(attention_case.decodes),
        decoded=float(attention_case.decodes * attention_case.cached),
        scored=float(attention_case.decodes * attention_case.cached),
    )  # fmt: skip


def _product_kernel(design: Design, case: ProductCase, reader: CostModel) -> DieKernel:
    """The share of one die, and the allreduce after it, which the host starts."""
    plan = design.mapping.decode
    operator = MatMulOp(
        case.kind, (), float(case.m), MatrixDim(case.k, split=True), MatrixDim(case.groups * case.n), apart=case.groups
    )
    (call,) = calls = _device_calls(design, plan, Segment("product", float(case.m), (operator,), 1))
    nbytes = float(case.m * operator.n.units * BYTES_BY_FORMAT[design.mapping.precision.activations])
    sums = LeadingCollective(plan.allreduce, plan.tp, nbytes, False, plan.ktree_k)
    blocks = (CallBlock("product", calls, (0,), (0,), 1.0), CallBlock("sums", (), (), (), 1.0, sums))
    others = (
        (case.groups - 1.0) * case.m * local_width(operator.k, plan.tp) * BYTES_BY_FORMAT[design.mapping.precision.activations]
    )
    held = (("weights", call.fetch), ("activations", call.local + others))

    def ideal(matrix: Any, achieved: Any) -> Any:
        return 2.0 * case.m * case.k * operator.n.units * (matrix * call.pace) * achieved

    laid, (multiplying, _) = _lay_blocks(design, case.kind, blocks, plan, held, ideal, reader)
    laid.metrics["compute_share"] = multiplying.seconds / laid.metrics["latency"]
    return laid._replace(ports=True, divided=(case.k * 1.0, "decode"))


def _case_kernel(design: Design, case: ExpertsCase | ElementwiseCase, reader: CostModel) -> DieKernel:
    """Experts of one layer, or an operator on elements."""
    plan, stored = design.mapping.decode, 1.0
    if isinstance(case, ExpertsCase):
        rows, touched = busiest_device_share(
            case.tokens, case.experts, case.top_k, case.ep, case.distribution, case.exponent, case.seed
        )  # of the die that has most
        device_experts = case.experts / case.ep
        part, stored = _expert_segment(case, rows, touched, device_experts), device_experts / touched
    else:
        operator = ElementwiseOp(
            OPERATOR_NAMES[case.sort], (), float(case.rows), MatrixDim(case.columns, split=True), *ELEMENTWISE_COSTS[case.sort]
        )
        part = Segment("elements", float(case.rows), (operator,), 1)
    calls = _device_calls(design, plan, part)
    block = CallBlock(case.subject, calls, equal_call_index(calls), sort_breadth_first(calls), 1.0)
    held = (
        ("weights", sum((call.fetch * stored for call in calls), 0.0)),
        ("activations", sum((call.local for call in calls), 0.0)),
    )
    whole = case.intermediate if isinstance(case, ExpertsCase) else case.columns
    return _lay_blocks(design, case.subject, (block,), plan, held, _ideal_seconds(calls), reader)[0]._replace(
        divided=(whole * 1.0, "decode")
    )


def _expert_segment(case: ExpertsCase, rows: float, touched: float, held: float) -> Segment:
    """Two products into experts, what is between them, and one out of them."""
    inner, outer = MatrixDim(case.intermediate, split=True), MatrixDim(case.hidden)
    unequal = case.distribution != "balanced"
    operators: tuple[Operator, ...] = (
        MatMulOp("experts_gate", (), rows, outer, inner, touched, held, unequal=unequal),
        MatMulOp("experts_up", (), rows, outer, inner, touched, held, unequal=unequal),
        ElementwiseOp("experts_activation", ("experts_gate", "experts_up"), rows, inner, *GATE_COST),
        MatMulOp("experts_down", ("experts_activation",), rows, inner, outer, touched, held, unequal=unequal),
    )
    return Segment("experts", float(case.tokens), operators, 1)


def _attention_kernel(design: Design, case: AttentionCase, reader: CostModel) -> DieKernel:
    """Heads of one die."""
    phase = "prefill" if is_prefill(case) else "decode"
    plan, operator = getattr(design.mapping, phase), attention_operator(case)
    (call,) = calls = _device_calls(design, plan, Segment("attention", operator.tokens, (operator,), 1))
    each = operator.cached_values(kv_heads_per_device(operator.kv_heads, plan.tp, plan.kv_heads)) * float(
        BYTES_BY_FORMAT[design.mapping.precision.kv]
    )
    held = (("KV cache", (case.batch * case.keys + case.decodes * case.cached) * each), ("activations", call.local))
    laid, _ = _lay_blocks(
        design, "attention", (CallBlock("attention", calls, (0,), (0,), 1.0),), plan, held, _ideal_seconds(calls), reader
    )
    moved = laid.done().memory_bytes
    laid.metrics["hbm_bytes"] = moved * plan.tp
    laid.metrics["hbm_utilisation"] = moved / (main_memory(design.chip).bandwidth * laid.metrics["latency"])
    return laid._replace(divided=(case.heads * 1.0, phase))


def _collective_kernel(design: Design, case: CollectiveCase, reader: CostModel) -> DieKernel:
    """All of its time is the network's."""
    plan = design.mapping.decode
    seconds, peers = _exchange_seconds(design, case), plan.tp

    def sent(peers: Any) -> Any:
        """Bytes that a die sends."""
        return (2.0 if case.pattern == "allreduce" else 1.0) * case.nbytes * (1 - 1 / peers)

    def done() -> PooledActivity:
        energy_inputs = link_energy_inputs(design.chip.network)
        if case.pattern != "allreduce":  # of one node
            return PooledActivity(linked_bytes=sent(peers) * energy_inputs.hops)
        return PooledActivity(linked_bytes=allreduce_hop_bytes(_leading_collective(case, plan), energy_inputs))

    def breakdown() -> tuple[list[BreakdownRow], TimelineSpans]:
        time, count = float(seconds), float(peers)
        row = BreakdownRow(
            case.pattern, case.along, "communication", f"{count:.0f} dies", 0.0, 0.0, 0.0, "network", time, {"network": time},
            count * sent(count),
        )  # fmt: skip
        return [row], {case.pattern: {case.along: [("communication", case.pattern, 0.0, time)]}}

    held = (("data", case.nbytes),)
    return DieKernel(plan, {"latency": seconds}, held, True, done, breakdown)


def _exchange_seconds(design: Design, case: CollectiveCase) -> Any:
    plan, machine = design.mapping.decode, shared_cache_machine(design.chip, design.mapping)
    if case.pattern not in (*DIE_EXCHANGES, *EXPERT_EXCHANGES):
        others = ", ".join((*DIE_EXCHANGES, *EXPERT_EXCHANGES))
        raise DesignError(f"workload.pattern: {case.pattern} is for tiles only; between dies choose one of {others}")
    if case.pattern in EXPERT_EXCHANGES and not case.recorded:
        raise DesignError("workload.recorded: expert exchanges are measured as single kernels; remove it")
    if case.along != "rectangle" or case.rows or case.cols or case.root != 0 or case.combine != "sum":
        raise DesignError(
            "workload.group_axis: all dies of mapping.decode.tp take part, and only sum; use "
            "workload.group_axis=rectangle "
            "workload.root=0 workload.group=mesh workload.combine=sum"
        )
    if machine.network is None:
        raise DesignError("chip.network: missing; collectives between dies need the network of their chip")
    if case.pattern == "allreduce":
        return die_allreduce_seconds(_leading_collective(case, plan), machine)
    if plan.allreduce != LIBRARY_OPTION:
        raise IncompatibleOptionsError(
            f"mapping.both.allreduce: {case.pattern} between dies needs a library; use library", "allreduce"
        )
    each = token_bytes(case.pattern, float(case.hidden))
    return library_seconds(case.pattern, case.nbytes, plan.tp, machine, recorded=case.recorded, each=each)


def _leading_collective(case: CollectiveCase, plan: TensorParallelPlan) -> LeadingCollective:
    return LeadingCollective(plan.allreduce, plan.tp, case.nbytes, case.recorded, plan.ktree_k)


CASES: dict[type, Callable[[Design, Any, CostModel], DieKernel]] = {
    ProductCase: _product_kernel,
    ExpertsCase: _case_kernel,
    ElementwiseCase: _case_kernel,
    AttentionCase: _attention_kernel,
    CollectiveCase: _collective_kernel,
}
"""What lays a kind of case out."""


def _device_calls(design: Design, plan: TensorParallelPlan, part: Segment) -> tuple[KernelCall, ...]:
    return tuple(
        device_call(part, operator, plan.tp, design.mapping.precision, design.chip.core.rates) for operator in part.operators
    )


def _ideal_seconds(calls: tuple[KernelCall, ...]) -> Callable[[Any, Any], Any]:
    """Time of all dies' operations on the matrix engines of one."""
    return lambda matrix, achieved: sum((call.flop * call.pace for call in calls), 0.0) * (matrix * achieved)


def _lay_blocks(
    design: Design,
    phase: str,
    blocks: tuple[CallBlock, ...],
    plan: TensorParallelPlan,
    held: MemoryItems,
    ideal: Callable[[Any, Any], Any],
    reader: CostModel,
) -> tuple[DieKernel, list[TimedBlock]]:
    """Work of one die from its blocks; `ideal` is the time on the matrix engines, and a share of it."""
    chip, mapping, dies = design.chip, design.mapping, plan.tp
    cache_machine = shared_cache_machine(chip, mapping)
    timeline = block_timeline(blocks, cache_machine, reader)
    seconds = sum(timed_block.seconds for timed_block in timeline)
    engines: Any = cache_machine.engines
    useful = ideal(engines.matrix, mapping.stack.matrix_efficiency)
    metrics = {"latency": seconds, "mfu": useful / (dies * seconds)}
    power = rated_power(chip.power)
    if not np.all(np.isnan(power)):
        metrics["rated_energy"] = power * dies * seconds

    def reported_breakdown() -> tuple[list[BreakdownRow], TimelineSpans]:
        rows = breakdown.breakdown_rows(phase, 1.0, timeline, cache_machine, dies=dies)
        return rows, {phase: {block.block.name: timeline_bars(block) for block in timeline}}

    links = None if chip.network is None else link_energy_inputs(chip.network)
    done = cache(lambda: device_activity(blocks, mapping.stack.attention_passes, cache_machine.cache, links))
    return DieKernel(plan, metrics, held, False, done, reported_breakdown), timeline


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=False,
    whole=True,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
    simulation_obstacle=simulation_obstacle,
    unsimulated_cases=UNREAD,
)
