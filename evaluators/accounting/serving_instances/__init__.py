"""Layouts whose instances serve requests: iteration times, KV memory, and usage of a run.

Each layout is a class (`serving_layout.ServingLayout`), which `space/software.py` declares. Here are the
records that layouts and serving runs share.
"""

from collections.abc import Callable, Sequence
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

Composition = tuple[Any, ...]
"""Counts of an iteration, in the order of `iteration_time.AXES`; numbers, or of shape (designs,)."""

IterationCounts = Sequence[Sequence[tuple[Any, Composition]]]
"""By pool, how many iterations there were and their composition; numbers, or of shape (designs,)."""


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
        graph_sizes: decode batches that it pads to, at whose edges iteration times step.
        prefixes: memory of a device for prefixes that leave the pool, with its bandwidth, where a memory tier keeps them; else
            None. [B], [B/s]
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
    graph_sizes: tuple[float, ...] = ()
    prefixes: tuple[float, float] | None = None
