"""Layouts whose instances serve requests: iteration times, KV memory, and usage of a run.

Each module has

    FIDELITIES                                          fidelities of its iteration times
    limits(design, load)                                limits: the model and a longest request fit, and further ones
    instances(design, load, fidelity)                   a `ServingInstance` of each pool: prefill only, if any, and decode
    kv_transfer(design, load)                           memory of a request in transfer between instances, and latency [s]
    parallel_transfers(design, load)                    KV transfers at a time, if not one of each instance
    device_count(design)                                chips of all instances
    die_and_system_area(design), area_by_block(design)  area of a die and of all, and by block [mm2]
    usage_metrics(design, load, done, seconds, fidelity, peak)   metrics of usage by iterations `done` in some time; `peak`
                                                        gives the peak power on demand (further arguments: `spent`, where
                                                        instances give other costs of compositions; `hosted`, bytes between
                                                        all chips and hosts)
    devices_per_cache(design, load)                     chips of each pool that share a request's KV cache, where caches can
                                                        go to hosts
    iteration_power(design, load, pool, made_of, fidelity)   power of iterations of one instance, counts of shape
                                                        (iterations, designs) [W]; also `mean_iteration_power`, if
                                                        `iteration_power` is of the most demanding part of an iteration
    iteration_rows(design, load, pool, times, made_of, fidelity)   breakdown rows of an iteration, multiplied by `times`
    remedy_text(worst, design, loads)                   what to change, as text; empty string if nothing is known
    work_lower_bounds(design, load)                     lower bounds without iteration times; broadcast over designs
    untimed_limits(design, load)                        limits that need no iteration times, where some are known
    request_capacity(design, load)                      lower bound on the requests of an instance that fit in memory
    decode_step_seconds(design, load, context)          time of one request's next token, where larger batches take no less
                                                        [s]; `request_decode_times` requests it, where times are shared
    prefill_token_seconds(design, load)                 least time per prompt token, from iteration times [s]

The last four take designs as MERGEABLE_LEAVES says, one design, or all designs of a structure with BOUNDS_TOGETHER.

A module with ONE_BY_ONE computes the power of iterations one after another. A module with MERGEABLE_LEAVES also takes designs
of one structure, whose leaves have the shape (designs,), including those of `mapping.serving` that it names there: results
broadcast over designs, and iteration times have one more axis, the last one. A module with USAGE_IN_BATCH answers
`usage_metrics` and `iteration_power` for designs of several runs at once, if these differ only in serving settings. A module
with TOGETHER_AT gives, by fidelity, the rows of a design that it evaluates together, and how these rows are selected.

An iteration is known by its composition: tokens of prompts and mean context of each, decoding requests and context of each
(`serving/iteration_time.py`). ``done`` are pools, each a list of (times, composition).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.serving.iteration_time import IterationTimeFunction, geometric_axes
from dse.evaluators.serving.kv_memory import RequestMemory
from dse.space.array_math import Array
from dse.space.chip import Chip
from dse.space.design import Design, hash_lines, key_line
from dse.space.fields import fingerprint, iterate_key_leaves, iterate_leaves
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model
from dse.space.workload import ServingLoad

Composition = tuple[float, ...]
"""Counts of an iteration, in the order of `iteration_time.AXES`."""

IterationCounts = list[list[tuple[float, Composition]]]
"""By pool, compositions of iterations and how many there were."""


ERROR_SAMPLES = 300
"""Compositions at which a table's error is measured, where iteration times are fast to compute."""


SERVING_PREFIXES = ("mapping.serving.",)
"""Leaves of a design that set how instances are used, not the iteration time."""


def iteration_time_key(design: Design, load: ServingLoad, *others: Any, without: tuple[str, ...] = SERVING_PREFIXES) -> str:
    """Key of iteration times: hash of the design without some leaves, model, lengths and other inputs."""
    key_lines = [
        key_line(*leaf)
        for (address, _, _), leaf in zip(
            iterate_leaves(design.mapping, "mapping."), iterate_key_leaves(design.mapping, "mapping."), strict=True
        )
        if not address.startswith(without)
    ]
    requests = load.requests
    lengths = requests.prompt.max(), requests.prompt.mean(), requests.output.max(), requests.longest
    return hash_lines([*_key_lines_of(design.chip, load.model), *key_lines, *map(repr, (*lengths, load.guesses, *others))])


@memoize_by_identity
def _key_lines_of(chip: Chip, model: Model) -> list[str]:
    """Of a chip and a model, which many designs of a load share."""
    return [*(key_line(*leaf) for leaf in iterate_key_leaves(chip, "chip.")), fingerprint(model)]


def design_count(design: Design) -> int:
    """Number of designs in the leaves; 0 if all leaves are numbers, of one design."""
    return max((len(value) for _, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)), default=0)


class ServingInstance(NamedTuple):
    """One serving instance of the model, for a pool of equal instances.

    Attributes:
        pricing: iteration time by composition; shape (..., designs) of several designs. [s]
        free: KV memory: what weights and activations leave free. [B]
        room: KV memory of one request.
        axes: points of a table of iteration times, from the largest counts in the order of `iteration_time.AXES`.
        checks: compositions at which the table's error is measured.
        shares: of the time of an iteration, by stage; as many micro-batches are in flight.
        key: equal for instances with equal iteration times, whatever their design.
        more: seconds, joules and other costs of iterations, shape (..., what, designs); None if `usage_metrics` takes
            compositions.
        copies: of attention, on devices that each have caches of requests of their own; `free` is of all of them. [1]
    """

    pricing: IterationTimeFunction
    free: Any
    room: RequestMemory
    axes: Callable[[int, int, int, int], list[Array]] = geometric_axes
    checks: int = ERROR_SAMPLES
    key: str = ""
    shares: tuple[float, ...] = (1.0,)
    more: IterationTimeFunction | None = None
    copies: int = 1
