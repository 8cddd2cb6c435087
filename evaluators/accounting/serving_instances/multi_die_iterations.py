"""Iterations of a model on many dies: work of an attention replica, and time by part tables."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.multi_die_overheads import dies_terms, replica_overheads
from dse.evaluators.accounting.serving_instances import Composition
from dse.evaluators.accounting.serving_instances.largest_iteration import PoolRole, largest_iteration
from dse.evaluators.graph.operators import useful_flop
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.multi_die import DieSplit, die_split
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, policies_with_batch
from dse.space.array_math import Array, ceil_div, maximum, minimum, where
from dse.space.design import Design
from dse.space.memoize import memoize_by_identity
from dse.space.serving_plan import instance_counts, is_disaggregated, pool_phases
from dse.space.workload import ServingLoad

ReplicaWork = tuple[IterationWork, DieSplit]
"""An iteration: work of the fullest attention replica, and the division of the model."""


ROUNDED = 1e-6
"""What a whole number of prompts may be off, by division."""


class DiePool(NamedTuple):
    """A pool of equal instances on many dies.

    Attributes:
        phase: phase whose plan divides the model.
        both: whether instances do both phases, each by its plan.
        of: how; copies of the model are instances, and there is one micro-batch at a time.
        rows: of dies, first and how many.
        rule, batch: how an iteration is formed, of how many requests at most in all micro-batches.
    """

    phase: str
    both: bool
    of: DieSplit
    rows: tuple[int, int]
    rule: SchedulingPolicy
    batch: int

    @property
    def slots(self) -> int:
        """Attention replicas and halves of an instance to which requests are dealt."""
        return self.of.copies * self.of.halves

    def padded_requests(self, design: Design) -> tuple[float, ...]:
        """Decoding requests with which all slots fill recorded graphs; none if nothing is padded. [-]"""
        return tuple(size * self.slots for size in dies_terms(design.mapping).sizes)


@memoize_by_identity
def die_pools(design: Design, load: ServingLoad) -> tuple[DiePool, ...]:
    """Pools on many dies: one that only prefills, if any, and one that decodes."""
    serving, cols = design.mapping.serving, int(design.chip.dies.cols)
    first, pools = 0, []
    for phase, many, (rule, batch) in zip(
        pool_phases(serving), instance_counts(serving), policies_with_batch(serving), strict=True
    ):
        given_die_split = die_split(getattr(design.mapping, phase), design.chip.dies)._replace(dp=many, batches=1)
        rows = int(ceil_div(given_die_split.ranks, cols))
        pools.append(DiePool(phase, not is_disaggregated(serving), given_die_split, (first, rows), rule, batch))
        first += rows
    if len(pools) == 1:
        pools = [pools[0]._replace(rows=(0, int(design.chip.dies.rows)))]
    return tuple(pools)


def phase_split_of_pool(design: Design, pool: DiePool, phase: str) -> DieSplit:
    """Division of the model by a phase's plan on a pool's dies."""
    found_die_split = die_split(getattr(design.mapping, phase), design.chip.dies)
    return found_die_split._replace(dp=pool.of.dp, batches=1)


def typical_iteration(load: ServingLoad, pool: DiePool) -> Composition:
    """Representative iteration: a full micro-batch of decodes, or a prompt for prefill-only instances."""
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    if pool.phase == "prefill":
        return prompt, (prompt + 1) / 2, 0.0, 0.0, 0.0
    return 0.0, 0.0, float(ceil_div(pool.batch, pool.of.pp)), prompt + output / 2, 0.0


def largest_iterations(load: ServingLoad, pool: DiePool) -> list[Composition]:
    """Iterations with most tokens: of prompts where some are computed, and of decodes."""
    role = PoolRole(pool.both or pool.phase == "prefill", pool.phase == "decode", pool.of.pp)
    largest, context = largest_iteration(pool.rule, load, pool.batch, role), float(load.longest - 1)
    prompts = float(largest.prompts), (float(largest.prompt) + 1) / 2, float(largest.beside), context, 0.0
    decodes = 0.0, 0.0, float(largest.decodes), context, 0.0
    return [made_of for made_of in (prompts, decodes) if made_of[0] or made_of[2]]


def replica_work(
    design: Design, load: ServingLoad, pool: DiePool, made_of: Composition, *, attends: bool = True, pads: bool = True
) -> ReplicaWork:
    """Work of the fullest attention replica in an iteration, and the division of the model for it.

    Its requests are padded as recorded graphs run it if `pads`.

    A micro-batch has no more parts than the fullest replica has requests, since empty parts take no time.
    """
    counts = composition_counts(made_of)
    phase = "prefill" if counts[0] else "decode"
    plan = phase if pool.both else pool.phase
    split = phase_split_of_pool(design, pool, plan)
    split = split._replace(halves=int(_parts(split, counts[0], counts[3])))
    sizes = dies_terms(design.mapping).sizes if pads else ()
    return make_iteration(load, split, phase, plan, *counts, attends=attends)._replace(graph_sizes=sizes), split


def _parts(split: DieSplit, prompts: Any, decodes: Any) -> Any:
    """Parts of a micro-batch that take turns: no more than the fullest replica has requests, since empty ones take no time."""
    return minimum(split.halves, maximum(ceil_div(maximum(prompts, decodes), split.copies), 1))


def iteration_overheads(
    design: Design, load: ServingLoad, pool: DiePool, prompts: Any, decodes: Any, kernels: Any
) -> OverheadTimes:
    """Time of iterations beyond their kernels, from the prompts and decodes of all attention replicas.

    Leaves broadcast. Each replica's engine has a share of the requests; an iteration takes as long as that of the fullest one.
    """
    stack = design.mapping.stack
    if stack is None or stack.iteration is None:
        return OverheadTimes()

    def of_phase(phase: str) -> OverheadTimes:
        split = phase_split_of_pool(design, pool, phase if pool.both else pool.phase)
        mine, rows = 1.0 * ceil_div(decodes, split.copies), 1 + load.guesses
        of_prompts = 1.0 * (phase == "prefill")
        step = StepCounts(phase, mine * rows, mine * rows, 0.0, 0.0, load.guesses, decodes=of_prompts * mine)
        return replica_overheads(design.mapping, load.model, step, _parts(split, prompts, decodes), kernels)

    with_prompts, alone = of_phase("prefill"), of_phase("decode")
    return OverheadTimes(*(where(prompts > 0, *both) for both in zip(with_prompts, alone, strict=True)))


def composition_counts(made_of: Composition) -> tuple[int, int, int, int, float]:
    """Counts of a composition: prompts, new and earlier tokens of each, decodes, and context of each."""
    each = (value if isinstance(value, float) else float(np.squeeze(value)) for value in made_of[:4])
    tokens, context, requests, positions = each
    decodes, prompts, own, past, new = round(requests), 0, 0, 0, round(tokens)
    if new > 0:  # as `prompts.alike` has them, of plain numbers: tables of dies ask thousands of times
        prompts = max(round(new / max(2 * context - 1, 1.0)), 1)
        own, past = math.ceil(new / prompts), round(max(context - (new / prompts + 1) / 2, 0.0))
    return prompts, own, past, decodes, max(positions, 1.0)


def whole_prompts(pool: DiePool, made_of: Composition) -> list[tuple[float, Composition]]:
    """Iterations of whole prompts with the given mean composition, each with its frequency.

    An attention replica gets whole prompts, and all others wait for the fullest. A prompt and a half therefore
    costs between one and two prompts with as many tokens and pairs. A chunk that starts inside a prompt is returned
    unchanged.

    >>> from types import SimpleNamespace
    >>> whole_prompts(SimpleNamespace(slots=4), (300.0, 113.0, 0.0, 0.0, 0.0))
    [(0.5, (300.0, 150.5, 0.0, 0.0, 0.0)), (0.5, (300.0, 75.5, 0.0, 0.0, 0.0))]
    """
    tokens, context, *rest = (float(np.squeeze(value)) for value in made_of)
    own = max(2 * context - 1, 1.0)  # tokens of a prompt
    prompts = tokens / own
    fewer = math.floor(prompts + ROUNDED)
    if pool.slots == 1 or fewer < 1 or abs(prompts - fewer) <= ROUNDED:
        return [(1.0, made_of)]
    ends = tokens / fewer, tokens / (fewer + 1)
    share = (own - ends[1]) / (ends[0] - ends[1])
    return [(part, (tokens, (each + 1) / 2, *rest)) for part, each in zip((share, 1 - share), ends, strict=True)]


def whole_requests(made_of: Composition) -> list[tuple[float, Composition]]:
    """Iterations of whole decoding requests with the given mean, each with its frequency.

    Iterations of nothing are left out.

    A mean of one and a half decodes is as many iterations of one as of two.

    >>> whole_requests((0.0, 0.0, 1.5, 100.0, 0.0))
    [(0.5, (0.0, 0.0, 1.0, 100.0, 0.0)), (0.5, (0.0, 0.0, 2.0, 100.0, 0.0))]
    >>> whole_requests((0.0, 0.0, 0.25, 100.0, 0.0))
    [(0.25, (0.0, 0.0, 1.0, 100.0, 0.0))]
    """
    tokens, context, decodes, *rest = (float(np.squeeze(value)) for value in made_of)
    fewer = math.floor(decodes + ROUNDED)
    if abs(decodes - fewer) <= ROUNDED:
        return [(1.0, made_of)]
    shares = (fewer + 1 - decodes, float(fewer)), (decodes - fewer, fewer + 1.0)
    return [(share, (tokens, context, count, *rest)) for share, count in shares if tokens or count]


def make_iteration(
    load: ServingLoad, split: DieSplit, phase: str, plan: str, prompts: int, own: int, past: int, decodes: int, context: float,
    *, attends: bool = True,
) -> IterationWork:  # fmt: skip
    """Iteration work of the fullest attention replica, with requests dealt to replicas in rotation."""
    slots, rows = split.copies * split.halves, 1 + load.guesses

    def dealt(number: int) -> int:
        return ((prompts - number + slots - 1) // slots) * own + ((decodes - number + slots - 1) // slots) * rows

    most, total = dealt(0), prompts * own + decodes * rows
    uneven = most * slots != total
    sent: tuple[float, ...] = ()
    if uneven:
        # copies up to the last one that has another prompt, or another decoding request, are alike
        ends = sorted({0, min(prompts % slots, split.copies), min(decodes % slots, split.copies), split.copies})
        sent = tuple(chain.from_iterable((dealt(first) / most,) * (end - first) for first, end in pairwise(ends)))
    return IterationWork(
        load.model, phase, plan, -(-prompts // slots), own, past, -(-decodes // slots), context, load.guesses, attends,
        total / slots if uneven else 0.0, sent,
    )  # fmt: skip


def whole_iteration(load: ServingLoad, made_of: Composition) -> IterationWork:
    """Work of an iteration of the whole model, undivided and without padding."""
    die_split, counts = DieSplit(1, 1, 1, 1, 1, 0, 1), composition_counts(made_of)
    return make_iteration(load, die_split, "prefill" if counts[0] else "decode", "", *counts)


def useful_operations_of(work: IterationWork) -> float:
    """Useful operations of an iteration. [op]"""
    return sum(
        part.times * float(useful_flop(operator))
        for part in transformer_segments(work.model, work.step())
        for operator in part.operators
    )


def part_time_tables(
    design: Design, load: ServingLoad, pool: DiePool, seconds: Callable[[Sequence[ReplicaWork | None]], Sequence[float]]
) -> Callable[..., Array]:
    """Function from iteration compositions to seconds, by tables of prompts, decodes and extra tokens.

    Args:
        design, load, of: as they are.
        seconds: of the kernels of each of some iterations; None is one of nothing.
    """
    rows = 1 + load.guesses

    def prompts(tokens: float, context: float) -> ReplicaWork | None:
        return replica_work(design, load, pool, (tokens, context, 0.0, 0.0, 0.0)) if tokens else None

    def decodes(requests: float, context: float, attends: bool = True) -> ReplicaWork | None:
        return replica_work(design, load, pool, (0.0, 0.0, requests, context, 0.0), attends=attends) if requests else None

    def unattended(requests: float) -> ReplicaWork | None:
        return decodes(requests, 1.0, False)

    def more(tokens: float) -> ReplicaWork:
        """Of so many tokens whose attention, and what else has a form of its own, is said by itself, by the plan of prefill."""
        plan = "prefill" if pool.both else pool.phase
        split = phase_split_of_pool(design, pool, plan)
        each = int(ceil_div(max(tokens, 1.0), split.copies * split.halves))
        return IterationWork(load.model, "prefill", plan, 1, each, 0, 0, 1.0, 0, False), split

    each = {make_work: partial(_each_combination, seconds, make_work, {}) for make_work in (prompts, decodes, unattended, more)}

    def pricing(prompt: Array, prompt_context: Array, requests: Array, context: Array, spilled: Array) -> Array:
        new, own, read = np.rint(prompt), np.rint(requests), np.maximum(context, 1.0)
        chunks, tokens = each[prompts](new, prompt_context), each[decodes](own, read)
        found_chunks = chunks + tokens
        if np.any(new) and np.any(own):
            attention = tokens - each[unattended](own)
            beside = each[more](new + rows * own) - each[more](new) + attention
            found_chunks = np.where((new > 0) & (own > 0), chunks + beside, found_chunks)
        prompts_of = np.maximum(np.rint(new / np.maximum(2 * prompt_context - 1, 1.0)), 1.0) * (new > 0)
        overheads = iteration_overheads(design, load, pool, prompts_of, own, found_chunks)
        return np.where((new > 0) | (own > 0), overheads.iteration_seconds(found_chunks), np.nan)

    return pricing


def _each_combination(
    seconds: Callable[[Sequence[ReplicaWork | None]], Sequence[float]],
    make_work: Callable[..., ReplicaWork | None],
    known: dict[tuple[float, ...], float],
    *counts: Array,
) -> Array:
    """Of counts that broadcast together, each combination of them once, all that are not known at a time."""
    together = np.broadcast_arrays(*counts)
    compositions, place = np.unique(np.stack([np.ravel(count) for count in together], 1), axis=0, return_inverse=True)
    rows = list(map(tuple, compositions.tolist()))
    new = [row for row in rows if row not in known]
    known.update(zip(new, seconds([make_work(*row) for row in new]), strict=True))
    return np.array([known[row] for row in rows])[np.ravel(place)].reshape(together[0].shape)
