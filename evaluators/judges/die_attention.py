"""Designs of dies on attention of one layer by itself: metrics, limits and the breakdown of a workload.

Heads are divided between the devices of a plan: that of prefill for prompts, which see no later key or are all of their keys,
else that of decode, whose queries see all keys.
"""

from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, bars, rows
from dse.evaluators.account.devices import done_in
from dse.evaluators.account.metrics import Judged, rated
from dse.evaluators.account.power import alone
from dse.evaluators.graph.operators import Attention as Operator
from dse.evaluators.graph.operators import Dim, Part
from dse.evaluators.layouts.devices import call
from dse.evaluators.machine.machine import of_die
from dse.evaluators.machine.pooled import pooled
from dse.evaluators.passes.call import Block
from dse.evaluators.readers.closed import READER
from dse.evaluators.readers.price import Timed, timed
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import of_pool
from dse.space.design import Design
from dse.space.layers import causal_pairs
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import BYTES, Plan
from dse.space.workload import Attention, Workload

FIDELITIES = ("closed",)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, case by case; leaves of shape (designs,), or floats."""
    cases = cast(tuple[Attention, ...], workload.cases)
    return [Judged((row,), _metrics(design, case), _limits(design, case)) for row, case in enumerate(cases)]


def explain(design: Design, case: Attention, decode_at: str, fidelity: str) -> Breakdown:
    """Where the time of one device goes."""
    found = _timed(design, case)
    of_rows = tuple(rows("attention", 1.0, [found], of_die(design.chip, design.mapping), dies=_plan(design, case).tp))
    areas = {name: float(value) for name, value in area.parts(design.chip).items()}
    spans = {"attention": {found.block.name: bars(found)}}
    return Breakdown(of_rows, sum(row.seconds for row in of_rows), areas, spans)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def prompts(case: Attention) -> bool:
    """Whether queries are those of prompts, or of chunks of them."""
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


def _metrics(design: Design, case: Attention) -> dict[str, Any]:
    chip, mapping = design.chip, design.mapping
    of, dies, die = _timed(design, case), _plan(design, case).tp, area.die(chip)
    peak = pooled(chip, mapping)[0].matrix * mapping.stack.matrix_achieved
    (call_,), done = of.block.calls, done_in((of.block,), mapping.stack.attention_passes, pooled(chip, mapping)[1])
    values = {
        "latency": of.seconds,
        "utilisation": call_.flop * call_.pace * peak / (dies * of.seconds),
        "hbm_bytes": done.memory_bytes * dies,
        "hbm_utilisation": done.memory_bytes / (chip.hbm.bandwidth * of.seconds),
        "die_mm2": die,
        "system_mm2": area.total(chip) * dies,
        "hbm_used": _limits(design, case)[0].need,
    }
    power = rated(chip.power)
    if not np.all(np.isnan(power)):
        values["power_energy"] = power * dies * of.seconds

    return values | alone(chip, lambda: of_pool(done, chip) * dies, of.seconds, chips=dies)


def _limits(design: Design, case: Attention) -> list[Limit]:
    (of,) = _timed(design, case).block.calls
    each = float(BYTES[design.mapping.precision.kv])
    shared = case.kv_heads / case.heads
    width = case.qk if case.latent else case.qk + case.v
    cached = (case.batch * case.keys + case.decodes * case.cached) * (of.shape[2] * shared * width * each)
    parts = (("KV cache", cached), ("activations", of.local))
    return [Limit("chip.hbm.capacity", cached + of.local, design.chip.hbm.capacity, "B", parts)]


def _timed(design: Design, case: Attention) -> Timed:
    """What one device does."""
    chip, mapping, plan = design.chip, design.mapping, _plan(design, case)
    of = operator(case)
    part = Part("attention", of.tokens, (of,), 1)
    calls = (call(part, of, plan.tp, mapping.precision, chip.core.rates),)
    return timed([Block("attention", calls, (0,), (0,), 1.0)], of_die(chip, mapping), READER)[0]


def operator(case: Attention) -> Operator:
    """The operator that a case is."""
    of = case
    prompt = prompts(of)
    tokens, sequences = float(of.batch * of.queries + of.decodes), float(of.batch + of.decodes)
    before = of.batch * (of.keys - of.queries if prompt else of.keys)
    heads, kv_heads = Dim(of.heads, split=True), Dim(of.kv_heads, split=not of.latent)
    return Operator(
        "attention", (), heads, kv_heads, of.qk, of.v, of.qk if of.latent else of.qk + of.v, of.qk, tokens, pairs(of),
        float(before + of.decodes * of.cached), sequences=sequences, prompts=prompt, decodes=float(of.decodes),
        decoded=float(of.decodes * of.cached), scored=float(of.decodes * of.cached),
    )  # fmt: skip


def _plan(design: Design, case: Attention) -> Plan:
    plan: Plan = design.mapping.prefill if prompts(case) else design.mapping.decode
    return plan
