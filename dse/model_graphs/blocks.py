"""Blocks of a graph: kernels between two points of the residual stream, and those after all of them."""

from dataclasses import dataclass

from dse.model_graphs.flow import START, Flow
from dse.model_graphs.steps import KernelStep, assign_weights, kernel_steps


@dataclass(slots=True)
class Block:
    """Kernels between two points of the residual stream of a graph.

    Needs of its kernels are places in the block, or `START` for its input.
    """

    steps: list[KernelStep]

    @property
    def attends(self) -> bool:
        """Whether it has attention."""
        return any(step.kind == "attention" for step in self.steps)

    def of_kind(self, kind: str) -> list[KernelStep]:
        """Kernels of the block of one kind, in order."""
        return [step for step in self.steps if step.kind == kind]


@dataclass(slots=True)
class GraphBlocks:
    """Blocks of a graph in order, and the single kernels after the last one, as final norm and head.

    Attributes:
        blocks, after: the kernels that the first output needs.
        unused: kernels with weights that it does not need, which nothing counts.
    """

    blocks: list[Block]
    after: list[KernelStep]
    unused: list[KernelStep]


def graph_blocks(flow: Flow) -> GraphBlocks:
    """Blocks of a graph in order, and what is after them.

    The residual stream is at a point where all that follows needs one result alone. Single kernels between such points belong
    to the block before them, and after the last block to the head, where a graph has one.
    """
    steps, unused = _needed_steps(flow, kernel_steps(flow))
    pieces = _pieces(steps)
    several = [place for place, piece in enumerate(pieces) if len(piece) > 1]
    if not several:
        return GraphBlocks([_block(steps, range(len(steps)))], [], unused)
    first, last = several[0], several[-1]
    kept = [piece for piece in pieces[:first] if any(step_has_weights(steps[place]) for place in piece)]
    groups = [[place for piece in (*kept, pieces[first]) for place in piece]]
    for piece in pieces[first + 1 : last + 1]:
        if len(piece) > 1:
            groups.append(list(piece))
        else:
            groups[-1] += piece
    after = [place for piece in pieces[last + 1 :] for place in piece]
    if flow.embedding is None and not any(steps[place].kind == "product" for place in after):
        groups[-1] += after
        after = []
    return GraphBlocks([_block(steps, group) for group in groups], [steps[place] for place in after], unused)


def step_has_weights(step: KernelStep) -> bool:
    """Whether a kernel has stored tensors."""
    return bool(step.weights)


def _needed_steps(flow: Flow, steps: list[KernelStep]) -> tuple[list[KernelStep], list[KernelStep]]:
    """Kernels that the first output on hidden states needs, and others with weights of their own."""
    owner = {place: index for index, step in enumerate(steps) for place in step.members}
    ends = [source for name in flow.graph.outputs for source in sorted(flow.sources(name)) if source != START]
    if not ends:
        raise flow.graph.refuse("no output depends on hidden states; export a layer that returns them, or a model with logits")
    needed, stack = set[int](), [owner[ends[0]]]
    while stack:
        place = stack.pop()
        if place not in needed:
            needed.add(place)
            stack += [need for need in steps[place].needs if need != START]
    places = {old: new for new, old in enumerate(sorted(needed))} | {START: START}
    kept = [steps[old] for old in sorted(needed)]
    for step in kept:
        step.needs = [places[need] for need in step.needs]
    assign_weights(flow, kept)
    stored = frozenset[str]().union(*(step.weights for step in kept))
    return kept, [step for place, step in enumerate(steps) if place not in needed and step.weights - stored]


def _pieces(steps: list[KernelStep]) -> list[list[int]]:
    """Places of kernels between points through which all results pass."""
    furthest: dict[int, int] = {}
    for place, step in enumerate(steps):
        for need in step.needs:
            furthest[need] = place
    pieces: list[list[int]] = [[]]
    reach = furthest.get(START, START)
    for place in range(len(steps)):
        pieces[-1].append(place)
        if reach <= place and place < len(steps) - 1:
            pieces.append([])
        reach = max(reach, furthest.get(place, place))
    return pieces


def _block(steps: list[KernelStep], places: "list[int] | range") -> Block:
    """A block of some kernels, with needs as places in it."""
    inside = {old: new for new, old in enumerate(places)}
    for place in places:
        steps[place].needs = sorted({inside.get(need, START) for need in steps[place].needs})
    return Block([steps[place] for place in places])
