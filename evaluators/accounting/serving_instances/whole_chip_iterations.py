"""Iterations of tiles that all run one operator at a time: calls, prices and timed blocks.

A price is the sum of parts: products and rows of all tokens, the head, and attention of prompts and of decodes, each by its own
counts. Where tilings of attention are left open, those of a few requests are tried, and each call has the quickest.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.serving_instances import (
    SERVING_PREFIXES,
    Composition,
    design_count,
)
from dse.evaluators.accounting.serving_instances import count_interpolation as counted
from dse.evaluators.accounting.serving_instances.count_interpolation import evaluate_counts
from dse.evaluators.accounting.serving_instances.largest_iteration import LargestIteration, largest_iteration, pool_roles
from dse.evaluators.accounting.serving_instances.prompt_table_points import (
    equal_prompts,
    integer_table_points,
)
from dse.evaluators.accounting.serving_instances.served_work import SPENT_COLUMNS
from dse.evaluators.accounting.serving_instances.shared_part_times import SharedTimes
from dse.evaluators.accounting.tile_operators import (
    JOB_TYPES,
    hbm_bytes_by_use,
    jobs_in_order,
    local_memory_by_kind,
    sum_blocks,
)
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import cost_model
from dse.evaluators.cost_models.analytical_attention import AttentionJob
from dse.evaluators.cost_models.cached_job import uncached_job
from dse.evaluators.cost_models.cached_operators import CachedShares, cached_shares
from dse.evaluators.cost_models.call_cost import TimedBlock, block_timeline
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.layouts.attention_requests import RequestsOfReach, chunk_requests, newest_token_requests, no_requests
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.tensor_formats import activation_bytes
from dse.evaluators.layouts.whole_chip import ChipContext, attention_calls, chip_blocks, phase_only_blocks
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, max_prompt_tokens, policies_with_batch
from dse.evaluators.silicon.area import divide_mesh
from dse.evaluators.silicon.core_repair import settle_detours
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import fingerprint, has_equal_leaves, replace_leaves
from dse.space.layers import per_reach
from dse.space.main_memory import CAPACITY_LIMITS
from dse.space.mapping import Mapping
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.workload import ServingLoad

SEVERAL = 16
"""Concurrent prompts for which tilings are searched, besides a single one."""

FEWER = 4
"""Tilings are searched at powers of this number of requests; other counts use one of the two neighbours'."""

SLICES = ("rows", "cols", "queries", "keys")
"""What is chosen where a plan leaves it open."""

PARTS = 256
"""Parts of designs and phases whose shared times are kept."""


class IterationPrices(NamedTuple):
    """What parts of an iteration spend, each shape priced once; shapes (SPENT, designs).

    Attributes:
        layers: all but the head and what prompts and decodes have by themselves, of so many tokens.
        head: of so many requests that get a token.
        prompts: attention in all layers, and what else is of prompts alone, of (requests, queries, keys, lengths of two prompts
            whose slices are tried).
        tokens: likewise of one token of each, of (requests, keys).
        filled: of an iteration, local memory of a tile in use, shape (KINDS, designs). [B]
    """

    layers: Callable[[int], Array]
    head: Callable[[int], Array]
    prompts: Callable[[int, int, int, int, int], Array]
    tokens: Callable[[int, int], Array]
    filled: Callable[[Composition], Array]


def price_seconds(spent: Callable[..., Array], several: int, *counts: Array) -> Array:
    """Seconds alone of what compositions spend; of one design, without its axis."""
    amounts = spent(*counts)[..., 0, :]
    return amounts if several else amounts[..., 0]


def price_by_tables(design: Design, load: ServingLoad, fidelity: str, axes: Sequence[Array]) -> Callable[..., Array]:
    """Costs of compositions by tables of their parts: attention, and all else by tokens or requests.

    Counts broadcast together; what is found has axes of `SPENT_COLUMNS` and of designs more.
    """
    lengths, first = axes[0][1:], share_prices(design, load, "prefill", fidelity)
    alone_by = _phase_of_price(design, has_prompts=False)
    then = first if alone_by == "prefill" else share_prices(design, load, alone_by, fidelity)
    between = partial(counted.interpolate_counts, counted.sampled_counts(axes))

    def price_compositions(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
        new, at_once = np.rint(prompt), np.rint(decodes)
        count, own, past = equal_prompts(np.maximum(new, 1.0), prompt_context)
        keys = np.rint(own) + np.rint(past)
        cached = np.ceil(np.maximum(context, 1.0))
        near, long = (_nearest_length(lengths, count) for count in (np.rint(own), keys))
        prompts = evaluate_counts(first.prompts, count, np.rint(own), keys, near, long)
        decoding, has_prompts = (at_once > 0)[..., None, None], (new > 0)[..., None, None]
        tokens = np.where(decoding, evaluate_counts(then.tokens, at_once, cached), 0.0)
        alone = np.where(decoding, evaluate_counts(then.layers, at_once) + evaluate_counts(then.head, at_once) + tokens, 0.0)
        beside = tokens if first is then else np.where(decoding, evaluate_counts(first.tokens, at_once, cached), 0.0)
        # compositions that a table is compared with are priced as they are
        amounts = evaluate_counts if prompt.ndim == 1 else between
        mixed = amounts(first.layers, new + at_once) + amounts(first.head, count + at_once) + prompts + beside
        return np.where(has_prompts, mixed, np.where(decoding, alone, np.nan))

    return price_compositions


def _nearest_length(lengths: Array, tokens: Array) -> Array:
    """Length with the nearest ratio to each token count, among some lengths."""
    places = np.searchsorted(np.sqrt(lengths[1:] * lengths[:-1]), np.maximum(tokens, 1.0))
    return np.asarray(lengths[places])


@partial(memoize_by_identity, few=PARTS)
def share_prices(design: Design, load: ServingLoad, phase: str, fidelity: str) -> IterationPrices:
    """Prices of parts that designs share, whatever their serving settings.

    Products and rows are priced once for all attention.
    """
    apart, whole = _known_prices(design, load, phase, fidelity, "attention."), _known_prices(design, load, phase, fidelity)
    largest = _known_prices(design, load, phase, fidelity, whats=len(JOB_TYPES))
    return IterationPrices(
        lambda *counts: apart.spent_for(("layers", counts), lambda prices: prices.layers(*counts)),
        lambda *counts: apart.spent_for(("head", counts), lambda prices: prices.head(*counts)),
        lambda *counts: whole.spent_for(("prompts", counts), lambda prices: prices.prompts(*counts)),
        lambda *counts: whole.spent_for(("tokens", counts), lambda prices: prices.tokens(*counts)),
        lambda *counts: largest.spent_for(("filled", counts), lambda prices: prices.filled(*counts)),
    )


def _known_prices(
    design: Design,
    load: ServingLoad,
    phase: str,
    fidelity: str,
    without: str = "mapping.serving.",
    whats: int = len(SPENT_COLUMNS),
) -> SharedTimes[IterationPrices]:
    """Shared times of designs for a phase, ignoring settings below an address of its plan."""
    (other,) = {"prefill", "decode"} - {phase}
    # what a cache has depends on how many requests there are
    cached = any(find_cached_shares(design, load).values())
    elsewhere = () if cached else (*SERVING_PREFIXES, *CAPACITY_LIMITS, f"mapping.{other}.", f"mapping.{phase}.{without}")
    beside = fingerprint(load.model), phase, fidelity
    return SharedTimes(design, lambda part: _price_parts(part, load, phase, fidelity), elsewhere, *beside, whats=whats)


class _PartCalls(NamedTuple):
    """Calls of a part of an iteration.

    Attributes:
        blocks: that are tiled as they are quickest by themselves.
        tried: of each further call, how often it runs and how it may be tiled.
    """

    blocks: tuple[CallBlock, ...] = ()
    tried: tuple[tuple[tuple[float, KernelCall], ...], ...] = ()


class _IterationParts(NamedTuple):
    """Calls of the parts of an iteration; what parts there are and what they depend on is as of `IterationPrices`."""

    layers: Callable[[int], _PartCalls]
    head: Callable[[int], _PartCalls]
    prompts: Callable[[int, int, int, int, int], _PartCalls]
    tokens: Callable[[int, int], _PartCalls]


def _iteration_parts(design: Design, load: ServingLoad, phase: str) -> _IterationParts:
    """Calls of the parts of iterations by the plan of a phase; leaves of one design, or of several."""
    (chip, mapping), model = divided_chip_and_mapping(design), load.model
    activation_bytes(mapping)  # refuses what tiles do not take
    plan = getattr(mapping, phase)
    context = ChipContext(model, chip, plan, mapping.precision, {}, find_cached_shares(design, load)[phase])
    forms = {phase: transformer_segments(model, make_token_step(phase, 1, 1)) for phase in ("prefill", "decode")}
    two = any(operator.alone for part in forms["decode"] for operator in part.operators)

    def attention(form: str, requests: RequestsOfReach, cuts: Sequence[ChipContext], alone: IterationWork) -> _PartCalls:
        tried = zip(*(attention_calls(forms[form], requests, cut) for cut in cuts), strict=True)
        return _PartCalls(phase_only_blocks(alone.step(), context) if two else (), tuple(tried))

    def cut(form: str, requests: RequestsOfReach) -> list[ChipContext]:
        """As the slices are that suit some requests."""
        calls = attention_calls(forms[form], requests, context)
        tilings = [
            job.tiling
            for job in (jobs_in_order(uncached_job(part.job))[0] for _, part in calls)
            if isinstance(job, AttentionJob)
        ]
        names = (*SLICES, *(("kv_splits",) if find_dataflow(plan.attention.dataflow).split else ()))
        changes = [{f"attention.{name}": getattr(tiling, name) for name in names} for tiling in tilings]
        return [context._replace(plan=replace_leaves(plan, change)) for change in changes]

    @cache
    def slice_prompts(length: int) -> list[ChipContext]:
        return [plan for requests in (1, SEVERAL) for plan in cut("prefill", chunk_requests(model, requests, length, length))]

    @cache
    def slice_decodes(requests: int, keys: int) -> list[ChipContext]:
        return cut("decode", newest_token_requests(model, requests, float(keys)))

    def blocks(tokens: int, requests: int, *, head: bool) -> _PartCalls:
        """Blocks of the head, or all others."""
        step = make_token_step(phase, tokens, requests)
        return _PartCalls(tuple(block for block in chip_blocks(step, no_requests, context) if (block.name == "head") == head))

    def prompts(requests: int, queries: int, keys: int, length: int, longer: int) -> _PartCalls:
        # a chunk has few queries and, after what is before it, many keys: slices of either may suit it
        cuts = slice_prompts(length) + (slice_prompts(longer) if longer > length else [])
        alone = IterationWork(model, "prefill", phase, requests, queries, keys - queries, 0, 0)
        return attention("prefill", chunk_requests(model, requests, queries, keys), cuts, alone)

    def tokens(requests: int, keys: int) -> _PartCalls:
        fewer = FEWER ** int(np.log(requests) / np.log(FEWER) + 1e-9)
        cuts = [
            cut
            for many in sorted({fewer, requests if requests == fewer else FEWER * fewer})
            for cut in slice_decodes(many, keys)
        ]
        alone = IterationWork(model, "decode", phase, 0, 0, 0, requests, 1.0)
        return attention("decode", newest_token_requests(model, requests, float(keys)), cuts, alone)

    return _IterationParts(
        lambda count: blocks(count, 1, head=False), lambda count: blocks(1, count, head=True), prompts, tokens
    )


def _price_parts(design: Design, load: ServingLoad, phase: str, fidelity: str) -> IterationPrices:
    machine, reader = tile_core_machine(divided_chip_and_mapping(design)[0]), cost_model(fidelity)
    designs, parts = max(design_count(design), 1), _iteration_parts(design, load, phase)

    def sum_part(part: _PartCalls) -> Array:
        """Each call as it is quickest, design by design."""
        amounts = sum_spent(design, designs, block_timeline(part.blocks, machine, reader))
        each = [counted.fastest_per_design([spent_on(times, call) for times, call in calls]) for calls in part.tried]
        return np.asarray(np.sum([amounts, *each], axis=0))

    def spent_on(times: float, call: KernelCall) -> Array:
        cost = reader.job(call.job)
        assert cost.activity is not None
        return _together_spent(design, designs, times * cost.seconds, cost.activity * times, times * call.flop)

    def full(made_of: Composition) -> Array:
        kinds = local_memory_by_kind(_mean_blocks(design, load, made_of))
        return np.array([np.broadcast_to(nbytes, designs) for _, nbytes in kinds])

    def remember(part: Callable[..., _PartCalls]) -> Callable[..., Array]:
        return cache(lambda *counts: sum_part(part(*counts)))

    return IterationPrices(remember(parts.layers), remember(parts.head), remember(parts.prompts), remember(parts.tokens), full)


@partial(memoize_by_identity, few=PARTS)
def _kept_parts(design: Design, load: ServingLoad, phase: str) -> _IterationParts:
    """Parts of iterations of one design, whose tilings are searched once."""
    return _iteration_parts(design, load, phase)


def time_iteration_blocks(
    design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
) -> list[TimedBlock]:
    """Blocks of a mean iteration of one design with their times, tiled as in its price.

    Their sum is the price of a table for whole counts. A fractional number of decodes is interpolated between its neighbours.

    Args:
        design, load, fidelity: as they are.
        pool: of which it is.
        made_of: tokens of prompts and their mean context, decodes and context of each.
    """
    prompt, prompt_context, decodes, context = (float(np.squeeze(count)) for count in made_of[:4])
    parts = _kept_parts(design, load, _phase_of_price(design, has_prompts=prompt > 0))
    machine, reader = tile_core_machine(divided_chip_and_mapping(design)[0]), cost_model(fidelity)
    timed, new, count, low = list[TimedBlock](), int(np.rint(prompt)) if prompt > 0 else 0, 0, int(decodes)

    def add(part: _PartCalls, share: float) -> None:
        chosen = [min(calls, key=lambda tried: float(tried[0] * reader.job(tried[1].job).seconds)) for calls in part.tried]
        alone = (CallBlock(call.part, (call,), (0,), (0,), times) for times, call in chosen)
        blocks = [block._replace(times=block.times * share) for block in (*part.blocks, *alone)]
        timed.extend(block_timeline(blocks, machine, reader))

    if prompt > 0:
        prompts = equal_prompts(np.array([max(new, 1.0)]), np.array([prompt_context]))
        count, own, past = (int(np.rint(value[0])) for value in prompts)
        near, long = (int(_nearest_length(_prompt_lengths(design, load, pool), np.array([n]))[0]) for n in (own, own + past))
        add(parts.prompts(count, own, own + past, near, long), 1.0)
    for at_once, share in ((low, 1 - (decodes - low)), (low + 1, decodes - low)):
        if share == 0 or not (count or at_once):
            continue
        add(parts.layers(max(new, count) + at_once), share)
        add(parts.head(count + at_once), share)
        if at_once:
            add(parts.tokens(at_once, int(np.ceil(max(context, 1.0)))), share)
    return timed


def order_operators(model: Model) -> dict[tuple[str, str], int]:
    """Places of operators in a pass through the model, by the names of segment and operator."""
    parts = [with_router_operators(model, part) for part in transformer_segments(model, make_token_step("decode", 1, 1))]
    names = dict.fromkeys((part.name, operator.name) for part in parts for operator in part.operators)
    return {name: place for place, name in enumerate(names)}


def _phase_of_price(design: Design, *, has_prompts: bool) -> str:
    """Phase by whose plan an iteration is priced: plans that are equal are one, unless a cache has other contents by phase."""
    mapping = design.mapping
    same_plan = design.chip.l2 is None and has_equal_leaves(mapping.prefill, mapping.decode)
    return "prefill" if has_prompts or same_plan else "decode"


def _prompt_lengths(design: Design, load: ServingLoad, pool: int) -> Array:
    """Prompt lengths whose tilings are searched: those of the pool's table."""
    rule, batch = policies_with_batch(design.mapping.serving)[pool]
    return np.asarray(make_table_points(load, rule, batch)[0][1:])


def make_table_points(load: ServingLoad, rule: SchedulingPolicy, batch: int) -> list[Array]:
    """Points of a pool's table of iteration times."""
    return integer_table_points(load, max_prompt_tokens(rule, batch, load.longest), batch)


def sum_spent(design: Design, designs: int, blocks: list[TimedBlock]) -> Array:
    """What blocks spend, shape (SPENT, designs)."""
    return _together_spent(design, designs, *sum_blocks(blocks))


def _together_spent(design: Design, designs: int, seconds: Any, activity: Activity, operations: float) -> Array:
    chip, mapping = divided_chip_and_mapping(design)
    joules = dynamic_energy(activity, chip, activation_bytes(mapping))
    amounts = (seconds, joules, activity.memory_bytes, activity.hop_bytes, operations)
    return np.array([np.broadcast_to(value, designs) for value in amounts])


def _mean_blocks(design: Design, load: ServingLoad, made_of: Composition) -> list[CallBlock]:
    """Blocks of a mean iteration; a fractional number of decodes is interpolated between its neighbours."""
    (chip, mapping), model = divided_chip_and_mapping(design), load.model
    prompt, prompt_context, decodes, context = made_of[:4]
    blocks: list[CallBlock] = []
    plain = {
        phase: ChipContext(model, chip, getattr(mapping, phase), mapping.precision, {}, shares)
        for phase, shares in find_cached_shares(design, load).items()
    }
    count, own, past, low = 0, 0, 0, int(decodes)
    if prompt > 0:
        prompts = equal_prompts(np.array([max(prompt, 1.0)]), np.array([prompt_context]))
        count, own, past = (int(np.rint(value[0])) for value in prompts)
    for at_once, share in ((low, 1 - (decodes - low)), (low + 1, decodes - low)):
        if share == 0 or not (count or at_once):
            continue
        phase = "prefill" if count else "decode"
        (turn,) = IterationWork(model, phase, phase, count, own, past, at_once, float(context)).turns()
        blocks += [block._replace(times=block.times * share) for block in chip_blocks(turn.at, turn.attend, plain[phase])]
    return blocks


def make_token_step(phase: str, tokens: float, requests: float) -> StepCounts:
    """Counts of an iteration whose attention is given separately."""
    return StepCounts(phase, float(tokens), float(requests), 0.0, 0.0)


def count_stored_bytes(design: Design, load: ServingLoad, requests: int) -> dict[str, tuple[tuple[str, float], ...]]:
    """By phase, bytes in HBM in the largest iteration, with so many of the longest requests."""
    precision, longest = divided_chip_and_mapping(design)[1].precision, load.longest - 1
    cached = per_reach(load.model, lambda reach: float(reach.kept_positions(longest)) * requests)
    iterations = find_largest_iterations(design, load)
    tokens = {
        "prefill": max(iteration.prompt_tokens for iteration in iterations),
        "decode": max(iteration.decode_tokens for iteration in iterations),
    }
    batch = max(float(iteration.requests) for iteration in iterations)
    return {
        phase: hbm_bytes_by_use(
            load.model, make_token_step(phase, count, min(batch, count)), cached, float(requests), precision
        )
        for phase, count in tokens.items()
    }


def find_cached_shares(design: Design, load: ServingLoad) -> dict[str, CachedShares | None]:
    """Shares that a cache in front of main memory has, by phase, with a full batch of longest requests."""
    chip, mapping = divided_chip_and_mapping(design)
    if chip.l2 is None:
        return dict.fromkeys(("prefill", "decode"))
    stored = count_stored_bytes(design, load, int(mapping.serving.max_batch_size))
    return {phase: cached_shares(chip, nbytes) for phase, nbytes in stored.items()}


@memoize_by_identity
def find_largest_iterations(design: Design, load: ServingLoad) -> list[LargestIteration]:
    """Largest iteration of each pool of chips."""
    serving = divided_chip_and_mapping(design)[1].serving
    pools = zip(policies_with_batch(serving), pool_roles(serving), strict=True)
    return [largest_iteration(rule, load, batch, role) for (rule, batch), role in pools]


def divided_chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    """Chip whose mesh is one die's, with detours around broken cores, and the mapping."""
    return settle_detours(divide_mesh(design.chip)), design.mapping
