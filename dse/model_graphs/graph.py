"""Graphs as readers leave them: tensors with symbolic shapes, and operators in order."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dse.model_graphs.sizes import Size, product_of
from dse.space.errors import DesignError

MAX_NODES = 200_000
"""Operators of a graph at most; those of models of today have some ten thousand."""

INPUT, WEIGHT, VALUE = "input", "weight", "value"
"""What a tensor is: given at each run, stored, or computed."""

Shape = tuple[Size | None, ...]


@dataclass(slots=True)
class GraphTensor:
    """A tensor: its shape, what it is, and whether it has whole numbers, as token ids have.

    Attributes:
        shape: None where no one says it.
        kind: `INPUT`, `WEIGHT` or `VALUE`.
        integer: whether values are whole numbers or truth values.
        stored: what identifies stored values that two names share.
        number: its value, if it is one known whole number.
    """

    shape: Shape | None
    kind: str = VALUE
    integer: bool = False
    stored: str = ""
    number: int | None = None

    @property
    def count(self) -> Size | None:
        """Number of values; None if the shape is unknown."""
        if self.shape is None or any(size is None for size in self.shape):
            return None
        return product_of(size for size in self.shape if size is not None)


@dataclass(slots=True)
class GraphNode:
    """An operator of a graph: its name, what it is called in the file, and what goes in and out."""

    name: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ModelGraph:
    """A model, or a layer of one, as a file has it."""

    where: str
    name: str
    tensors: dict[str, GraphTensor]
    nodes: list[GraphNode]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str
    declared: dict[str, Any] = field(default_factory=dict)

    def refuse(self, text: str) -> DesignError:
        """An error that names the file."""
        return DesignError(f"{self.where}: {text}")


def sorted_nodes(graph: ModelGraph) -> list[GraphNode]:
    """Operators in an order in which each follows those whose results it takes.

    Raises:
        DesignError: too many operators, a cycle, or a tensor that two operators make.
    """
    if len(graph.nodes) > MAX_NODES:
        raise graph.refuse(f"{len(graph.nodes):,} operators, more than {MAX_NODES:,}; export one layer of the model")
    makers: dict[str, int] = {}
    for place, node in enumerate(graph.nodes):
        for name in node.outputs:
            if name in makers:
                raise graph.refuse(f"operators {graph.nodes[makers[name]].name!r} and {node.name!r} both make {name!r}")
            makers[name] = place
    return [graph.nodes[place] for place in _order(graph, makers)]


def _order(graph: ModelGraph, makers: Mapping[str, int]) -> Sequence[int]:
    """Places of operators, each after those it needs, and otherwise in the order of the file."""
    waiting = [len({makers[name] for name in node.inputs if name in makers}) for node in graph.nodes]
    takers: list[list[int]] = [[] for _ in graph.nodes]
    for place, node in enumerate(graph.nodes):
        for maker in {makers[name] for name in node.inputs if name in makers}:
            takers[maker].append(place)
    ready = [place for place, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for taker in takers[place]:
            waiting[taker] -= 1
            if not waiting[taker]:
                heapq.heappush(ready, taker)
    if len(order) < len(graph.nodes):
        stuck = next(graph.nodes[place].name for place, count in enumerate(waiting) if count)
        raise graph.refuse(f"operators form a cycle with {stuck!r}; a layer's state must come in as an input")
    return order
