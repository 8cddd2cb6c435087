"""Metrics of designs by serving simulation, with the usage of all runs computed together.

Mean and busiest iterations of all runs are stacked into one array each, so the overhead of array operations is paid
once.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.serving_instances import SERVING_PREFIXES, IterationCounts, design_count
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart
from dse.evaluators.accounting.serving_instances.serving_layout import InstanceCosts
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs.peak_power import IterationKind, PoolConcurrency
from dse.evaluators.accounting.serving_runs.run_metrics import CheckedTable, MeanIteration, select_rows
from dse.evaluators.serving.simulator import ServingRun
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.fields import iterate_leaves
from dse.space.lazy_metrics import make_lazy_metrics
from dse.space.memory_tiers import prefix_bandwidth
from dse.space.workload import ServingLoad

PREFILL_INSTANCES = "mapping.serving.prefill_instances"
"""Leaf that sets the number of pools, on which designs evaluated together have to agree."""

ERROR_METRIC = "iteration_time_error"
"""Metric that is computed on demand, at once for all designs with equal iteration times."""

SIZES = ("max_batched_tokens", "max_batch_size")
"""Serving settings that determine the number of points of an iteration-time table."""


class SimulatedRun(NamedTuple):
    """Results kept of one design's serving run.

    Attributes:
        worth: metrics except those of usage.
        means, fullest: of each pool, mean iterations as `mean_iterations_by_span` has them, and what is under way at once.
        span: of the run. [s]
        tables: iteration-time tables.
        hosted: what went to hosts and came back. [B]
    """

    worth: dict[str, float]
    means: list[list[list[MeanIteration]]]
    fullest: list[PoolConcurrency]
    span: float
    tables: list[CheckedTable]
    hosted: float


def rows_by_serving(design: Design) -> Iterator[DesignPart]:
    """Rows of a design that differ only in serving settings, and the design with its other leaves scalar."""
    columns = {address: np.ravel(value) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    apart = tuple(address for address in columns if not address.startswith(SERVING_PREFIXES) or address == PREFILL_INSTANCES)
    size = max((len(column) for column in columns.values()), default=1)
    given_columns = np.array([np.broadcast_to(columns[address], size) for address in apart] or [np.zeros(size)], float)
    which = np.ravel(np.unique(given_columns, axis=1, return_inverse=True)[1])
    for kind in range(int(which.max()) + 1):
        rows = np.flatnonzero(which == kind)
        if len(columns) > len(apart):
            yield rows, select_rows(design, rows, apart)
        else:
            yield from ((rows[[row]], select_rows(design, rows[[row]])) for row in range(len(rows)))


def simulated_metrics(
    costs: InstanceCosts,
    design: Design,
    load: ServingLoad,
    fidelity: str,
    run: Callable[[Design], tuple[ServingRun | None, list[CheckedTable]]],
    unloaded: Callable[[Design], tuple[float, float]],
) -> dict[str, Any]:
    """Simulated metrics of designs that keep all limits; numbers, or of shape (designs,).

    Args:
        costs, design, load, fidelity: costs of instances, designs, load, and fidelity of iteration times.
        run: plays one of them, with its tables of prices; no run where no rate keeps a load's bounds, which is looked for by
            one design at a time.
        unloaded: TTFT and TPOT of requests that never meet, of such a design. [s]
    """
    size = design_count(design)
    runs = dict[int, SimulatedRun]()
    for row in _largest_first(design, size) if size else [0]:
        design_alone = select_rows(design, np.array([row])) if size else design
        served_, tables = run(design_alone)
        if served_ is None:
            return served.unkept_rate(unloaded(design))
        load = served.of_run(load, served_)
        runs[row] = _ran(costs, design_alone, load, served_, tables)
    rans = [runs[row] for row in range(max(size, 1))]
    worth: dict[str, Any] = {name: np.array([ran.worth[name] for ran in rans]) for name in rans[0].worth}
    checked = [ran.tables for ran in rans]
    span = np.array([ran.span for ran in rans])
    pools = range(len(rans[0].means))
    done = [_means([ran.means[pool] for ran in rans]) for pool in pools]
    fullest = [_fullest([ran.fullest[pool] for ran in rans]) for pool in pools]

    def most() -> Any:
        return peak.peak_power(fullest, lambda pool, made_of: costs.iteration_power(design, load, pool, made_of, fidelity))

    def off() -> dict[str, Any]:
        errors = np.array([error.mean for error in served.table_errors_by_design(checked)])
        return {ERROR_METRIC: errors if size else float(errors[0])}

    beside = make_lazy_metrics((ERROR_METRIC,), off)
    if not size:
        numbers = {name: float(value[0]) for name, value in worth.items()} | beside
        one_each: IterationCounts = [
            [(float(times[0]), tuple(float(count[0]) for count in made_of)) for times, made_of in composition]
            for composition in done
        ]
        alone: dict[str, Any] = costs.usage_metrics(
            design, load, one_each, rans[0].span, fidelity, lambda: float(np.squeeze(most())), hosted=rans[0].hosted
        )
        return numbers | alone
    hosted = np.array([ran.hosted for ran in rans])
    used: dict[str, Any] = costs.usage_metrics(design, load, done, span, fidelity, most, hosted=hosted)
    return worth | beside | used


def _largest_first(design: Design, size: int) -> list[int]:
    """Rows of designs, largest iterations first, so that their tables serve the others."""
    columns = [np.broadcast_to(-np.asarray(getattr(design.mapping.serving, name), float), size) for name in SIZES]
    order: list[int] = np.lexsort(columns[::-1]).tolist()
    return order


def _ran(costs: InstanceCosts, design: Design, load: ServingLoad, run: ServingRun, tables: list[CheckedTable]) -> SimulatedRun:
    """Results kept of one design's run; the rest is released."""
    die, system = costs.die_and_system_area(design)
    worth = served.run_metrics(run, load, die, system) | {"devices": float(costs.device_count(design))}
    worth |= served.kv_pool_metrics(run.pools[-1], load)
    worth |= served.max_rate_metrics(load, run.rate)
    means = [served.mean_iterations_by_span(run, pool) for pool in range(len(run.pools))]
    hosted = served.host_bytes(run, costs.devices_per_cache(design, load), float(prefix_bandwidth(design)))
    return SimulatedRun(worth, means, peak.concurrency_of_run(run), served.run_duration(run), tables, hosted)


def _means(each: Sequence[Sequence[Sequence[MeanIteration]]]) -> list[tuple[Array, tuple[Array, ...]]]:
    """Times and compositions of a pool's mean iterations, with prompts and without, span by span, shape (designs,).

    A design that has none of a span has it 0 times; where nobody has any, there is none.
    """
    means = []
    for prompts in range(2):
        for row_means in zip(*(means[prompts] for means in each), strict=True):
            usual = next((mean for mean in row_means if mean.times), None)
            if usual:
                made_of = [(mean if mean.times else usual).composition for mean in row_means]
                means.append((np.array([mean.times for mean in row_means]), tuple(np.array(made_of, float).T)))
    return means


def _fullest(each: Sequence[PoolConcurrency]) -> PoolConcurrency:
    """Of a pool of each design: iterations of shape (iterations, designs), those of a design that has fewer once more."""
    return PoolConcurrency(
        _kind([concurrency.prompts for concurrency in each]),
        _kind([concurrency.decodes for concurrency in each]),
        np.array([concurrency.most for concurrency in each], float),
    )


def _kind(each: Sequence[IterationKind]) -> IterationKind:
    most = np.array([concurrency.most for concurrency in each], float)
    longest = max((len(concurrency.made_of[0]) for concurrency in each if concurrency.made_of), default=0)
    if not longest:
        return IterationKind((), most)
    usual = next(concurrency.made_of for concurrency in each if concurrency.made_of)
    all_of = [concurrency.made_of or usual for concurrency in each]
    most = np.where([bool(concurrency.made_of) for concurrency in each], most, 0.0)
    turns = np.arange(longest)
    columns = (
        np.stack([np.ravel(kind[axis])[turns % len(kind[axis])] for kind in all_of], axis=1) for axis in range(len(usual))
    )
    return IterationKind(tuple(columns), most)
