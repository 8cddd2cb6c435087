"""Pipeline stages on devices: consecutive layers, as many on each as inference engines cut them.

The embedding is on the first stage, the head and modules that predict tokens on the last one. A stage is a group of devices
that share its layers by tensor parallelism (`layouts.tensor_parallel`).
"""

from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order
from dse.space.array_math import maximum
from dse.space.layers import layers
from dse.space.model import Model


def layers_per_stage(count: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, as even as possible by number. [-]

    Layers that are left over go to the last stages but one, one each. The first and the last stage get theirs last, since
    they have the embedding and the head.

    Args:
        count: layers of the model.
        stages: pipeline stages; those beyond the layers have none.

    Source:
        [vllmpp2025] get_pp_indices. TensorRT-LLM cuts evenly by number as well.

    >>> layers_per_stage(80, 8), layers_per_stage(11, 4), layers_per_stage(5, 3)
    ((10, 10, 10, 10, 10, 10, 10, 10), (3, 3, 3, 2), (2, 2, 1))
    >>> layers_per_stage(9, 4)
    (2, 2, 3, 2)
    """
    each, left = divmod(count, stages)
    return tuple(each + (stages - 1 - left <= stage < stages - 1) for stage in range(stages))


class StageGroup(NamedTuple):
    """Pipeline stages that have equal segments in equal order.

    Attributes:
        places: of the stages in the pipeline, from 0.
        order: names of the segments of each.
    """

    places: tuple[int, ...]
    order: tuple[str, ...]


@lru_cache(maxsize=256)
def stage_orders(model: Model, guesses: int, stages: int) -> tuple[tuple[str, ...], ...]:
    """Names of the segments of each pipeline stage in order; together those of a step.

    Args:
        model: whose layers are cut.
        guesses: tokens guessed a request in a step.
        stages: pipeline stages, at most as many as layers.
    """
    order = segment_order(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0, guesses))
    if stages == 1:
        return (order,)
    found_layers = layers(model)
    ends = accumulate(layers_per_stage(len(found_layers.line), stages), initial=0)
    own = [tuple(name for layer in found_layers.line[start:end] for name in layer if name) for start, end in pairwise(ends)]
    own[0] = order[:1] + own[0]
    own[-1] += order[1 + len(found_layers.names) :]
    return tuple(own)


@lru_cache(maxsize=256)
def stage_groups(model: Model, guesses: int, stages: int) -> tuple[StageGroup, ...]:
    """Groups of equal pipeline stages, in the order of their first one; arguments as of `stage_orders`."""
    places: dict[tuple[str, ...], list[int]] = {}
    for place, order in enumerate(stage_orders(model, guesses, stages)):
        places.setdefault(order, []).append(place)
    return tuple(StageGroup(tuple(several), order) for order, several in places.items())


def messages_between_nodes(places: tuple[int, ...], tp: Any, size: Any) -> Any:
    """Number of stages among some whose message to the next stage leaves its node. [-]

    Stages fill nodes one after the other. A stage that fits in a node is in one node; a larger one has whole nodes, as its
    allreduces have (`machine.device_links.split_into_nodes`).

    Args:
        places: of the stages in the pipeline, the last one of all left out.
        tp: devices of a stage.
        size: devices of a node; None where one node has all.

    >>> messages_between_nodes((0, 1, 2, 3), 2, 8), messages_between_nodes((0, 1), 8, 8), messages_between_nodes((0,), 8, None)
    (1, 2, 0)
    """
    if size is None:
        return 0
    together = maximum(size // tp, 1)
    return sum(((place + 1) % together == 0) * 1 for place in places)
