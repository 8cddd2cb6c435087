"""Kernels of dies with a cache: products, attention, experts, operators on elements, and collectives between dies.

What one die does is divided between those of a plan: the inner dimension of a product, which an allreduce sums, heads, and
columns of experts and of elements, which then exchange nothing here. Attention is by the plan of prefill for prompts, which see
no later key or are all of their keys; all else is by the plan of decode. A collective is one that the plan's dies make: an
allreduce is that of the plan, all else is the library's of the stack.
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account import breakdown, devices
from dse.evaluators.account.alone import Spans, Spent
from dse.evaluators.account.breakdown import Row, bars
from dse.evaluators.account.devices import done_in, port_limit
from dse.evaluators.account.metrics import rated
from dse.evaluators.graph.apportioned import share
from dse.evaluators.graph.operators import Attention as Scores
from dse.evaluators.graph.operators import Dim, Elementwise, MatMul, Operator, Part, local
from dse.evaluators.graph.words import GATE, NORM, ROPE
from dse.evaluators.kernels.collective import LIBRARY
from dse.evaluators.kernels.library.collectives import token
from dse.evaluators.layouts.devices import call, heads_on
from dse.evaluators.machine.machine import of_die
from dse.evaluators.passes.call import Block, Call, Opener, alike, breadth_first
from dse.evaluators.readers import READERS
from dse.evaluators.readers.closed_collective import by_library, collective, crossed, ways
from dse.evaluators.readers.price import Reader, Timed, timed
from dse.evaluators.silicon.energy import Pooled, of_pool
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.layers import causal_pairs
from dse.space.limits import ClashError, Limit
from dse.space.mapping import BYTES, Plan
from dse.space.workload import EXCHANGES, TO_EXPERTS, Asked, Attention, Collective, Mixture, Operation, Product

FIDELITIES = tuple(READERS)
UNREAD = (Operation, Collective)
"""Cases that read no weights and no cache, of which banks play nothing: the first fidelity answers."""
STACKED, WHOLE = False, True

NAMES = {
    "norm": "norm",
    "gate": "activation",
    "rotate": "rope",
    "copy": "copy",
    "gather": "embedding",
    "softmax": "softmax",
}
"""Operators on elements by what is asked: their names in a graph, which say the sort of a library's pass."""

COUNTS = {"norm": NORM, "gate": GATE, "rotate": ROPE, "copy": (0, 2), "gather": (0, 2), "softmax": (4, 2)}
"""Their operations an element, and reads plus writes of it."""

Held = tuple[tuple[str, Any], ...]
"""Bytes in main memory, by what they are for. [B]"""


class Laid(NamedTuple):
    """What one die does of a case.

    Attributes:
        plan: that divides it.
        metrics: with the latency.
        held: in its memory.
        ports: whether dies exchange something.
        done: counts.
        told: rows and bars, of numbers.
        by: the same by another reader, of (fidelity); None where no memory is read.
        divided: heads or columns that dies share out, of which each has one or more, and whose plan says how many dies.
    """

    plan: Plan
    metrics: dict[str, Any]
    held: Held
    ports: bool
    done: Callable[[], Pooled]
    told: Callable[[], tuple[list[Row], Spans]]
    by: "Callable[[str], Laid] | None" = None
    divided: tuple[float, str] = (inf, "decode")


def asked(design: Design, cases: tuple[Asked, ...]) -> Laid:
    """A case as a die is asked for it, timed."""
    (case,) = cases
    lay = CASES[type(case)]
    found = lay(design, case, READERS[FORMULA])
    return found if isinstance(case, UNREAD) else found._replace(by=lambda fidelity: lay(design, case, READERS[fidelity]))


FORMULA = FIDELITIES[0]


def unplayed(design: Design) -> str:
    """As of models (`account.devices.unplayed`)."""
    return devices.unplayed(design)


def _by(asked: Laid, fidelity: str) -> Laid:
    """A case by a reader; refuses those that play banks for what reads nothing of them."""
    if fidelity == FORMULA:
        return asked
    if asked.by is None:
        raise DesignError(
            f"fidelity: {fidelity} plays main memory alone on a die, of which collectives and operators on elements read no "
            f"weights and no cache; say {FORMULA}"
        )
    return asked.by(fidelity)


def limits(design: Design, asked: Laid) -> list[Limit]:
    """Memory, something for each die to do, and ports where dies exchange something."""
    need, (whole, phase) = sum(nbytes for _, nbytes in asked.held), asked.divided
    found = [Limit("chip.hbm.capacity", need, design.chip.hbm.capacity, "B", asked.held)]
    found += [Limit(f"mapping.{phase}.tp", asked.plan.tp * 1.0, whole, "1")] if np.any(asked.plan.tp > whole) else []
    return [*found, port_limit(design.chip, asked.plan)] if asked.ports else found


def spent(design: Design, asked: Laid, fidelity: str) -> Spent:
    """Of all dies."""
    asked, chip, dies = _by(asked, fidelity), design.chip, asked.plan.tp
    held = "hbm_used" if "utilisation" in asked.metrics else ""
    return Spent(asked.metrics, lambda: of_pool(asked.done(), chip) * dies, dies, held)


def explained(design: Design, case: Asked, asked: Laid, fidelity: str) -> tuple[list[Row], Spans]:
    """Where the time of one die goes, and into exchanges."""
    return _by(asked, fidelity).told()


SMALLEST_CHUNK = 16
"""Queries of the smallest chunk of a prompt that was measured ([llmservingsim2026])."""


def prompts(case: Attention) -> bool:
    """Whether queries are those of prompts, or of chunks of them.

    Absorbed weights are of decode, and so are a few queries over a longer cache: tokens that decode guesses, masked or not.
    """
    if not case.decodes and (case.latent or case.queries < min(SMALLEST_CHUNK, case.keys)):
        return False
    return case.causal or case.queries == case.keys


def pairs(case: Attention) -> float:
    """Pairs of query and key of all sequences, per head, those beside included.

    >>> pairs(Attention("", 2, 8, 8, 4, 6, 64, 64, True, False)), pairs(Attention("", 2, 8, 8, 4, 6, 64, 64, True, False, 2))
    (36.0, 16.0)
    """
    beside = float(case.decodes * case.cached)
    if not case.causal:
        return beside + float(case.batch * case.queries * case.keys)
    return beside + float(case.batch * causal_pairs(case.queries, case.keys, case.window))


def operator(case: Attention) -> Scores:
    """The operator that a case is."""
    of = case
    prompt = prompts(of)
    tokens, sequences = float(of.batch * of.queries + of.decodes), float(of.batch + of.decodes)
    before = of.batch * (of.keys - of.queries if prompt else of.keys)
    heads, kv_heads = Dim(of.heads, split=True), Dim(of.kv_heads, split=not of.latent)
    return Scores(
        "attention", (), heads, kv_heads, of.qk, of.v, of.qk if of.latent else of.qk + of.v, of.qk, tokens, pairs(of),
        float(before + of.decodes * of.cached), sequences=sequences, prompts=prompt, decodes=float(of.decodes),
        decoded=float(of.decodes * of.cached), scored=float(of.decodes * of.cached),
    )  # fmt: skip


def _product(design: Design, case: Product, reader: Reader) -> Laid:
    """The share of one die, and the allreduce after it, which the host starts."""
    plan = design.mapping.decode
    one = MatMul(case.kind, (), float(case.m), Dim(case.k, split=True), Dim(case.groups * case.n), apart=case.groups)
    (of,) = calls = _calls(design, plan, Part("product", float(case.m), (one,), 1))
    nbytes = float(case.m * one.n.units * BYTES[design.mapping.precision.activations])
    sums = Opener(plan.allreduce, plan.tp, nbytes, False, plan.ktree_k)
    blocks = (Block("product", calls, (0,), (0,), 1.0), Block("sums", (), (), (), 1.0, sums))
    others = (case.groups - 1.0) * case.m * local(one.k, plan.tp) * BYTES[design.mapping.precision.activations]
    held = (("weights", of.fetch), ("activations", of.local + others))

    def ideal(matrix: Any, achieved: Any) -> Any:
        return 2.0 * case.m * case.k * one.n.units * (matrix * of.pace) * achieved

    laid, (multiplying, _) = _laid(design, case.kind, blocks, plan, held, ideal, reader)
    laid.metrics["efficiency"] = multiplying.seconds / laid.metrics["latency"]
    return laid._replace(ports=True, divided=(case.k * 1.0, "decode"))


def _kernel(design: Design, case: Mixture | Operation, reader: Reader) -> Laid:
    """Experts of one layer, or an operator on elements."""
    plan, stored = design.mapping.decode, 1.0
    if isinstance(case, Mixture):
        rows, touched = share(
            case.tokens, case.experts, case.top_k, case.ep, case.distribution, case.exponent, case.seed
        )  # of the die that has most
        here = case.experts / case.ep
        part, stored = _experts(case, rows, touched, here), here / touched
    else:
        of = Elementwise(NAMES[case.sort], (), float(case.rows), Dim(case.columns, split=True), *COUNTS[case.sort])
        part = Part("elements", float(case.rows), (of,), 1)
    calls = _calls(design, plan, part)
    block = Block(case.subject, calls, alike(calls), breadth_first(calls), 1.0)
    held = (
        ("weights", sum((of.fetch * stored for of in calls), 0.0)),
        ("activations", sum((of.local for of in calls), 0.0)),
    )
    whole = case.intermediate if isinstance(case, Mixture) else case.columns
    return _laid(design, case.subject, (block,), plan, held, _ideal(calls), reader)[0]._replace(divided=(whole * 1.0, "decode"))


def _experts(case: Mixture, rows: float, touched: float, held: float) -> Part:
    """Two products into experts, what is between them, and one out of them."""
    inner, outer = Dim(case.intermediate, split=True), Dim(case.hidden)
    operators: tuple[Operator, ...] = (
        MatMul("experts_gate", (), rows, outer, inner, touched, held),
        MatMul("experts_up", (), rows, outer, inner, touched, held),
        Elementwise("experts_activation", ("experts_gate", "experts_up"), rows, inner, *GATE),
        MatMul("experts_down", ("experts_activation",), rows, inner, outer, touched, held),
    )
    return Part("experts", rows, operators, 1)


def _attention(design: Design, case: Attention, reader: Reader) -> Laid:
    """Heads of one die."""
    phase = "prefill" if prompts(case) else "decode"
    plan, one = getattr(design.mapping, phase), operator(case)
    (of,) = calls = _calls(design, plan, Part("attention", one.tokens, (one,), 1))
    each = one.cached(heads_on(one.kv_heads, plan.tp, plan.kv_heads)) * float(BYTES[design.mapping.precision.kv])
    held = (("KV cache", (case.batch * case.keys + case.decodes * case.cached) * each), ("activations", of.local))
    laid, _ = _laid(design, "attention", (Block("attention", calls, (0,), (0,), 1.0),), plan, held, _ideal(calls), reader)
    moved = laid.done().memory_bytes
    laid.metrics["hbm_bytes"] = moved * plan.tp
    laid.metrics["hbm_utilisation"] = moved / (design.chip.hbm.bandwidth * laid.metrics["latency"])
    return laid._replace(divided=(case.heads * 1.0, phase))


def _collective(design: Design, case: Collective, reader: Reader) -> Laid:
    """All of its time is the network's."""
    plan = design.mapping.decode
    seconds, peers = _exchanging(design, case), plan.tp

    def sent(peers: Any) -> Any:
        """Bytes that a die sends."""
        return (2.0 if case.pattern == "allreduce" else 1.0) * case.nbytes * (1 - 1 / peers)

    def done() -> Pooled:
        on = ways(design.chip.network)
        if case.pattern != "allreduce":  # of one node
            return Pooled(linked_bytes=sent(peers) * on.hops)
        return Pooled(linked_bytes=crossed(_opener(case, plan), on))

    def told() -> tuple[list[Row], Spans]:
        time, count = float(seconds), float(peers)
        row = Row(
            case.pattern, case.along, "communication", f"{count:.0f} dies", 0.0, 0.0, 0.0, "network", time, {"network": time},
            count * sent(count),
        )  # fmt: skip
        return [row], {case.pattern: {case.along: [("communication", case.pattern, 0.0, time)]}}

    held = (("data", case.nbytes),)
    return Laid(plan, {"latency": seconds}, held, True, done, told)


def _exchanging(design: Design, case: Collective) -> Any:
    plan, machine = design.mapping.decode, of_die(design.chip, design.mapping)
    if case.pattern not in (*EXCHANGES, *TO_EXPERTS):
        others = ", ".join((*EXCHANGES, *TO_EXPERTS))
        raise DesignError(f"workload.pattern: {case.pattern} is of tiles; between dies it is one of {others}")
    if case.pattern in TO_EXPERTS and not case.recorded:
        raise DesignError("workload.recorded: kernels for experts are measured as they are by themselves; leave it out")
    if case.along != "rectangle" or case.rows or case.cols or case.root != 0 or case.combine != "sum":
        raise DesignError(
            "workload.along: all dies of mapping.decode.tp take part, and sum; say workload.along=rectangle workload.root=0 "
            "workload.group=mesh workload.combine=sum"
        )
    if machine.network is None:
        raise DesignError("chip.network: missing; collectives between dies need the network of their chip")
    if case.pattern == "allreduce":
        return collective(_opener(case, plan), machine)
    if plan.allreduce != LIBRARY:
        raise ClashError(f"mapping.both.allreduce: {case.pattern} between dies is a library's; say library", "allreduce")
    each = token(case.pattern, float(case.hidden))
    return by_library(case.pattern, case.nbytes, plan.tp, machine, recorded=case.recorded, each=each)


def _opener(case: Collective, plan: Plan) -> Opener:
    return Opener(plan.allreduce, plan.tp, case.nbytes, case.recorded, plan.ktree_k)


CASES: dict[type, Callable[[Design, Any, Reader], Laid]] = {
    Product: _product,
    Mixture: _kernel,
    Operation: _kernel,
    Attention: _attention,
    Collective: _collective,
}
"""What lays a kind of case out."""


def _calls(design: Design, plan: Plan, part: Part) -> tuple[Call, ...]:
    return tuple(call(part, of, plan.tp, design.mapping.precision, design.chip.core.rates) for of in part.operators)


def _ideal(calls: tuple[Call, ...]) -> Callable[[Any, Any], Any]:
    """Time of all dies' operations on the matrix engines of one."""
    return lambda matrix, achieved: sum((of.flop * of.pace for of in calls), 0.0) * (matrix * achieved)


def _laid(
    design: Design,
    phase: str,
    blocks: tuple[Block, ...],
    plan: Plan,
    held: Held,
    ideal: Callable[[Any, Any], Any],
    reader: Reader,
) -> tuple[Laid, list[Timed]]:
    """What a die does, from its blocks; `ideal` is what operations take on the matrix engines, at a time and a share of it."""
    chip, mapping, dies = design.chip, design.mapping, plan.tp
    on = of_die(chip, mapping)
    found = timed(blocks, on, reader)
    seconds = sum(of.seconds for of in found)
    engines: Any = on.engines
    useful = ideal(engines.matrix, mapping.stack.matrix_achieved)
    metrics = {"latency": seconds, "utilisation": useful / (dies * seconds)}
    power = rated(chip.power)
    if not np.all(np.isnan(power)):
        metrics["power_energy"] = power * dies * seconds

    def told() -> tuple[list[Row], Spans]:
        rows = breakdown.rows(phase, 1.0, found, on, dies=dies)
        return rows, {phase: {of.block.name: bars(of) for of in found}}

    links = None if chip.network is None else ways(chip.network)
    done = cache(lambda: done_in(blocks, mapping.stack.attention_passes, on.cache, links))
    return Laid(plan, metrics, held, False, done, told), found
