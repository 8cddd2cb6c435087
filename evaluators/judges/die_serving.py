"""Dies with a cache that serve requests as they come: an instance is as many dies as share the model's layers.

An iteration is one step of the graph, prompts and decodes together: products over all tokens, attention over all pairs. It runs
by the plan of prefill where it has prompts, else by that of decode. A design's iterations are priced once, as a table.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row, rows
from dse.evaluators.account.devices import port_limit, seconds, step
from dse.evaluators.account.metrics import Judged, energies
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.judges import served
from dse.evaluators.layouts.devices import Footprint, blocks, footprint
from dse.evaluators.machine.machine import of_die
from dse.evaluators.machine.pooled import pooled
from dse.evaluators.readers.closed import READER
from dse.evaluators.readers.price import Timed
from dse.evaluators.serving.kvcache import Memory
from dse.evaluators.serving.loop import Pool, Served, serve
from dse.evaluators.serving.policy import Policy, policy
from dse.evaluators.serving.price import Error, Price
from dse.evaluators.serving.state import Transfer
from dse.evaluators.silicon import area
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.elementwise import Array
from dse.space.fields import replaced
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import Mapping, Plan, Serving
from dse.space.workload import Asked, Load, Workload

FIDELITIES = ("closed",)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, load by load and design by design; leaves of shape (designs,)."""
    return served.judged(design, workload, _limits, _metrics)


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits alone, without a request played; leaves of shape (designs,)."""
    return served.limited(design, workload, _limits)


def explain(design: Design, case: Asked, decode_at: str, fidelity: str) -> Breakdown:
    """The time of instances, by operator and idle; and the first iterations."""
    load, chip = cast(Load, case), _chip(design)
    run, plans = _served(design, load, served.KEPT)[0], _plans(design)

    def operators(pool: int, mean: served.Mean) -> Sequence[Row]:
        found = _mean_iteration(design, load, plans[pool].tp, mean)
        return rows("", mean.times, found, of_die(chip, _mapping(design).precision))

    names = ("prefill instance", "decode instance") if len(plans) == 2 else ("instance",)
    return served.explained(run, area.parts(chip), operators, names=names)


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def _metrics(design: Design, load: Load) -> dict[str, float]:
    run, off = _served(design, load, 0)
    chip, mapping = _chip(design), _mapping(design)
    die = float(area.die(chip))
    dies = float(mapping.serving.instances * mapping.decode.tp + mapping.serving.prefill_instances * mapping.prefill.tp)
    values = served.worth(run, load, die, die * dies, off) | _used(design, load, run, dies)
    if chip.power:
        tokens = float(load.requests.output.sum())
        nothing = float("nan")
        values |= energies(float(chip.power) * dies, nothing, nothing, served.span(run), nothing, tokens)
    return values


def _used(design: Design, load: Load, run: Served, dies: float) -> dict[str, float]:
    """Shares of what the engines and the memories of all dies could do in the time; activations stay in the cache."""
    chip, span = _chip(design), served.span(run)
    matrix = pooled(chip, _mapping(design).precision)[0].matrix * chip.core.achieved
    flop = nbytes = 0.0
    for pool, plan in enumerate(_plans(design)):
        for mean in served.means(run, pool):
            for of in _mean_iteration(design, load, plan.tp, mean):
                times = mean.times * float(plan.tp) * of.block.times
                for call in of.block.calls:
                    flop += times * float(np.sum(call.flop))
                    nbytes += times * float(np.sum(call.nbytes))
    return {
        "utilisation": flop * float(matrix) / (dies * span),
        "hbm_utilisation": nbytes / (dies * float(chip.hbm.bandwidth) * span),
    }


def _limits(design: Design, load: Load) -> list[Limit]:
    chip, mapping = _chip(design), _mapping(design)
    held = max((_held(design, load, plan.tp) for plan in _plans(design)), key=lambda one: one.total)
    # a request alone must fit: beside more of them, requests wait
    parts = (("weights", held.weights), ("KV cache", served.longest(load) * held.kv), ("activations", held.activations))
    tp = (mapping.prefill.tp, mapping.decode.tp)
    shared = tp if not mapping.serving.prefill_instances else tp[:1] * 2
    return [
        Limit("chip.hbm.capacity", sum(value for _, value in parts), chip.hbm.capacity, "B", parts),
        port_limit(chip, mapping.prefill, mapping.decode),
        Limit("mapping.decode.tp", max(shared), min(shared), "1"),
    ]


def _served(design: Design, load: Load, log: int) -> tuple[Served, Error]:
    """A run, and the largest error of its prices; with room for the longest request, which is a limit."""
    chip, serving = _chip(design), _mapping(design).serving
    plans = _plans(design)
    held = [_held(design, load, plan.tp) for plan in plans]
    room = [float(chip.hbm.capacity) - one.weights - one.activations for one in held]
    kept = [free * float(serving.prefix) for free in room]
    per_block = [one.kv * serving.block for one in held]
    least = -(-served.longest(load) // int(serving.block))
    blocks = [max(least, int((free - keep) // size)) for free, keep, size in zip(room, kept, per_block, strict=True)]
    counts = [int(serving.prefill_instances), int(serving.instances)][-len(plans) :]
    pools, off = [], Error(0.0, 0.0, 0)
    for place, rule in enumerate(_policies(serving)):
        price, here = _priced(design, load, rule, plans[place].tp)
        off = max(off, here)
        memory = Memory(blocks[place], int(serving.block), host=held[place].kv / float(serving.host))
        prefixes = max(0, int(kept[place] // (held[place].kv * load.requests.block)))
        pools.append(Pool(price, rule, memory, counts[place], batch=int(serving.batch), prefix=prefixes))
    # every die sends or takes its share of a cache by a port of its own, and an instance one cache at a time
    per_token = max(one.kv for one in held) / (float(chip.network.bandwidth) * float(chip.network.achieved))
    transfer = Transfer(per_token, float(chip.network.latency), min(counts), True)
    return serve(load.requests, pools, transfer=transfer, routing=serving.routing, log=log), off


def _plans(design: Design) -> tuple[Plan, ...]:
    """Of each pool: that which prefills, where there is one, and that which decodes."""
    mapping = _mapping(design)
    return (mapping.prefill, mapping.decode) if mapping.serving.prefill_instances else (mapping.decode,)


def _policies(serving: Serving) -> tuple[Policy, ...]:
    """Of each pool: instances that only prefill take prompts whole."""
    changes = {name: int(getattr(serving, name)) for name in ("tokens", "unit", "chunk") if getattr(serving, name)}
    chosen = policy(serving.policy, swap=serving.preemption == "swap", **changes)
    return (policy("prefill_first"), chosen) if serving.prefill_instances else (chosen,)


def _priced(design: Design, load: Load, rule: Policy, tp: Any) -> tuple[Price, Error]:
    """A table of iterations on `tp` dies, up to the longest that the load and the policy can make, and its error."""

    def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
        return _seconds(design, load, tp, prompt, prompt_context, decodes, context)

    return served.table(pricing, rule, int(_mapping(design).serving.batch), served.longest(load) + 1)


def _seconds(
    design: Design, load: Load, tp: Any, prompt: Array, prompt_context: Array, decodes: Array, context: Array
) -> Array:
    """Seconds of iterations, in the shape that their counts broadcast to; NaN for those of nothing."""
    counts = np.broadcast_arrays(prompt, prompt_context, decodes, context)
    prompt, prompt_context, decodes, context = (np.ravel(count) for count in counts)
    found = np.full(len(prompt), np.nan)
    for name, here in (("prefill", prompt > 0), ("decode", (prompt == 0) & (decodes > 0))):
        if here.any():
            plan = replaced(getattr(_mapping(design), name), {"tp": tp})
            columns = (column[here][:, None] for column in (prompt, prompt_context, decodes, context))
            found[here] = _step_seconds(design, load, name, plan, *columns)
    return found.reshape(counts[0].shape)


def _step_seconds(design: Design, load: Load, phase: str, plan: Plan, *composition: Array) -> Array:
    return np.broadcast_to(seconds(_timeline(design, load, phase, plan, *composition)), composition[0].shape)[:, 0]


def _mean_iteration(design: Design, load: Load, tp: Any, mean: served.Mean) -> tuple[Timed, ...]:
    phase = "prefill" if mean.prompts else "decode"
    plan = replaced(getattr(_mapping(design), phase), {"tp": tp})
    return _timeline(design, load, phase, plan, *(np.array([[count]]) for count in mean.composition[:4]))


def _timeline(design: Design, load: Load, phase: str, plan: Plan, *composition: Array) -> tuple[Timed, ...]:
    """Blocks of iterations, counts of shape (iterations, 1)."""
    prompt, prompt_context, decodes, context = composition
    chip, precision, window = _chip(design), _mapping(design).precision, load.model.window
    if window:
        prompt_context, context = np.minimum(prompt_context, window), np.minimum(context, window)
    # positions that prompts attend to before themselves are read once a chunk
    past = np.where(prompt > 0, np.maximum(0.0, prompt_context - (prompt + 1) / 2), 0.0)
    pairs = prompt * prompt_context + decodes * context
    at = Step(phase, prompt + decodes, decodes + (prompt > 0), pairs, decodes * context + past)
    cut = blocks(transformer(load.model, at), plan.tp, precision, plan.allreduce, recorded=phase == "decode")
    return step(cut, chip, plan, of_die(chip, precision), READER)


def _held(design: Design, load: Load, tp: Any) -> Footprint:
    """What one of `tp` dies holds: weights, the KV cache of one position, and the activations of the longest prompt."""
    one = Step("decode", 1.0, 1.0, 1.0, 1.0)
    tokens, precision = float(load.requests.prompt.max()), _mapping(design).precision
    return footprint(transformer(load.model, one), load.model, tp, precision, positions=1.0, tokens=tokens)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
