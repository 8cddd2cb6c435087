"""What a layout answers about a serving load: the one interface between layouts and serving runs.

`ServingLayout` is what any layout answers. `InstanceCosts` is what a layout with equal instances in fixed pools answers
about them, from which `instance_layout.InstanceLayout` answers the rest. Layouts keep no state: a layout is one
object for all designs of its software.

An iteration is known by its composition: tokens of prompts and mean context of each, decoding requests and context of
each (`serving/iteration_time.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.memory_contents import MemoryContents, largest_use, memory_limits
from dse.evaluators.accounting.power import NOTHING
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.serving_instances import Composition, IterationCounts, ServingInstance, design_count
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart, groups_with_equal_serving, single_rows
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds
from dse.evaluators.accounting.serving_instances.served_work import (
    ServedWork,
    power_of_work,
    usage_of_work,
    work_of_costs,
)
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath, work_beside_iterations
from dse.evaluators.accounting.usage import PeakRates, system_peak_rates
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.silicon import area
from dse.space.array_math import Array, maximum
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.lazy_metrics import make_lazy_metrics
from dse.space.limits import Infeasibility, Limit
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

JointParts = (
    tuple[()]
    | tuple[Callable[[Design], Iterable[DesignPart]]]
    | tuple[Callable[[Design], Iterable[DesignPart]], Callable[[Design, Array], Design]]
)
"""The function that gives the parts of a design which are evaluated together, and one that selects rows of a part; nothing
where rows are evaluated one by one."""


class PoolKvMemory(NamedTuple):
    """KV memory of one instance of a pool: blocks set, and blocks that fit.

    Attributes:
        pool: of which it is.
        blocks, room: blocks that are set, and blocks that fit in its devices' memory.
        tokens, room_tokens: for which these are, of requests that keep all positions.
    """

    pool: str
    blocks: int
    room: int
    tokens: int
    room_tokens: int


class ServingLayout(ABC):
    """A layout that serves: limits, metrics, power and breakdown of a design under a serving load.

    Attributes:
        FIDELITIES: of its iteration times.
        MERGEABLE_LEAVES: leaves of `mapping.serving` in which designs that are evaluated together may differ, beside all
            leaves outside it: limits and iteration times then take designs of one structure, whose leaves have the shape
            (designs,), and broadcast over them. None for a layout that takes one design at a time.
        SHARES_TIMES: whether designs of several structures share parts of iteration times, which are then requested first
            (`request_limit_times`, `request_table_times`) and computed together.
    """

    FIDELITIES: ClassVar[tuple[str, ...]] = ("analytical",)
    MERGEABLE_LEAVES: ClassVar[tuple[str, ...] | None] = None
    SHARES_TIMES: ClassVar[bool] = False

    @abstractmethod
    def memory_contents(self, design: Design, load: ServingLoad) -> Sequence[MemoryContents]:
        """Contents of memories of the fullest device or core of each pool, with a longest request.

        Beside weights and that request's cache, what the largest iterations need; leaves broadcast over designs. Asked where
        `layout_limits` hold.
        """

    @abstractmethod
    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of structure, beside `layout_limits`; broadcast over designs."""

    def layout_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits without which instances cannot be laid out; none by default.

        Where they are violated, nothing is known of memories.
        """
        return []

    def limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of the layout, and where these hold, of memories and structure; broadcast over designs."""
        limits = self.layout_limits(design, load)
        if any(np.any(limit.need > limit.have) for limit in limits):
            return limits
        contents = sorted(self.memory_contents(design, load), key=lambda memory: not memory.is_main)
        return [*limits, *memory_limits(contents), *self.structural_limits(design, load)]

    @abstractmethod
    def metrics(self, design: Design, load: ServingLoad, fidelity: str) -> dict[str, Any]:
        """Metrics of designs that keep all limits, by simulation or in the steady state.

        Numbers, or of shape (designs,). The largest rate alone, as 0, where no rate keeps the SLOs.
        """

    @abstractmethod
    def joint_parts(self, fidelity: str, *, at_rate: bool) -> JointParts:
        """How `metrics` takes designs together at a fidelity.

        `at_rate` says that the rate of all loads is given, and not searched for.
        """

    @abstractmethod
    def serving_breakdown(self, design: Design, load: ServingLoad, fidelity: str) -> Breakdown:
        """Breakdown of instances' time by operator and idle, with a timeline of the first iterations."""

    @abstractmethod
    def serving_power_profile(self, design: Design, load: ServingLoad, fidelity: str) -> PowerProfile | None:
        """Power of all chips over the first iterations; None if no rate keeps the SLOs. [W]"""

    @abstractmethod
    def simulate_load(self, design: Design, load: ServingLoad, fidelity: str) -> ServingRun | None:
        """Serving simulation of a load; None if no rate keeps the SLOs."""

    @abstractmethod
    def run_usage(self, design: Design, load: ServingLoad, run: ServingRun, fidelity: str) -> dict[str, Any]:
        """Metrics of usage, energy and price of a run of a load's requests, except peak power."""

    @abstractmethod
    def unloaded_latency(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[float, float]:
        """TTFT and TPOT of requests on an idle deployment, for the share that the maximum rate names. [s]"""

    @abstractmethod
    def deployment_factory(
        self, design: Design, load: ServingLoad, pools: Sequence[InstancePool]
    ) -> Callable[[Requests], Deployment]:
        """Function that gives the deployment at any rate: given pools, or pools that depend on the rate."""

    @abstractmethod
    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration of a pool, multiplied by `times`."""

    @abstractmethod
    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> Iterable[Lever]:
        """What may be changed so that a violated limit holds, the mildest first; nothing if nothing is known."""

    @abstractmethod
    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds on work without iteration times; broadcast over designs."""

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits that need no iteration times; none by default."""
        return []

    def request_capacity(self, design: Design, load: ServingLoad) -> Any:
        """Lower bound on the requests of an instance that fit in memory; 0 if it is not known."""
        return 0.0

    def decode_step_seconds(self, design: Design, load: ServingLoad, context: float) -> Any:
        """Time of an iteration that decodes one request at a context length. [s]

        0 where it is not known, or where larger batches may take less.
        """
        return 0.0

    def request_decode_times(self, design: Design, load: ServingLoad, context: float) -> None:
        """Request the times of `decode_step_seconds`, so that designs are computed together."""
        self.decode_step_seconds(design, load, context)

    def prefill_token_seconds(self, design: Design, load: ServingLoad) -> Any:
        """Least time per prompt token, from iteration times; 0 if it is not known. [s]"""
        return 0.0

    def bound_parts(self, design: Design) -> list[DesignPart]:
        """Parts of a design that bounds take, from `untimed_limits` on; by default all rows together."""
        return [(np.arange(max(design_count(design), 1)), design)]

    def mergeable_options(self, design: Design) -> tuple[str, ...]:
        """Options in which designs of one structure may differ; none by default."""
        return ()

    def request_limit_times(self, design: Design, load: ServingLoad) -> None:  # noqa: B027
        """Request the times that limits need, so that designs are computed together; nothing by default."""

    def request_table_times(self, design: Design, load: ServingLoad, fidelity: str) -> None:  # noqa: B027
        """Request the times of a steady-state table, so that designs are computed together; by default none."""

    def kv_memory_by_pool(self, design: Design, load: ServingLoad) -> tuple[PoolKvMemory, ...]:
        """KV memory of one instance in each pool, if the block count is set; empty by default."""
        return ()

    def limited_parts(self, design: Design) -> Iterable[DesignPart]:
        """Parts of a design that `limits` takes: rows with equal serving settings, or single rows."""
        if self.MERGEABLE_LEAVES is None:
            return single_rows(design)
        return groups_with_equal_serving(design, self.MERGEABLE_LEAVES)

    @abstractmethod
    def system_peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of the engines, memory and links of all chips together."""


class InstanceCosts(ServingLayout):
    """Costs of one instance of each pool, in a layout whose pools are the same at any rate of a load.

    Pools are those that prefill only, if any, and those that decode.

    Attributes:
        HAS_MAIN_MEMORY: whether served loads use main memory; metrics of main memory do not exist without.
        USAGE_IN_BATCH: whether `usage_metrics` and `iteration_power` take designs of several runs at once, if these differ
            only in serving settings.
        POWER_ONE_BY_ONE: whether the power of iterations is computed one iteration after another, in up to 10 ms each.
    """

    HAS_MAIN_MEMORY: ClassVar[bool] = True
    USAGE_IN_BATCH: ClassVar[bool] = False
    POWER_ONE_BY_ONE: ClassVar[bool] = False

    @abstractmethod
    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool: iteration times, and the KV memory of an instance."""

    @abstractmethod
    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches between two pools; asked only where there are two."""

    @abstractmethod
    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""

    @abstractmethod
    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[Any, ...]:
        """Chips of each pool that share a request's KV cache, where caches can go to hosts."""

    def chips_by_kind(self, design: Design) -> tuple[tuple[Chip, Any], ...]:
        """Each kind of chip that serves, and how many there are of it."""
        return ((design.chip, self.device_count(design)),)

    def die_and_system_area(self, design: Design) -> tuple[Any, Any]:
        """Area of one die and of the dies of all instances. [mm2]"""
        return area.die_area(design.chip), area.total_area(design.chip) * self.device_count(design)

    def area_by_block(self, design: Design) -> dict[str, Any]:
        """Area of one chip by block. [mm2]"""
        return area.area_by_block(design.chip)

    @abstractmethod
    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of the engines, memory and links of one chip."""

    def system_peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of the engines, memory and links of all chips together."""
        return system_peak_rates(self.peak_rates(design), self.device_count(design))

    @abstractmethod
    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations of each pool, on all chips."""

    @abstractmethod
    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time and dynamic energy of each part of an iteration of one instance. [s], [J]

        Parts follow one another. The composition is of one iteration with `POWER_ONE_BY_ONE`, else of shape (iterations,
        designs).
        """

    def usage_metrics(
        self,
        design: Design,
        load: ServingLoad,
        done: IterationCounts,
        seconds: Any,
        fidelity: str,
        peak: Callable[[], Any],
        *,
        spent: Array | None = None,
        hosted: Any = 0.0,
    ) -> dict[str, Any]:
        """Metrics of usage, memory and energy by iterations done in some time.

        Args:
            design, load, fidelity: design, load, and fidelity of iteration costs.
            done: iterations of each pool.
            seconds: in which they are done. [s]
            peak: gives the peak power on demand. [W]
            spent: costs of `done` except time, in the order of `SPENT_COLUMNS`, where instances give other costs of
                compositions (`ServingInstance.more`).
            hosted: bytes between all chips and hosts. [B]
        """
        work = self.work_of_iterations(design, load, done, fidelity) if spent is None else work_of_costs(spent)
        kinds, path = self.chips_by_kind(design), self.kv_path(design, load) if len(done) == 2 else None
        moved = work_beside_iterations(path, design, load, hosted)
        values = usage_of_work(work, moved, self.system_peak_rates(design), seconds, has_memory=self.HAS_MAIN_MEMORY)
        if all(np.any(chip.power) for chip, _ in kinds):
            values["rated_energy"] = sum(chip.power * chips for chip, chips in kinds) * seconds
        return values | self.memory_metrics(design, load) | power_of_work(work, moved, seconds, load, kinds, peak)

    def memory_metrics(self, design: Design, load: ServingLoad) -> dict[str, Any]:
        """Memory in use on the fullest device or core, computed when it is read. [B]"""

        def memory_in_use() -> dict[str, Any]:
            contents = self.memory_contents(design, load)
            uses = {"hbm_used": largest_use(contents, main=True), "sram_used": largest_use(contents, main=False)}
            return {name: np.nan if use is None else use * 1.0 for name, use in uses.items()}

        names = (*(("hbm_used",) if self.HAS_MAIN_MEMORY else ()), *(("sram_used",) if self.has_local_memory(design) else ()))
        return make_lazy_metrics(names, memory_in_use)

    def has_local_memory(self, design: Design) -> bool:
        """Whether some chip that serves has cores with local memories."""
        return any(chip.mesh is not None for chip, _ in self.chips_by_kind(design))

    def iteration_power(self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str) -> Any:
        """Power of the most demanding part of iterations of one instance, shape (iterations, designs). [W]"""

        def most(composition: Composition) -> Any:
            parts = self.iteration_energies(design, load, pool, composition, fidelity)
            return reduce(maximum, (joules / maximum(seconds, NOTHING) for seconds, joules in parts))

        return self._each_iteration(made_of, most)

    def mean_iteration_power(self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str) -> Any:
        """Mean power of iterations of one instance over all their parts, shape (iterations, designs). [W]"""

        def mean(composition: Composition) -> Any:
            seconds, joules = map(sum, zip(*self.iteration_energies(design, load, pool, composition, fidelity), strict=True))
            return joules / maximum(seconds, NOTHING)

        return self._each_iteration(made_of, mean)

    def _each_iteration(self, made_of: Composition, watts: Callable[[Composition], Any]) -> Any:
        """Power of all iterations together, or one after another. [W]"""
        if not self.POWER_ONE_BY_ONE:
            return watts(made_of)
        each = np.broadcast_arrays(*(np.ravel(count) for count in made_of))
        return np.array([[watts(composition)] for composition in zip(*each, strict=True)])
