"""Operators of a graph that compute on hidden states, without views, tables and masks."""

from collections.abc import Iterable
from functools import cached_property

from dse.model_graphs.graph import INPUT, WEIGHT, GraphNode, GraphTensor, ModelGraph, sorted_nodes
from dse.model_graphs.operations import CREATE, ELEMENTS, GATHER, VIEW, Operation, operation_of
from dse.model_graphs.sizes import BATCH, PAST, TOKENS, Size, growth_order

START = -1
"""Place of what a graph starts from: embedded tokens, or hidden states that come in."""

NOTHING: frozenset[int] = frozenset()
JOINING = ("cat", "concat", "stack", "sequenceat")
"""Views of several tensors side by side."""

ONE = Size.constant(1)


class Flow:
    """Operators of a graph that compute on hidden states, and where their operands come from.

    Attributes:
        graph: with batch, tokens and past as symbols of all sizes.
        nodes: operators on hidden states, in order.
        meanings: what each does.
        embedding: table of tokens that the graph starts from; None where hidden states come in.
        positions: rows of a learned table of positions; 0 for none.
        hidden: values of a token in the hidden states.
    """

    def __init__(self, graph: ModelGraph) -> None:
        self.graph = graph
        self.nodes: list[GraphNode] = []
        self.meanings: list[Operation] = []
        self.embedding: str | None = None
        self.positions = 0
        self._sources: dict[str, frozenset[int]] = {}
        self._weights: dict[str, frozenset[str]] = {}
        self._bases: dict[str, str] = {}
        self._makers: dict[str, GraphNode] = {}
        self._own: dict[str, Size | None] = {}
        order = sorted_nodes(graph)
        _name_symbols(graph)
        start = self._find_start(order)
        for name, tensor in graph.tensors.items():
            if tensor.kind == WEIGHT:
                self._weights[name] = frozenset((name,))
        self._sources[start] = frozenset((START,))
        for node in order:
            self._visit(node, start)
        self.hidden = self._last_size(start)
        if not self.nodes:
            raise graph.refuse("no operator computes on hidden states; export a decoder layer or a whole model")

    def sources(self, name: str) -> frozenset[int]:
        """Places of the operators that compute a tensor, through views; empty for tables, masks and weights."""
        return self._sources.get(name, NOTHING)

    def weights(self, name: str) -> frozenset[str]:
        """Stored tensors that a table is made of; empty for what depends on hidden states."""
        return NOTHING_STORED if self.sources(name) else self._weights.get(name, NOTHING_STORED)

    def operands(self, place: int) -> list[str]:
        """Inputs of an operator that depend on hidden states."""
        return [name for name in self.nodes[place].inputs if self.sources(name)]

    def tables(self, place: int) -> list[str]:
        """Other inputs of an operator: weights, masks and tables."""
        return [name for name in self.nodes[place].inputs if name and not self.sources(name)]

    @cached_property
    def takers(self) -> list[list[int]]:
        """Of each operator, those that take its results."""
        takers: list[list[int]] = [[] for _ in self.nodes]
        for place in range(len(self.nodes)):
            for source in sorted({source for name in self.nodes[place].inputs for source in self.sources(name)}):
                if source != START:
                    takers[source].append(place)
        return takers

    def tensor(self, name: str) -> GraphTensor:
        """The tensor of a name; one of no shape for other names."""
        return self.graph.tensors.get(name) or GraphTensor(None)

    def count(self, name: str) -> Size | None:
        """Values of a tensor; None if nothing says its shape.

        Raises:
            DesignError: the shape depends on values.
        """
        count = self.tensor(name).count
        strange = set() if count is None else count.symbols - {BATCH, TOKENS, PAST}
        if strange:
            raise self.graph.refuse(
                f"the shape of {name!r} depends on values of tensors ({min(strange)}); "
                "export a form with fixed shapes, as grouped or batched experts"
            )
        return count

    def result_size(self, place: int) -> Size:
        """Values that an operator computes, or at least takes, where nothing says its result.

        Raises:
            DesignError: no shape of it is known.
        """
        names = (*self.nodes[place].outputs, *self.operands(place))
        known = next((count for name in names if (count := self.count(name)) is not None), None)
        if known is None:
            raise self.graph.refuse(
                f"operator {self.nodes[place].name!r} has no shapes; export with torch.onnx.export(dynamo=True)"
            )
        return known

    def last_size(self, name: str, *, back: int = 1) -> int | None:
        """Number of the last dimension of a tensor, or of one before it; None if it is unknown or no number."""
        shape = self.tensor(name).shape
        size = shape[-back] if shape is not None and len(shape) >= back else None
        return None if size is None else size.number

    def stated_size(self, name: str) -> int | None:
        """The last dimension of a tensor, or of what it is a copy of."""
        own, maker = self.last_size(name), self._makers.get(name)
        if own is not None or maker is None or not maker.inputs or operation_of(maker.target).name in ("transpose", "reshape"):
            return own
        return self.stated_size(maker.inputs[0])

    def own_size(self, name: str) -> Size | None:
        """Different values of a tensor, without the copies that views make of keys for more query heads."""
        if name not in self._own:
            self._own[name] = None  # against cycles through copies in place
            self._own[name] = self._find_own_size(name)
        return self._own[name]

    def _find_own_size(self, name: str) -> Size | None:
        count, node = self.tensor(name).count, self._makers.get(name)
        if node is None or not node.inputs:
            return count
        meaning, data = operation_of(node.target), [name for name in node.inputs if self.sources(name)]
        if name in self._bases.values() and meaning.kind == CREATE:
            return self._copied_size(name) or count
        if meaning.name in JOINING and data:
            return _sum(self.own_size(each) for each in node.inputs)
        if meaning.kind == VIEW:
            own = self.own_size(node.inputs[0])
            double = Size.constant(2 if meaning.name == "view_as_real" else 1)
            return _least(count, None if own is None else own * double)
        if not data:
            return count
        if len(data) == 1 and meaning.kind in ("elements", "unknown") and count in (None, self.tensor(data[0]).count):
            return self.own_size(data[0])
        return count

    def _copied_size(self, base: str) -> Size | None:
        """Different values that are copied into parts of a tensor that was created empty."""
        parts = [node.inputs[1] for node in self._copies.get(base, []) if len(node.inputs) > 1]
        return _sum(self.own_size(each) for each in parts) if parts else None

    @cached_property
    def _copies(self) -> dict[str, list[GraphNode]]:
        copies: dict[str, list[GraphNode]] = {}
        for node in self.graph.nodes:
            if operation_of(node.target).name == "copy" and node.inputs:
                copies.setdefault(self._bases.get(node.inputs[0], node.inputs[0]), []).append(node)
        return copies

    def path_back(self, name: str) -> Iterable[GraphNode]:
        """Operators that a table or mask is made by, nearest first."""
        seen, stack = {name}, [name]
        while stack:
            node = self._makers.get(stack.pop())
            if node is None:
                continue
            yield node
            for each in node.inputs:
                if each not in seen:
                    seen.add(each)
                    stack.append(each)

    def _find_start(self, order: list[GraphNode]) -> str:
        """The tensor of hidden states that all begins with."""
        self._makers = {name: node for node in order for name in node.outputs}
        tensors = self.graph.tensors
        for node in order:
            if operation_of(node.target).kind == GATHER and len(node.inputs) > 1 and self._is_given(node.inputs[1]):
                table = tensors.get(node.inputs[0])
                if table is not None and table.kind == WEIGHT and table.shape is not None and len(table.shape) == 2:
                    self.embedding = node.inputs[0]
                    return node.outputs[0]
        for name in self.graph.inputs:
            tensor = tensors[name]
            if not tensor.integer and tensor.shape is not None and len(tensor.shape) > 1 and self._last_size(name, missing=0):
                return name
        raise self.graph.refuse("neither token ids nor hidden states come in; export forward(ids) or forward(hidden, ...)")

    def _is_given(self, name: str) -> bool:
        """Whether a tensor is an input of whole numbers, through views."""
        tensor = self.graph.tensors.get(name)
        while tensor is not None and tensor.kind != INPUT:
            node = self._makers.get(name)
            if node is None or operation_of(node.target).kind != VIEW or not node.inputs:
                return False
            name = node.inputs[0]
            tensor = self.graph.tensors.get(name)
        return tensor is not None and tensor.integer

    def _last_size(self, name: str, *, missing: int | None = None) -> int:
        shape = self.graph.tensors[name].shape
        size = shape[-1].number if shape and shape[-1] is not None else None
        if size is None and missing is None:
            raise self.graph.refuse(f"the width of hidden states ({name!r}) is no fixed number")
        return size or 0

    def _visit(self, node: GraphNode, start: str) -> None:
        """Note where the results of an operator come from."""
        meaning = _meaning(node)
        if start in node.outputs or not node.outputs:
            return
        inputs = [name for name in node.inputs if name]
        if meaning.kind == VIEW and meaning.name not in JOINING:
            inputs = inputs[:1]  # others are shapes, and tensors of whose shape or type a view is
        data: frozenset[int] = frozenset().union(*(self.sources(name) for name in inputs))
        stored: frozenset[str] = frozenset().union(*(self._weights.get(name, NOTHING_STORED) for name in inputs))
        if meaning.name == "copy" and len(node.inputs) > 1:
            data = self.sources(node.inputs[1])
            base = self._bases.get(inputs[0], inputs[0])
            self._sources[base] = self.sources(base) | data
        elif meaning.kind == CREATE:
            data, stored = NOTHING, NOTHING_STORED
        elif data and meaning.kind != VIEW:
            data = frozenset((len(self.nodes),))
            self.nodes.append(node)
            self.meanings.append(meaning)
        elif meaning.kind == GATHER and not data and stored:
            self._note_positions(node)
        for name in node.outputs:
            self._sources[name], self._weights[name] = data, stored
            if inputs and meaning.kind == VIEW:
                self._bases[name] = self._bases.get(inputs[0], inputs[0])
            else:
                self._bases[name] = name

    def _note_positions(self, node: GraphNode) -> None:
        """Note a learned table of positions, of which a row is added to each token."""
        shape = self.tensor(node.inputs[0]).shape
        if shape is not None and len(shape) == 2 and shape[0] is not None and node.inputs[0] in self._weights:
            self.positions = max(self.positions, shape[0].number or 0)


NOTHING_STORED: frozenset[str] = frozenset()


def _meaning(node: GraphNode) -> Operation:
    """What an operator does; elements where its vector operations are stated."""
    meaning, stated = operation_of(node.target), node.attributes.get("operations")
    return meaning if stated is None else Operation(ELEMENTS, meaning.name, float(stated))


def _sum(sizes: Iterable[Size | None]) -> Size | None:
    total: Size | None = Size.constant(0)
    for size in sizes:
        total = None if size is None or total is None else total + size
    return total


def _least(count: Size | None, other: Size | None) -> Size | None:
    """The smaller of two sizes that grow alike; what is known where one is not."""
    if count is None or other is None:
        return count or other
    return min(count, other, key=growth_order)


def _name_symbols(graph: ModelGraph) -> None:
    """Give symbols of all sizes the names batch, tokens and past, by the shapes of the inputs.

    Raises:
        DesignError: no input has a symbol for tokens.
    """
    names: dict[str, str] = {}
    for name in graph.inputs:
        shape = graph.tensors[name].shape
        own = [] if shape is None else [size for size in shape[:2] if size is not None]
        symbols = [min(size.symbols) if len(size.symbols) == 1 and len(size.terms) == 1 else "" for size in own]
        if len(symbols) == 2 and any(symbols):
            if symbols[1] and symbols[0] != symbols[1]:
                names = {symbols[1]: TOKENS} | ({symbols[0]: BATCH} if symbols[0] else {})
            elif symbols[0] and shape is not None and len(shape) == 2 and not graph.tensors[name].integer:
                names = {symbols[0]: TOKENS}
            break
    if TOKENS not in names.values():
        raise graph.refuse(
            "no input has a symbolic number of tokens in its second dimension; export with dynamic_shapes for batch and tokens"
        )
    for name in graph.inputs:
        for size in graph.tensors[name].shape or ():
            for symbol in sorted(size.symbols if size is not None else ()):
                names.setdefault(symbol, PAST)
    for tensor in graph.tensors.values():
        if tensor.shape is not None:
            tensor.shape = tuple(None if size is None else size.rename(names) for size in tensor.shape)
