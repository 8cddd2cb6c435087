"""Kernels for the operators of a graph: products, attention, norms, and fused elements."""

from dataclasses import dataclass, field

from dse.model_graphs.flow import START, Flow
from dse.model_graphs.operations import (
    ATTENTION,
    ELEMENTS,
    EXPERTS,
    GATHER,
    NORM,
    PRODUCT,
    ROTATION,
    SOFTMAX,
    UNKNOWN,
    common_name,
)
from dse.model_graphs.sizes import Size, growth_order

MEANS = ("mean", "reducemean")
SQUARES = ("pow", "mul", "square")
ROOTS = ("add", "sqrt", "rsqrt", "reciprocal", "div", "pow", "clamp", "clip")
"""Elementwise operators between the mean square of a norm and its product with what is normed."""

NORM_OPERATIONS, NORM_PASSES = 4.0, 2


@dataclass(slots=True)
class KernelStep:
    """One kernel on hidden states, made of some operators of a graph.

    Attributes:
        kind: product, attention, norm or elements.
        members: places of its operators; the last one leaves its result.
        size: results of a product, norm or elements; queries of attention.
        width: columns of a result row.
        inner: values that a product sums over.
        matrices, chosen: weight matrices of a product, and those that each token goes to; 0 chosen for all.
        apart: parts of a matrix with rows of their own.
        weights: stored tensors that it is the first to use.
        operands: tensors that it takes, those of attention as queries, keys and values.
        unknown: names of operators that no kernel is known for.
        turned: columns that a table of positions rotates; 0 for none.
    """

    kind: str
    members: tuple[int, ...]
    size: Size
    width: int = 1
    inner: int = 1
    matrices: int = 1
    chosen: int = 0
    apart: int = 1
    heads: int = 1
    kv_heads: int = 1
    qk_dim: int = 1
    v_dim: int = 1
    window: int = 0
    keys: str = ""
    values: str = ""
    operations: float = 0.0
    passes: int = 0
    weights: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()
    turned: int = 0
    topk: tuple[int, ...] = ()
    needs: list[int] = field(default_factory=list)

    @property
    def last_member(self) -> int:
        """Place of the operator that leaves the result."""
        return self.members[-1]


def kernel_steps(flow: Flow) -> list[KernelStep]:
    """Kernels of all operators on hidden states, in order, each with the places of those it needs."""
    maker = _StepMaker(flow)
    steps = sorted(maker.find_steps(), key=lambda step: step.last_member)
    owner = {place: index for index, step in enumerate(steps) for place in step.members}
    for index, step in enumerate(steps):
        places = {source for place in step.members for name in flow.operands(place) for source in flow.sources(name)}
        needs = {START if place == START else owner[place] for place in places}
        step.needs = sorted(needs - {index})
    assign_weights(flow, steps)
    return steps


def assign_weights(flow: Flow, steps: list[KernelStep]) -> None:
    """Give each stored tensor to the first kernel that uses it."""
    seen: set[str] = set() if flow.embedding is None else {flow.embedding}
    for step in steps:
        names = frozenset(
            weight
            for place in step.members
            for table in flow.tables(place)
            if (own := flow.own_size(table)) is not None and own.grows_with == "step"
            for weight in flow.weights(table)
            if _is_weight(flow, weight)
        )
        step.weights = names if step.kind == "norm" else names - seen  # exporters merge norms of equal values
        seen |= names


def _is_weight(flow: Flow, name: str) -> bool:
    """Whether a stored tensor is a weight: no single number, and no list of whole numbers, as shapes are."""
    shape = flow.tensor(name).shape
    return bool(shape) and flow.count(name) != Size.constant(1) and (len(shape or ()) > 1 or not flow.tensor(name).integer)


class _StepMaker:
    """Matches operators of a flow to kernels; each operator is in one of them."""

    def __init__(self, flow: Flow) -> None:
        self._flow, self._used = flow, set[int]()

    def find_steps(self) -> list[KernelStep]:
        flow, steps = self._flow, list[KernelStep]()
        for place, meaning in enumerate(flow.meanings):
            if place in self._used:
                continue
            made = None
            if meaning.kind == NORM:
                made = self._norm((place,), place)
            elif meaning.name in MEANS:
                made = self._written_out_norm(place)
            elif meaning.kind == ATTENTION:
                made = self._attention(place)
            elif meaning.kind == SOFTMAX:
                made = self._written_out_attention(place)
            if made is not None:
                steps.append(made)
                self._used.update(made.members)
        for place, meaning in enumerate(flow.meanings):
            if place not in self._used and meaning.kind in (PRODUCT, EXPERTS):
                made = self._product(place)
                steps.append(made)
                self._used.update(made.members)
        return [*steps, *self._fused_elements()]

    def _operand(self, place: int) -> frozenset[int]:
        """Operators behind the only operand of an operator; nothing where it has several."""
        operands = self._flow.operands(place)
        return self._flow.sources(operands[0]) if len({self._flow.sources(name) for name in operands}) == 1 else frozenset()

    def _only_taker(self, place: int) -> int | None:
        takers = self._flow.takers[place]
        return takers[0] if len(takers) == 1 else None

    def _norm(self, members: tuple[int, ...], last: int) -> KernelStep:
        """A norm, with the product with its weights and the sum with its biases."""
        flow = self._flow
        for names in (("mul",), ("add",)):
            taker = self._only_taker(last)
            if taker is None or flow.meanings[taker].name not in names or len(flow.operands(taker)) != 1:
                break
            if not any(flow.weights(name) for name in flow.tables(taker)):
                break
            members, last = (*members, taker), taker
        width = flow.last_size(flow.nodes[last].outputs[0]) or 1
        return KernelStep("norm", members, flow.result_size(last), width=width, operations=NORM_OPERATIONS, passes=NORM_PASSES)

    def _written_out_norm(self, mean: int) -> KernelStep | None:
        """A norm as squares, their mean, its root, and a product; None where a mean is of something else."""
        flow = self._flow
        square = next(iter(self._operand(mean)), START)
        if square == START or flow.meanings[square].name not in SQUARES or square in self._used:
            return None
        normed = self._operand(square)
        members, place = [square, mean], mean
        while True:
            taker = self._only_taker(place)
            if taker is None:
                return None
            others = {flow.sources(name) for name in flow.operands(taker)} - {frozenset((place,))}
            members.append(taker)
            if len(others) == 1 and self._is_same(next(iter(others)), normed) and flow.meanings[taker].name in ("mul", "div"):
                normed |= next(iter(others))
                break
            if others or flow.meanings[taker].name not in ROOTS:
                return None
            place = taker
        return self._norm((*self._centring(normed, square, members[-1]), *members), members[-1])

    def _is_same(self, sources: frozenset[int], others: frozenset[int]) -> bool:
        """Whether two operands are one, or the same difference computed twice."""
        flow = self._flow
        if sources == others:
            return True
        pair = [next(iter(each), START) for each in (sources, others)]
        if len(sources) != 1 or len(others) != 1 or START in pair or any(flow.meanings[each].name != "sub" for each in pair):
            return False
        first, second = ([flow.sources(name) for name in flow.nodes[each].inputs] for each in pair)
        return first == second

    def _centring(self, normed: frozenset[int], square: int, last: int) -> tuple[int, ...]:
        """Of a layer norm: the mean, and the difference from it once or twice, before its squares."""
        flow = self._flow
        if START in normed or any(flow.meanings[place].name != "sub" or place in self._used for place in normed):
            return ()
        if {taker for place in normed for taker in flow.takers[place]} != {square, last}:
            return ()
        means = {source for place in normed for name in flow.operands(place) for source in flow.sources(name)} - {START}
        mean = next((source for source in means if flow.meanings[source].name in MEANS), None)
        return () if mean is None or set(flow.takers[mean]) != normed else (mean, *sorted(normed))

    def _attention(self, place: int) -> KernelStep:
        """Attention as one operator of a graph."""
        flow, node = self._flow, self._flow.nodes[place]
        operands = flow.operands(place)[:3]
        if len(operands) < 3:
            raise flow.graph.refuse(
                f"attention {node.name!r} has {len(operands)} operands of hidden states, not 3; split its inputs"
            )
        heads = int(node.attributes.get("q_num_heads") or node.attributes.get("num_heads") or 0)
        return self._attention_step((place,), operands, heads, flow.tables(place))

    def _written_out_attention(self, softmax: int) -> KernelStep | None:
        """Attention as a product, a softmax and a product; None where the softmax is of something else."""
        scores, masks = self._scores(softmax)
        output, between = (None, []) if scores is None else self._weighted_sum(scores)
        if scores is None or output is None or softmax not in between:
            return None
        flow = self._flow
        queries, keys = flow.operands(scores)[-2:]
        inside = {scores, *between}
        values = [name for name in flow.operands(output) if not flow.sources(name) <= inside]
        if len(values) != 1:
            return None
        scalings = [place for name in (queries, keys) for place in self._scaling(name, scores)]
        members = (*sorted({*inside, *scalings}), output)
        return self._attention_step(members, [queries, keys, values[0]], 0, masks)

    def _scaling(self, operand: str, scores: int) -> frozenset[int]:
        """The product of queries or keys with one number before they meet; empty where there is none."""
        flow, sources = self._flow, self._flow.sources(operand)
        place = next(iter(sources), START)
        if len(sources) != 1 or place == START or flow.meanings[place].name not in ("mul", "div"):
            return frozenset()
        one_number = all(flow.own_size(table) == Size.constant(1) for table in flow.tables(place))
        return sources if one_number and len(flow.operands(place)) == 1 and flow.takers[place] == [scores] else frozenset()

    def _scores(self, softmax: int) -> tuple[int | None, list[str]]:
        """The product whose results a softmax takes over elements, and their masks; None where there is none."""
        flow, masks, products = self._flow, list[str](), set[int]()
        seen, frontier = {softmax}, [softmax]
        while frontier:
            place = frontier.pop()
            masks += flow.tables(place)
            for source in (source for name in flow.operands(place) for source in flow.sources(name)):
                if source == START or source in self._used:
                    return None, []
                if flow.meanings[source].kind == PRODUCT:
                    products.add(source)
                elif flow.meanings[source].kind != ELEMENTS:
                    return None, []
                elif source not in seen:
                    seen.add(source)
                    frontier.append(source)
        scores = products.pop() if len(products) == 1 else None
        return (scores, masks) if scores is not None and self._is_of_two(scores) else (None, [])

    def _weighted_sum(self, scores: int) -> tuple[int | None, list[int]]:
        """The product of weights from scores with values, and what is between; None where scores go elsewhere too."""
        flow, between, frontier = self._flow, set[int](), [scores]
        products: set[int] = set()
        while frontier:
            for taker in flow.takers[frontier.pop()]:
                if flow.meanings[taker].kind == PRODUCT and self._is_of_two(taker):
                    products.add(taker)
                elif flow.meanings[taker].kind not in (ELEMENTS, SOFTMAX):
                    return None, []
                elif taker not in between:
                    between.add(taker)
                    frontier.append(taker)
        return (products.pop(), sorted(between)) if len(products) == 1 else (None, [])

    def _is_of_two(self, place: int) -> bool:
        return len(self._flow.operands(place)) >= 2

    def _attention_step(self, members: tuple[int, ...], operands: list[str], heads: int, masks: list[str]) -> KernelStep:
        flow, where = self._flow, self._flow.nodes[members[-1]].name
        queries, keys, values = operands
        size, own_keys, own_values = flow.count(queries), flow.own_size(keys), flow.own_size(values)
        output = flow.nodes[members[-1]].outputs[0]
        if size is None or own_keys is None or own_values is None:
            raise flow.graph.refuse(
                f"attention {where!r} has operands of unknown shapes; export with dynamic_shapes and dynamo=True"
            )
        if "token" not in (own_keys.grows_with, own_values.grows_with) and "pair" not in (
            own_keys.grows_with,
            own_values.grows_with,
        ):
            raise flow.graph.refuse(f"attention {where!r} looks at another sequence, which has no kernel; leave it out")
        width = size.coefficient
        qk_dim = width // heads if heads else flow.last_size(queries) or 1
        heads = heads or max(width // qk_dim, 1)
        v_dim = (flow.last_size(values) if len(members) == 1 and flow.last_size(queries) == qk_dim else None) or 0
        v_dim = v_dim or max((flow.count(output) or size).coefficient // heads, 1)
        k, v = _per_token(own_keys), _per_token(own_values)
        kv_heads = k // qk_dim
        if not kv_heads or k != kv_heads * qk_dim or v != kv_heads * v_dim:
            kv_heads = heads
        if heads % kv_heads:
            raise flow.graph.refuse(
                f"attention {where!r} has {heads} heads, which {kv_heads} KV heads do not divide; change one"
            )
        return KernelStep(
            "attention", members, size, width=heads * v_dim, heads=heads, kv_heads=kv_heads, qk_dim=qk_dim, v_dim=v_dim,
            window=flow.nodes[members[-1]].attributes.get("window") or self._window(masks), keys=keys, values=values,
        )  # fmt: skip

    def _window(self, masks: list[str]) -> int:
        """Tokens of a sliding window that a mask compares with: a whole number taken from positions; 0 for none."""
        flow = self._flow
        for mask in masks:
            for node in flow.path_back(mask):
                if common_name(node.target) in ("sub", "add"):
                    numbers = [*node.attributes.get("numbers", ())]
                    numbers += [flow.tensor(name).number or 0 for name in node.inputs]
                    window = max((abs(number) for number in numbers), default=0)
                    if 1 < window < MAX_WINDOW and flow.tensor(node.outputs[0]).integer:
                        return window
        return 0

    def _product(self, place: int) -> KernelStep:
        """A product with weights, or of two results."""
        flow, node = self._flow, self._flow.nodes[place]
        output = node.outputs[0]
        weights = [name for name in node.inputs if flow.weights(name) and len(flow.tensor(name).shape or ()) > 1]
        gathered = self._gathered_weights(place)
        size = flow.result_size(place)
        if not weights and gathered is None:
            return self._product_of_two(place, size)
        weight = weights[0] if weights else gathered
        assert weight is not None
        stored = flow.own_size(weight)
        columns = flow.last_size(output) or 1
        left = [name for name in flow.operands(place) if name not in (weight,)]
        inner = self._inner(place, left[0], weight)
        total = 1 if stored is None else stored.number or 1
        matrices = max(total // (inner * columns), 1) if inner else 1
        if flow.meanings[place].kind == EXPERTS or gathered is not None:
            rows = max(size.coefficient // columns, 1)
            return KernelStep(
                "product", (place,), size, width=columns, inner=inner, matrices=matrices, chosen=min(rows, matrices)
            )
        members = (place, *self._bias(place, columns))
        apart = int(node.attributes.get("apart") or (1 if node.attributes.get("inner") else matrices))
        return KernelStep("product", members, size, width=max(total // inner, 1), inner=inner, apart=apart)

    def _bias(self, place: int, columns: int) -> tuple[int, ...]:
        """The sum of the results of a product with biases, where it is an operator of its own."""
        flow, taker = self._flow, self._only_taker(place)
        if taker is None or flow.meanings[taker].name != "add" or len(flow.operands(taker)) != 1 or taker in self._used:
            return ()
        counts = [flow.count(table) for table in flow.tables(taker) if flow.weights(table)]
        return (taker,) if len(counts) == 1 and counts[0] == Size.constant(columns) else ()

    def _gathered_weights(self, place: int) -> str | None:
        """The stored matrices of which a product takes some for each token."""
        flow = self._flow
        for name in flow.operands(place):
            for source in flow.sources(name):
                if source != START and flow.meanings[source].kind == GATHER:
                    tables = [table for table in flow.tables(source) if flow.weights(table)]
                    if tables and len(flow.tensor(tables[0]).shape or ()) == 3:
                        return tables[0]
        return None

    def _inner(self, place: int, left: str, weight: str) -> int:
        """Values that a product with weights sums over."""
        flow, node = self._flow, self._flow.nodes[place]
        stated = node.attributes.get("inner")
        names = [name for name in node.inputs if name in (left, weight)]
        sizes = [flow.stated_size(left)] if names[:1] != [weight] else [flow.last_size(weight)]
        size = int(stated) if stated else sizes[0]
        if not size:
            raise flow.graph.refuse(f"product {node.name!r} sums over an unknown number of values")
        return size

    def _product_of_two(self, place: int, size: Size) -> KernelStep:
        """A product of two results, with as many multiply-adds as its result has values times what it sums over."""
        flow, node = self._flow, self._flow.nodes[place]
        left = flow.operands(place)[0]
        shape = flow.tensor(left).shape
        inner = shape[-1] if shape else None
        stated = node.attributes.get("inner")
        terms = Size.constant(int(stated)) if stated else node.attributes.get("inner_size", inner)
        if terms is None:
            raise flow.graph.refuse(f"product {node.name!r} sums over an unknown number of values")
        macs = size * terms
        unknown = (f"product{OF_PAIRS}",) if macs.grows_with == "pair" else ()
        return KernelStep("product", (place,), macs, width=macs.coefficient, inner=1, matrices=0, unknown=unknown)

    def _fused_elements(self) -> list[KernelStep]:
        """Elements of all other operators; one kernel for those whose results only it takes."""
        flow = self._flow
        group: dict[int, int] = {}
        rest = [place for place in range(len(flow.nodes)) if place not in self._used]
        for place in reversed(rest):
            takers = {group.get(taker) for taker in flow.takers[place]}
            same = next(iter(takers)) if len(takers) == 1 and None not in takers else None
            alike = same is not None and flow.result_size(same).grows_with == flow.result_size(place).grows_with
            group[place] = same if same is not None and alike else place
        members: dict[int, list[int]] = {}
        for place in rest:
            members.setdefault(group[place], []).append(place)
        return [self._elements(tuple(places)) for places in members.values()]

    def _elements(self, members: tuple[int, ...]) -> KernelStep:
        flow, inside = self._flow, set(members)
        sizes = [self._work(place) for place in members]
        size = max(sizes, key=growth_order)
        most = max(size.coefficient, 1)
        operations = sum(
            flow.meanings[place].operations * work.coefficient / most for place, work in zip(members, sizes, strict=True)
        )
        taken = {name for place in members for name in flow.operands(place) if not flow.sources(name) <= inside}
        names = [flow.meanings[place].name for place in members if flow.meanings[place].kind == UNKNOWN]
        lone = any(flow.meanings[place].kind == SOFTMAX for place in members) and size.grows_with == "pair"
        unknown = (*names, *((f"softmax{OF_PAIRS}",) if lone else ()))
        turned = [
            flow.last_size(flow.nodes[place].outputs[0]) or 0
            for place in members
            if any(flow.tensor(table).count and flow.count(table).grows_with != "step" for table in flow.tables(place))  # type: ignore[union-attr]
        ]
        chosen = [place for place in members if flow.meanings[place].name == "topk"]
        turned += [
            int(flow.nodes[place].attributes.get("turned") or flow.last_size(flow.nodes[place].outputs[0]) or 0)
            for place in members
            if flow.meanings[place].name == ROTATION
        ]
        topk = tuple(value for place in chosen for value in self._choice(place))
        return KernelStep(
            "elements", members, size, width=most, operations=operations, passes=len(taken) + 1, unknown=unknown,
            turned=max(turned, default=0), topk=topk,
        )  # fmt: skip

    def _choice(self, place: int) -> tuple[int, int]:
        """Of a choice of the best: of how many, and how many."""
        flow = self._flow
        return flow.last_size(flow.operands(place)[0]) or 0, flow.last_size(flow.nodes[place].outputs[0]) or 0

    def _work(self, place: int) -> Size:
        """Elements that an operator reads or leaves, whichever are more."""
        flow = self._flow
        if flow.meanings[place].kind == GATHER:
            return flow.result_size(place)
        counts = [flow.count(name) for name in (*flow.nodes[place].outputs, *flow.operands(place))]
        known = [count for count in counts if count is not None]
        if not known:
            return flow.result_size(place)
        return max(known, key=growth_order)


OF_PAIRS = "_of_pairs"
"""Ending of the names of what runs for query-key pairs outside of attention, whose keys no cache is counted for."""

MAX_WINDOW = 1 << 24
"""Tokens of a window; larger numbers in masks are no window."""


def _per_token(size: Size) -> int:
    """Values of a token: of terms with tokens once, and no past."""
    return max((number for names, number in size.terms if names.count("tokens") == 1 and "past" not in names), default=0)
