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

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.breakdown import BreakdownRow, scale_row
from dse.evaluators.accounting.memory_contents import MemoryContents, main_memory_contents, memory_limits, request_room
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.serving_instances import (
    Composition,
    IterationCounts,
    ServingInstance,
    design_count,
    iteration_time_key,
)
from dse.evaluators.accounting.serving_instances import count_interpolation as counted
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
    integer_table_points,
)
from dse.evaluators.accounting.serving_instances.served_work import SPENT_COLUMNS, ServedWork, work_of_costs
from dse.evaluators.accounting.serving_instances.shared_part_times import collect_requests
from dse.evaluators.accounting.serving_instances.whole_chip_iterations import (
    count_stored_bytes,
    divided_chip_and_mapping,
    find_largest_iterations,
    make_table_points,
    order_operators,
    price_by_tables,
    price_seconds,
    share_prices,
    sum_spent,
    time_iteration_blocks,
)
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.tile_operators import (
    JOB_TYPES,
    group_limits,
    local_memory_contents,
    sum_blocks,
)
from dse.evaluators.accounting.usage import PeakRates, fastest_product_rate, tile_peak_rates
from dse.evaluators.layouts.cache_memory import whole_request_memory
from dse.evaluators.layouts.tensor_formats import activation_bytes, value_bytes
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.kv_memory import RequestMemory
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens, policies_with_batch
from dse.evaluators.silicon.energy import dynamic_energy, host_transfer_energy
from dse.space.array_math import minimum
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.memoize import memoize_by_identity
from dse.space.serving_plan import is_disaggregated, served_chips
from dse.space.workload import ServingLoad

ERROR_SAMPLES = 20
"""Compositions at which a table's error is measured: each needs a tiling search for every operator."""


class WholeChipServing(InstanceLayout):
    """Instances of chips of tiles that all run one operator at a time."""

    MERGEABLE_LEAVES = ()
    SHARES_TIMES = True
    POWER_ONE_BY_ONE = True

    def mergeable_options(self, design: Design) -> tuple[str, ...]:
        """Options in which designs of one group may differ: the dataflow of systolic arrays."""
        return () if divided_chip_and_mapping(design)[0].tile.matrix.dataflow == "ce" else ("chip.tile.matrix.dataflow",)

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of main memory and, while each kind of operator runs, of a tile's local memory."""
        chip, contents = divided_chip_and_mapping(design)[0], [*_main_contents(design, load)]
        for phase, made_of in _largest_by_phase(design, load).items():
            contents += local_memory_contents(chip, phase, _filled_bytes(design, load, phase, made_of))
        return contents

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of tile groups, which divide the mesh."""
        return group_limits(*divided_chip_and_mapping(design))

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool of chips."""
        mapping = divided_chip_and_mapping(design)[1]
        free = reduce(minimum, map(request_room, _main_contents(design, load)))
        room, instances = _request_memory(design, load), []
        for rule, batch in policies_with_batch(mapping.serving):
            axes = make_table_points(load, rule, batch)
            key = "" if design_count(design) else iteration_time_key(design, load, fidelity)
            pricing = price_by_tables(design, load, fidelity, axes)
            instances.append(
                ServingInstance(
                    partial(price_seconds, pricing, design_count(design)),
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
        chip, mapping = divided_chip_and_mapping(design)
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
        prices = share_prices(design, load, "decode", "analytical")
        layers = prices.layers(1) + prices.head(1) + prices.tokens(1, int(np.ceil(context)))
        return layers[0]

    def prefill_token_seconds(self, design: Design, load: ServingLoad) -> Any:
        """Least time per prompt token, from the steady-state table's times of products and rows. [s]"""
        mapping = divided_chip_and_mapping(design)[1]
        if divided_chip_and_mapping(design)[0].l2 is not None or is_disaggregated(mapping.serving):
            return 0.0
        ((rule, batch),), prices = policies_with_batch(mapping.serving), share_prices(design, load, "prefill", "analytical")
        most = max_prompt_tokens(rule, batch, load.longest)
        tokens, _, decodes, *_ = steady.coarse_table_points(lambda *_: [np.zeros(1)], load)(
            most, load.longest, batch, load.longest
        )
        known = counted.sampled_counts(integer_table_points(load, most, batch))
        return counted.min_per_token(known, prices.layers, tokens[-1] + decodes[-1])

    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches by way of the host, whose latency is left out."""
        chip, mapping = divided_chip_and_mapping(design)
        request = _request_memory(design, load)
        seconds = request.times(1 / float(mapping.serving.host_bandwidth))
        return KvPath(seconds, 0.0, request, 2.0, host_transfer_energy(2.0, chip))

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[int, ...]:
        """Chips that share a request's KV cache: one."""
        return (1, 1)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one chip: arrays of all tiles, memory channels, and links of the mesh."""
        return tile_peak_rates(design.chip)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations of one design, each computed by itself."""
        spent = np.zeros(len(SPENT_COLUMNS) - 1)
        for pool, iterations in enumerate(done):
            for times, made_of in iterations:
                blocks = time_iteration_blocks(design, load, pool, made_of, fidelity)
                spent = spent + times * sum_spent(design, 1, blocks)[1:, 0]
        return work_of_costs(spent)

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time and energy of an iteration of one design."""
        seconds, joules = sum_spent(design, 1, time_iteration_blocks(design, load, pool, made_of, fidelity))[:2, 0]
        return [(seconds, joules)]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration, one per operator."""
        parts = time_iteration_blocks(design, load, pool, made_of, fidelity)
        machine = tile_core_machine(divided_chip_and_mapping(design)[0])
        breakdown_rows = tiles.breakdown_rows(
            PhaseCost(name="", machine=machine, timed=tuple(parts), seconds=sum_blocks(parts)[0], work=None), fidelity
        )
        order = order_operators(load.model)
        in_order = sorted(breakdown_rows, key=lambda row: order.get((row.segment, row.operator), len(order)))
        return [scale_row(row, times) for row in in_order]

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> tuple[Lever, ...]:
        """What to change where a tile or a group violates a limit."""
        return tiles.tile_levers(worst, design)

    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""
        return served_chips(design.mapping.serving)


@memoize_by_identity
def _main_contents(design: Design, load: ServingLoad) -> list[MemoryContents]:
    """Contents of main memory with the longest request and the largest iteration of each phase."""
    chip = divided_chip_and_mapping(design)[0]
    return [main_memory_contents(chip, nbytes) for nbytes in count_stored_bytes(design, load, 1).values()]


def _largest_by_phase(design: Design, load: ServingLoad) -> dict[str, Composition]:
    """Iteration with the largest memory need, by phase."""
    iterations, context = find_largest_iterations(design, load), float(load.longest - 1)
    prompts = max(iterations, key=lambda iteration: float(iteration.prompt_tokens))
    decodes = max(float(iteration.decodes) for iteration in iterations)
    return {
        "prefill": (prompts.prompts, (prompts.prompt + 1) / 2, prompts.beside, context),
        "decode": (0.0, 0.0, decodes, context),
    }


def _filled_bytes(design: Design, load: ServingLoad, phase: str, made_of: Composition) -> list[tuple[str, Any]]:
    """By kind of operator, local memory of a tile in use in an iteration. [B]"""
    amounts = share_prices(design, load, phase, "analytical").filled(made_of)
    return list(zip(JOB_TYPES, amounts if design_count(design) else amounts[:, 0].tolist(), strict=True))


def _request_memory(design: Design, load: ServingLoad) -> RequestMemory:
    """KV memory of a request on a chip."""
    return whole_request_memory(load.model, value_bytes(divided_chip_and_mapping(design)[1].precision))
