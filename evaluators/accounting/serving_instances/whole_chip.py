"""Tiles that all run one operator at a time and serve requests: an instance is one chip.

An iteration is one forward pass through all operators, prompts and decodes together: products and rows over the tokens
of both, which read weights once, and attention of each kind separately. Iterations with prompts use the plan of
prefill, others the plan of decode. Latent attention and recurrent states are computed otherwise where nothing is
prefilled: parts that only prompts or only decodes need run separately in the same forward pass. Latents before a chunk
are expanded again. Prompts are taken as whole and equal as far as their tokens and mean context allow
(`prompt_table_points.py`).

Where tilings of attention are left open, the tiling of one or several prompts serves all prompts of about that length,
and the tiling of prompts as long as a chunk's whole context serves the chunk. Decodes use tilings that suit a few more
or fewer requests with as many keys. Chips have no links to others: KV caches go by the host.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.breakdown import BreakdownRow, scale_row
from dse.evaluators.accounting.memory_contents import MemoryContents, main_memory_contents, memory_limits, request_room
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.serving_instances import (
    SERVING_PREFIXES,
    Composition,
    IterationCounts,
    ServingInstance,
    design_count,
    iteration_time_key,
)
from dse.evaluators.accounting.serving_instances import count_interpolation as counted
from dse.evaluators.accounting.serving_instances.count_interpolation import evaluate_counts
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart, groups_with_equal_serving
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout
from dse.evaluators.accounting.serving_instances.lower_bounds import (
    WorkLowerBounds,
    budget_lanes,
    concurrent_requests,
    load_macs,
    prefill_flop_per_token,
    weight_bytes_read,
)
from dse.evaluators.accounting.serving_instances.prompt_table_points import (
    equal_prompts,
    integer_table_points,
    kv_host_bytes,
)
from dse.evaluators.accounting.serving_instances.served_work import SPENT_COLUMNS, ServedWork, TransferWork, work_of_costs
from dse.evaluators.accounting.serving_instances.shared_part_times import SharedTimes, collect_requests
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.tile_operators import (
    JOB_TYPES,
    group_limits,
    hbm_bytes_by_use,
    jobs_in_order,
    local_memory_by_kind,
    local_memory_contents,
    sum_blocks,
)
from dse.evaluators.accounting.usage import PeakRates, fastest_product_rate, tile_peak_rates
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import cost_model
from dse.evaluators.cost_models.analytical_attention import AttentionJob
from dse.evaluators.cost_models.cached_job import uncached_job
from dse.evaluators.cost_models.cached_operators import CachedShares, cached_shares
from dse.evaluators.cost_models.call_cost import TimedBlock, block_timeline
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.layouts.attention_requests import RequestsOfReach, chunk_requests, newest_token_requests, no_requests
from dse.evaluators.layouts.micro_batches import IterationWork
from dse.evaluators.layouts.tensor_formats import activation_bytes
from dse.evaluators.layouts.whole_chip import ChipContext, attention_calls, chip_blocks, phase_only_blocks
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.kv_memory import RequestMemory, request_memory
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens, policies_with_batch
from dse.evaluators.silicon.area import divide_mesh
from dse.evaluators.silicon.core_repair import settle_detours
from dse.evaluators.silicon.energy import dynamic_energy, host_transfer_energy
from dse.space.array_math import Array, minimum
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import fingerprint, has_equal_leaves, replace_leaves
from dse.space.layers import per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import CAPACITY_LIMITS, main_memory
from dse.space.mapping import Mapping
from dse.space.memoize import memoize_by_identity
from dse.space.serving_plan import is_disaggregated, pool_phases, served_chips
from dse.space.workload import ServingLoad

ERROR_SAMPLES = 20
"""Compositions at which a table's error is measured: each needs a tiling search for every operator."""

SEVERAL = 16
"""Concurrent prompts for which tilings are searched, besides a single one."""

FEWER = 4
"""Tilings are searched at powers of this number of requests; other counts use one of the two neighbours'."""

SLICES = ("rows", "cols", "queries", "keys")
"""What is chosen where a plan leaves it open."""


class WholeChipServing(InstanceLayout):
    """Instances of chips of tiles that all run one operator at a time."""

    MERGEABLE_LEAVES = ()
    SHARES_TIMES = True
    POWER_ONE_BY_ONE = True

    def mergeable_options(self, design: Design) -> tuple[str, ...]:
        """Options in which designs of one group may differ: the dataflow of systolic arrays."""
        return () if _chip_and_mapping(design)[0].tile.matrix.dataflow == "ce" else ("chip.tile.matrix.dataflow",)

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of main memory, and of a tile's local memory while each kind of operator runs, in both phases."""
        chip, contents = _chip_and_mapping(design)[0], [*_main_contents(design, load)]
        for phase, made_of in _largest_by_phase(design, load).items():
            contents += local_memory_contents(chip, phase, _filled_bytes(design, load, phase, made_of))
        return contents

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of tile groups."""
        return group_limits(*_chip_and_mapping(design))

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool of chips."""
        mapping = _chip_and_mapping(design)[1]
        free = reduce(minimum, map(request_room, _main_contents(design, load)))
        room, instances = _request_memory(design, load), []
        for rule, batch in policies_with_batch(mapping.serving):
            axes = integer_table_points(load, max_prompt_tokens(rule, batch, load.longest), batch)
            key = "" if design_count(design) else iteration_time_key(design, load, fidelity)
            pricing = _table_pricing(design, load, fidelity, axes)
            instances.append(
                ServingInstance(
                    partial(_seconds_spent, pricing, design_count(design)),
                    free,
                    room,
                    lambda *largest, axes=axes: axes,
                    ERROR_SAMPLES,
                    key,
                    more=pricing,
                )
            )
        return tuple(instances)

    def request_limit_times(self, design: Design, load: ServingLoad) -> None:
        """Request the times that limits need, so that designs are computed together."""
        with collect_requests():
            for phase, made_of in _largest_by_phase(design, load).items():
                _filled_bytes(design, load, phase, made_of)

    def request_table_times(self, design: Design, load: ServingLoad, fidelity: str) -> None:
        """Request the times that a steady-state table needs, so that designs are computed together."""
        made = self.instances(design, load, fidelity)
        with collect_requests():
            balanced.request_iteration_times(made, design, load)

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds of chips: times of all channels and engines; weights in a cache take no time."""
        chip, mapping = _chip_and_mapping(design)
        brought = main_memory(chip).bandwidth
        decode = weight_bytes_read(load.model, mapping.precision) / brought if chip.l2 is None else 0.0
        prompt = prefill_flop_per_token(load.model) / fastest_product_rate(chip)
        joules = dynamic_energy(Activity(macs=load_macs(load)), chip, activation_bytes(mapping))
        return WorkLowerBounds(
            self.device_count(design), decode=decode, prompt=prompt, lanes=budget_lanes(mapping.serving), joules=joules
        )

    def bound_parts(self, design: Design) -> list[DesignPart]:
        """Rows with equal serving settings."""
        return list(groups_with_equal_serving(design))

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits that need no iteration times: main memory, and tile groups."""
        return [*memory_limits(_main_contents(design, load)), *self.structural_limits(design, load)]

    def request_capacity(self, design: Design, load: ServingLoad) -> Any:
        """Requests for which main memory has room beside the largest iterations."""
        free = reduce(minimum, map(request_room, _main_contents(design, load)))
        return concurrent_requests(design.mapping.serving, free, _request_memory(design, load), load.longest)

    def decode_step_seconds(self, design: Design, load: ServingLoad, context: float) -> Any:
        """Time of an iteration that decodes one request at a context length; larger batches take no less. [s]"""
        if design.chip.l2 is not None:  # what a cache has depends on how many requests there are
            return 0.0
        prices = _shared_prices(design, load, "decode", "analytical")
        layers = prices.layers(1) + prices.head(1) + prices.tokens(1, int(np.ceil(context)))
        return layers[0]

    def prefill_token_seconds(self, design: Design, load: ServingLoad) -> Any:
        """Least time per prompt token, from the steady-state table's times of products and rows. [s]"""
        mapping = _chip_and_mapping(design)[1]
        if _chip_and_mapping(design)[0].l2 is not None or is_disaggregated(mapping.serving):
            return 0.0
        ((rule, batch),), prices = policies_with_batch(mapping.serving), _shared_prices(design, load, "prefill", "analytical")
        most = max_prompt_tokens(rule, batch, load.longest)
        tokens, _, decodes, *_ = steady.coarse_table_points(lambda *_: [np.zeros(1)], load)(
            most, load.longest, batch, load.longest
        )
        known = counted.sampled_counts(integer_table_points(load, most, batch))
        return counted.min_per_token(known, prices.layers, tokens[-1] + decodes[-1])

    def kv_transfer(self, design: Design, load: ServingLoad) -> tuple[RequestMemory, float]:
        """KV transfer by way of the host: time per request, without latency. [s]"""
        return _request_memory(design, load).times(1 / float(_chip_and_mapping(design)[1].serving.host_bandwidth)), 0.0

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[int, ...]:
        """Chips that share a request's KV cache: one."""
        return (1, 1)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one chip: arrays of all tiles, memory channels, and links of the mesh."""
        return tile_peak_rates(design.chip)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations of one design, each computed by itself."""
        spent = np.zeros(len(SPENT_COLUMNS) - 1)
        for pool in done:
            for times, made_of in pool:
                blocks = _iteration_blocks(design, load, made_of, fidelity)
                spent = spent + times * _spent_by_blocks(design, 1, blocks)[1:, 0]
        return work_of_costs(spent)

    def transfer_work(self, design: Design, load: ServingLoad, hosted: Any) -> TransferWork:
        """Work of KV transfers by way of hosts."""
        chip, mapping = _chip_and_mapping(design)
        nbytes = kv_host_bytes(_request_memory(design, load), load, len(pool_phases(mapping.serving)) > 1, hosted)
        return TransferWork(nbytes, host_transfer_energy(nbytes, chip))

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time and energy of an iteration of one design."""
        seconds, joules = _spent_by_blocks(design, 1, _iteration_blocks(design, load, made_of, fidelity))[:2, 0]
        return [(seconds, joules)]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration, one per operator."""
        parts = _iteration_blocks(design, load, made_of, fidelity)
        machine = tile_core_machine(_chip_and_mapping(design)[0])
        breakdown_rows = tiles.breakdown_rows(
            PhaseCost(name="", machine=machine, timed=tuple(parts), seconds=sum_blocks(parts)[0], work=None), fidelity
        )
        return [scale_row(row, times) for row in breakdown_rows]

    def remedy_text(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> str:
        """Remedy text for the most violated limit."""
        return tiles.remedy_text(worst, design)

    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""
        return served_chips(design.mapping.serving)


PARTS = 256
"""Parts of designs and phases whose shared times are kept."""


class _Prices(NamedTuple):
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


def _seconds_spent(spent: Callable[..., Array], several: int, *counts: Array) -> Array:
    """Seconds alone of what compositions spend; of one design, without its axis."""
    amounts = spent(*counts)[..., 0, :]
    return amounts if several else amounts[..., 0]


def _table_pricing(design: Design, load: ServingLoad, fidelity: str, axes: Sequence[Array]) -> Callable[..., Array]:
    """What compositions spend, by tables of a part each: attention, and what depends on tokens or requests alone.

    Counts broadcast together; what is found has axes of `SPENT_COLUMNS` and of designs more.
    """
    mapping = _chip_and_mapping(design)[1]
    lengths, first = axes[0][1:], _shared_prices(design, load, "prefill", fidelity)
    then = first if has_equal_leaves(mapping.prefill, mapping.decode) else _shared_prices(design, load, "decode", fidelity)
    between = partial(counted.interpolate_counts, counted.sampled_counts(axes))

    def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
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

    return pricing


def _nearest_length(lengths: Array, tokens: Array) -> Array:
    """Length with the nearest ratio to each token count, among some lengths."""
    places = np.searchsorted(np.sqrt(lengths[1:] * lengths[:-1]), np.maximum(tokens, 1.0))
    return np.asarray(lengths[places])


@partial(memoize_by_identity, few=PARTS)
def _shared_prices(design: Design, load: ServingLoad, phase: str, fidelity: str) -> _Prices:
    """Shared times of several designs, independent of their serving settings: products and rows once for all attention."""
    apart, whole = _known_prices(design, load, phase, fidelity, "attention."), _known_prices(design, load, phase, fidelity)
    largest = _known_prices(design, load, phase, fidelity, whats=len(JOB_TYPES))
    return _Prices(
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
) -> SharedTimes[_Prices]:
    """Shared times of designs for a phase, ignoring settings below an address of its plan."""
    (other,) = {"prefill", "decode"} - {phase}
    # what a cache has depends on how many requests there are
    cached = any(_cached_by_phase(design, load).values())
    elsewhere = () if cached else (*SERVING_PREFIXES, *CAPACITY_LIMITS, f"mapping.{other}.", f"mapping.{phase}.{without}")
    beside = fingerprint(load.model), phase, fidelity
    return SharedTimes(design, lambda part: _price_parts(part, load, phase, fidelity), elsewhere, *beside, whats=whats)


def _price_parts(design: Design, load: ServingLoad, phase: str, fidelity: str) -> _Prices:
    (chip, mapping), model = _chip_and_mapping(design), load.model
    activation_bytes(mapping)  # refuses what tiles do not take
    plan = getattr(mapping, phase)
    context = ChipContext(model, chip, plan, mapping.precision, {}, _cached_by_phase(design, load)[phase])
    machine, reader = tile_core_machine(chip), cost_model(fidelity)

    def spent(blocks: Sequence[CallBlock]) -> Array:
        return _spent_by_blocks(design, designs, block_timeline(blocks, machine, reader))

    forms = {phase: transformer_segments(model, _step(phase, 1, 1)) for phase in ("prefill", "decode")}
    designs = max(design_count(design), 1)
    two = any(operator.alone for part in forms["decode"] for operator in part.operators)

    def attention_amounts(form: str, requests: RequestsOfReach, cuts: Sequence[ChipContext]) -> Array:
        """Each call as it is quickest."""
        every = list(zip(*(attention_calls(forms[form], requests, cut) for cut in cuts), strict=True))
        each = [counted.fastest_per_design([spent_on(times, call) for times, call in calls]) for calls in every]
        return np.asarray(np.sum(each, axis=0))

    def spent_on(times: float, call: KernelCall) -> Array:
        cost = reader.job(call.job)
        assert cost.activity is not None
        return _together_spent(design, designs, times * cost.seconds, cost.activity * times, times * call.flop)

    def alone(work: IterationWork) -> Array | float:
        return spent(phase_only_blocks(work.step(), context)) if two else 0.0

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
    def sliced(length: int) -> list[ChipContext]:
        return [plan for requests in (1, SEVERAL) for plan in cut("prefill", chunk_requests(model, requests, length, length))]

    @cache
    def decoded(requests: int, keys: int) -> list[ChipContext]:
        return cut("decode", newest_token_requests(model, requests, float(keys)))

    @cache
    def others(tokens: int) -> Array:
        return spent([block for block in chip_blocks(_step(phase, tokens, 1), no_requests, context) if block.name != "head"])

    @cache
    def head(requests: int) -> Array:
        return spent([block for block in chip_blocks(_step(phase, 1, requests), no_requests, context) if block.name == "head"])

    @cache
    def prompts(requests: int, queries: int, keys: int, length: int, longer: int) -> Array:
        # a chunk has few queries and, after what is before it, many keys: slices of either may suit it
        cuts = sliced(length) + (sliced(longer) if longer > length else [])
        amounts = attention_amounts("prefill", chunk_requests(model, requests, queries, keys), cuts)
        return amounts + alone(IterationWork(model, "prefill", phase, requests, queries, keys - queries, 0, 0))

    @cache
    def newest_alone(requests: int) -> Array | float:
        return alone(IterationWork(model, "decode", phase, 0, 0, 0, requests, 1.0))

    @cache
    def tokens(requests: int, keys: int) -> Array:
        fewer = FEWER ** int(np.log(requests) / np.log(FEWER) + 1e-9)
        cuts = [
            cut for many in sorted({fewer, requests if requests == fewer else FEWER * fewer}) for cut in decoded(many, keys)
        ]
        return attention_amounts("decode", newest_token_requests(model, requests, float(keys)), cuts) + newest_alone(requests)

    def full(made_of: Composition) -> Array:
        kinds = local_memory_by_kind(_mean_blocks(design, load, made_of))
        return np.array([np.broadcast_to(nbytes, designs) for _, nbytes in kinds])

    return _Prices(others, head, prompts, tokens, full)


def _spent_by_blocks(design: Design, designs: int, blocks: list[TimedBlock]) -> Array:
    """What blocks spend, shape (SPENT, designs)."""
    return _together_spent(design, designs, *sum_blocks(blocks))


def _together_spent(design: Design, designs: int, seconds: Any, activity: Activity, operations: float) -> Array:
    chip, mapping = _chip_and_mapping(design)
    joules = dynamic_energy(activity, chip, activation_bytes(mapping))
    amounts = (seconds, joules, activity.memory_bytes, activity.hop_bytes, operations)
    return np.array([np.broadcast_to(value, designs) for value in amounts])


def _iteration_blocks(design: Design, load: ServingLoad, made_of: Composition, fidelity: str) -> list[TimedBlock]:
    """Blocks of a mean iteration with their times."""
    return block_timeline(
        _mean_blocks(design, load, made_of), tile_core_machine(_chip_and_mapping(design)[0]), cost_model(fidelity)
    )


def _mean_blocks(design: Design, load: ServingLoad, made_of: Composition) -> list[CallBlock]:
    """Blocks of a mean iteration; a fractional number of decodes is interpolated between its neighbours."""
    (chip, mapping), model = _chip_and_mapping(design), load.model
    prompt, prompt_context, decodes, context = made_of[:4]
    blocks: list[CallBlock] = []
    plain = {
        phase: ChipContext(model, chip, getattr(mapping, phase), mapping.precision, {}, shares)
        for phase, shares in _cached_by_phase(design, load).items()
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


def _step(phase: str, tokens: float, requests: float) -> StepCounts:
    """Counts of an iteration whose attention is given separately."""
    return StepCounts(phase, float(tokens), float(requests), 0.0, 0.0)


@memoize_by_identity
def _main_contents(design: Design, load: ServingLoad) -> list[MemoryContents]:
    """Contents of main memory with the longest request and the largest iteration of each phase."""
    chip = _chip_and_mapping(design)[0]
    return [main_memory_contents(chip, stored_bytes) for stored_bytes in _stored_bytes(design, load, 1).values()]


def _largest_by_phase(design: Design, load: ServingLoad) -> dict[str, Composition]:
    """Iteration with the largest memory need, by phase."""
    prompts, longest = _prompt_tokens(design, load), load.longest - 1
    whole, batch = min(prompts, longest), float(int(_chip_and_mapping(design)[1].serving.max_batch_size))
    return {"prefill": (prompts, (whole + 1) / 2, 0.0, 0.0), "decode": (0.0, 0.0, batch, float(longest))}


def _filled_bytes(design: Design, load: ServingLoad, phase: str, made_of: Composition) -> list[tuple[str, Any]]:
    """By kind of operator, local memory of a tile in use in an iteration. [B]"""
    amounts = _shared_prices(design, load, phase, "analytical").filled(made_of)
    return list(zip(JOB_TYPES, amounts if design_count(design) else amounts[:, 0].tolist(), strict=True))


def _prompt_tokens(design: Design, load: ServingLoad) -> int:
    """The most of an iteration."""
    serving = _chip_and_mapping(design)[1].serving
    return max(max_prompt_tokens(rule, batch, load.longest) for rule, batch in policies_with_batch(serving))


def _stored_bytes(design: Design, load: ServingLoad, requests: int) -> dict[str, tuple[tuple[str, float], ...]]:
    """By phase, bytes in HBM in the largest iteration, with so many of the longest requests."""
    mapping, longest = _chip_and_mapping(design)[1], load.longest - 1
    batch, mixed = int(mapping.serving.max_batch_size), policies_with_batch(mapping.serving)[-1][0].mixed
    cached = per_reach(load.model, lambda reach: float(reach.kept_positions(longest)) * requests)
    tokens = {"prefill": _prompt_tokens(design, load) + batch * mixed, "decode": batch}
    return {
        phase: hbm_bytes_by_use(load.model, _step(phase, count, batch), cached, float(requests), mapping.precision)
        for phase, count in tokens.items()
    }


def _cached_by_phase(design: Design, load: ServingLoad) -> dict[str, CachedShares | None]:
    """By phase, what a cache in front of main memory has, as many requests running as may and each of the longest."""
    chip, mapping = _chip_and_mapping(design)
    if chip.l2 is None:
        return dict.fromkeys(("prefill", "decode"))
    stored = _stored_bytes(design, load, int(mapping.serving.max_batch_size))
    return {phase: cached_shares(chip, stored_bytes) for phase, stored_bytes in stored.items()}


def _request_memory(design: Design, load: ServingLoad) -> RequestMemory:
    """What a request has in HBM."""
    precision = _chip_and_mapping(design)[1].precision

    def nbytes(cached: Any, sequences: float) -> float:
        bytes_by_use = dict(hbm_bytes_by_use(load.model, _step("decode", 1, 1), cached, sequences, precision))
        return bytes_by_use["KV cache"] + bytes_by_use.get("states", 0.0)

    return request_memory(load.model, nbytes)


def _chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    return settle_detours(divide_mesh(design.chip)), design.mapping
