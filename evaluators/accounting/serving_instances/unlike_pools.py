"""Prefill on one kind of chip and decode on another, as one deployment.

Each pool is asked of the layout of its own chip and mapping, as if that had this pool alone. KV caches go from the chips of a
prefill instance to those of a decode instance over a link of its own (Splitwise [patel2024], DistServe [zhong2024]).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.layout_registry import SERVING_LAYOUTS, load_layout
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.accounting.remedies import Lever, advise, remedy_text
from dse.evaluators.accounting.serving_instances import Composition, IterationCounts, ServingInstance, design_count
from dse.evaluators.accounting.serving_instances.design_parts import DEVICE_LEAVES
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds
from dse.evaluators.accounting.serving_instances.served_work import ServedWork
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.serving_runs.simulated_designs import PREFILL_INSTANCES
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.layouts.cache_memory import whole_request_memory
from dse.evaluators.layouts.tensor_formats import value_bytes
from dse.evaluators.serving.kv_memory import RequestMemory, fullest_request
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon.energy import memory_energy_per_byte
from dse.space.array_math import maximum
from dse.space.chip import Chip
from dse.space.design import PREFILL_ADDRESS, Design, UnlikePools, link_energy, receiving_bandwidth
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.limits import IncompatibleOptionsError, Infeasibility, Limit
from dse.space.main_memory import has_main_memory, main_memory
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.serving_plan import POOL_PHASES
from dse.space.software import SOFTWARE, software_of
from dse.space.workload import ServingLoad


class PoolSide(NamedTuple):
    """One pool as a design of its own chips.

    Attributes:
        design: its chip and mapping, with the serving settings of both pools.
        layout: that serves it.
        address: what the addresses of its leaves begin with in the whole design.
    """

    design: Design
    layout: InstanceLayout
    address: str


class UnlikePoolsServing(InstanceLayout):
    """A pool that prefills on chips of one kind, and a pool that decodes on chips of another."""

    FIDELITIES = ("analytical",)
    POWER_ONE_BY_ONE = True

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of memories of both pools."""
        return [memory for side in pool_sides(design) for memory in side.layout.memory_contents(side.design, load)]

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of structure of each pool."""
        return _limits_of_pools(design, lambda side: side.layout.structural_limits(side.design, load))

    def limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of each pool on its own chips, those of the prefill pool under its own addresses."""
        return _limits_of_pools(design, lambda side: side.layout.limits(side.design, load))

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """The limits of each pool that need no iteration times."""
        return _limits_of_pools(design, lambda side: side.layout.untimed_limits(side.design, load))

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of the prefill pool, and of the decode pool."""
        first, last = (side.layout.instances(side.design, load, fidelity) for side in pool_sides(design))
        return (*first, *last)

    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches over the link between the pools.

        Chips of an instance send, and those of another receive, at the same time, each a part of the cache. A cache that is
        kept in another format than it is sent in is read and written once more where it is converted.
        """
        pools, sides, holders = _pools(design), pool_sides(design), self.devices_per_cache(design, load)
        sent = sent_cache(design, load.model)
        rates = (pools.link.bandwidth * holders[0], receiving_bandwidth(pools.link) * holders[1])
        room = fullest_request([sent.times(1 / rate) for rate in rates], load.longest)
        for side, devices in zip(sides, holders, strict=True):
            if side.design.mapping.precision.kv != sent_format(design):
                kept = _cache_in_format(load.model, side.design, side.design.mapping.precision.kv)
                bandwidth = main_memory(side.design.chip).bandwidth * devices
                room = _added(room, _added(kept, sent).times(1 / bandwidth))
        memory = sum(memory_energy_per_byte(side.design.chip) for side in sides)
        return KvPath(room, pools.link.latency, sent, 2.0, memory + link_energy(pools))

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[Any, ...]:
        """Chips of each pool that share a request's KV cache."""
        return tuple(side.layout.devices_per_cache(side.design, load)[0] for side in pool_sides(design))

    def device_count(self, design: Design) -> Any:
        """Number of chips of both pools."""
        return sum(side.layout.device_count(side.design) for side in pool_sides(design))

    def die_and_system_area(self, design: Design) -> tuple[Any, Any]:
        """Area of the larger die, and of all dies of both pools. [mm2]"""
        areas = [side.layout.die_and_system_area(side.design) for side in pool_sides(design)]
        return maximum(areas[0][0], areas[1][0]), areas[0][1] + areas[1][1]

    def area_by_block(self, design: Design) -> dict[str, Any]:
        """Area of one chip of each pool by block. [mm2]"""
        return {
            f"{phase}: {block}": value
            for phase, side in zip(POOL_PHASES, pool_sides(design), strict=True)
            for block, value in side.layout.area_by_block(side.design).items()
        }

    def peak_rates(self, design: Design) -> PeakRates:
        """Mean peak rates of a chip of both pools."""
        whole = self.system_peak_rates(design)
        return PeakRates(whole.flops / self.device_count(design), whole.memory / self.device_count(design))

    def system_peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of all chips of both pools together."""
        rates = [side.layout.system_peak_rates(side.design) for side in pool_sides(design)]
        return PeakRates(sum(rate.flops for rate in rates), sum(rate.memory for rate in rates))

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of the iterations of both pools."""
        works = [
            side.layout.work_of_iterations(side.design, load, [iterations], fidelity)
            for side, iterations in zip(pool_sides(design), done, strict=True)
        ]
        return ServedWork(
            sum(work.flop for work in works),
            sum(work.memory_bytes for work in works),
            sum(work.hop_bytes for work in works),
            lambda: sum(work.energy() for work in works),
        )

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time and dynamic energy of each part of an iteration of a pool's instance. [s], [J]"""
        side = pool_sides(design)[pool]
        return side.layout.iteration_energies(side.design, load, 0, made_of, fidelity)

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration of a pool."""
        side = pool_sides(design)[pool]
        return side.layout.iteration_rows(side.design, load, 0, times, made_of, fidelity)

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> Iterable[Lever]:
        """Levers of the pool whose limit is violated."""
        first, last = pool_sides(design)
        if worst.limit == PREFILL_INSTANCES:
            return advise(f"{PREFILL_INSTANCES}=1 or more, on the chips of pools.prefill")
        if not worst.limit.startswith(PREFILL_ADDRESS):
            return last.layout.levers(worst, last.design, loads)
        own = replace(worst, limit=worst.limit.removeprefix(PREFILL_ADDRESS))
        manufacturing = advise(silicon.advice_text(own.limit, first.design.chip))
        text = remedy_text(manufacturing or first.layout.levers(own, first.design, loads))
        for root in ("mapping.", "chip."):
            text = text.replace(root, f"{PREFILL_ADDRESS}{root}")
        return advise(text)

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds of prompts by the prefill pool, and of decode by the other one."""
        first, last = (side.layout.work_lower_bounds(side.design, load) for side in pool_sides(design))
        return WorkLowerBounds(first.chips + last.chips, decode=last.decode, prompt=first.prompt)

    def chips_by_kind(self, design: Design) -> tuple[tuple[Chip, Any], ...]:
        """Chip of the decode pool and of the prefill pool, each with its number."""
        first, last = pool_sides(design)
        return tuple((side.design.chip, side.layout.device_count(side.design)) for side in (last, first))


class JointUnlikePoolsServing(UnlikePoolsServing):
    """Two pools of unlike chips whose layouts both take designs together."""

    MERGEABLE_LEAVES = DEVICE_LEAVES
    USAGE_IN_BATCH = True
    POWER_ONE_BY_ONE = False


@memoize_by_identity
def pool_sides(design: Design) -> tuple[PoolSide, PoolSide]:
    """The prefill pool and the decode pool, each as a design of its own chips.

    A pool has one plan, by which prompts that are computed again run too.

    Raises:
        DesignError: a pool on a layout whose pools share one chip.
    """
    pools, serving = _pools(design), design.mapping.serving
    mappings = (
        replace(pools.prefill.mapping, decode=pools.prefill.mapping.prefill, serving=replace(serving, pool=POOL_PHASES[0])),
        replace(design.mapping, prefill=design.mapping.decode, serving=replace(serving, pool=POOL_PHASES[1])),
    )
    designs = [
        _with_arrays(Design(chip, mapping), design_count(design))
        for chip, mapping in zip((pools.prefill.chip, design.chip), mappings, strict=True)
    ]
    return (
        PoolSide(designs[0], _layout_of(designs[0], PREFILL_ADDRESS), PREFILL_ADDRESS),
        PoolSide(designs[1], _layout_of(designs[1], ""), ""),
    )


def _with_arrays(side: Design, size: int) -> Design:
    """A pool whose leaves are of as many designs as those of the whole design; unchanged where one design is asked."""
    if not size or design_count(side):
        return side
    return replace_leaves(side, {BATCH: np.full(size, float(side.mapping.serving.max_batch_size))})


BATCH = "mapping.serving.max_batch_size"
"""A setting that layouts which take designs together may have differ."""


def _layout_of(design: Design, address: str) -> InstanceLayout:
    software = software_of(design.mapping)
    layout = load_layout(SERVING_LAYOUTS[software], ServingLayout)  # type: ignore[type-abstract]
    if not isinstance(layout, InstanceLayout):
        raise DesignError(
            f"{address}mapping: {SOFTWARE[software].name} have pools of their own on one chip; choose another mapping"
        )
    return layout


def _pools(design: Design) -> UnlikePools:
    assert design.pools is not None
    return design.pools


def _limits_of_pools(design: Design, limits: Callable[[PoolSide], list[Limit]]) -> list[Limit]:
    """Limits of both pools, of the prefill chip, and that some instance prefills."""
    _refuse_conversion(design)
    prefill_instances = Limit(PREFILL_INSTANCES, 1.0, design.mapping.serving.prefill_instances * 1.0, "1")
    sides = pool_sides(design)
    return [
        prefill_instances,
        *(limit for side in sides for limit in _limits_of_side(side, limits(side))),
        # those of the decode chip are of every design
        *_limits_of_side(sides[0], silicon.silicon_limits(sides[0].design.chip)),
    ]


def _refuse_conversion(design: Design) -> None:
    """Refuse caches in another format than the link's on a chip without main memory, which has no room to convert them."""
    for phase, side in zip(POOL_PHASES, pool_sides(design), strict=True):
        own = side.design.mapping.precision.kv
        if own != sent_format(design) and not has_main_memory(side.design.chip):
            raise IncompatibleOptionsError(
                f"pools.link.kv: the {phase} pool keeps KV caches in {own} and has no main memory to convert others in; "
                f"set pools.link.kv={own}, and the formats of both pools alike",
                "kv",
            )


def _limits_of_side(side: PoolSide, limits: Sequence[Limit]) -> list[Limit]:
    return [limit._replace(address=f"{side.address}{limit.address}") for limit in limits]


def sent_format(design: Design) -> str:
    """Number format of KV caches on the link between the pools."""
    return str(_pools(design).link.kv or design.mapping.precision.kv)


def sent_cache(design: Design, model: Model) -> RequestMemory:
    """KV cache of a request as it is sent, each value once. [B]"""
    return _cache_in_format(model, design, sent_format(design))


@memoize_by_identity
def _cache_in_format(model: Model, design: Design, kv: str) -> RequestMemory:
    """KV cache of a request in a format, and states in their own, over all layers and each value once. [B]"""
    return whole_request_memory(model, value_bytes(design.mapping.precision)._replace(kv=BYTES_BY_FORMAT[kv]))


def _added(first: RequestMemory, other: RequestMemory) -> RequestMemory:
    """Memory of a request in two forms together; both keep the same positions."""
    windows = tuple((most, nbytes + more) for (most, nbytes), (_, more) in zip(first.windows, other.windows, strict=True))
    return RequestMemory(first.growing + other.growing, first.fixed + other.fixed, windows)
