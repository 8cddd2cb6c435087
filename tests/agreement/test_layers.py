"""A decoder layer walked from the calls of a layout, in their order and shapes, is the layer as NumPy has it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.evaluators.graph.operators import Part
from dse.evaluators.graph.routing import routing
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.collective import ALLREDUCE
from dse.evaluators.kernels.partition import PARTITION
from dse.evaluators.layouts import devices as devices_layout
from dse.evaluators.layouts import pipelines as pipelines_layout
from dse.evaluators.layouts import whole_chip
from dse.evaluators.layouts.attended import Attend
from dse.evaluators.layouts.dies import Crossing, On, Split, passes, plain
from dse.evaluators.layouts.whole_chip import turns
from dse.evaluators.numeric import devices, dies, pipelines, tiles
from dse.evaluators.numeric.layer import Layer
from dse.evaluators.passes.call import Block, alike, breadth_first
from dse.space.elementwise import Array
from dse.space.mapping import PLACEMENTS
from dse.space.model import Experts
from tests.agreement.layers import DENSE, EVEN, SPARSE, Drawn, balanced, drawn
from tests.evaluators.test_transformer import BF16
from tests.samples import asked

EXAMPLES = settings(max_examples=6, deadline=None)
ITEMSIZE = 2.0


class Walk(NamedTuple):
    """The calls of a step, and who walks those of its layer."""

    blocks: Any
    layer: Layer
    computed: Callable[[Any, Layer], Array]


def on_devices(of: Drawn, tp: int = 4, algorithm: str = "ring") -> Walk:
    blocks = devices_layout.blocks(transformer(of.model, of.at), line(of.model, of.at), tp, BF16, algorithm)
    return Walk(blocks, of.layer, lambda some, layer: devices.computed(some, layer, tp, ITEMSIZE))


def on_tiles(of: Drawn, rows: int = 2, cols: int = 2, dataflow: str = "flat_async") -> Walk:
    base = asked(
        "chip=tile32", f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", f"mapping.both.attention.dataflow={dataflow}"
    ).base
    ((_, blocks),) = turns(of.case, base.chip, base.mapping, "last")[of.phase]
    layer = of.layer._replace(parts=tuple(routing(of.model, part) for part in of.layer.parts))
    return Walk(blocks, layer, tiles.computed)


def on_cores(of: Drawn, partition: str = "k", placement: str = "ring", tp: int = 4, experts: str = "whole") -> Walk:
    mapping = asked("chip=npu64").base.mapping
    plan = replace(getattr(mapping, of.phase), partition=partition, placement=placement, tp=tp, pp=1, experts=experts)
    return Walk(pipelines_layout.blocks(of.model, of.at, plan, BF16), of.layer, pipelines.computed)


def on_dies(of: Drawn, tp: int = 2, ep: int = 4, *, tiled: bool = False) -> Walk:
    """Copies of attention have as many sequences each."""
    split = Split(tp, 1, ep, 1, max(tp, ep), 0, 1)
    each, new = of.layer.sequences // split.copies, len(of.layer.x) // of.layer.sequences
    (_, prompt, output), *_ = of.case.requests
    case = replace(of.case, requests=((each, prompt, output),))
    if tiled:
        base = asked("chip=tile32", "chip.mesh.rows=2", "chip.mesh.cols=2").base
        plan = getattr(base.mapping, of.phase)
        said = whole_chip.On(of.model, base.chip, whole_chip.Said(plan.attention, plan.gemm), ITEMSIZE, {})
        on = On(of.model, lambda part, attend: whole_chip.covered(part, attend, said), ITEMSIZE, ITEMSIZE, routing)
    else:
        on = On(of.model, _pooled, ITEMSIZE, ITEMSIZE, plain)
    (one,) = passes(case, split, on, of.phase, "last")
    parts = tuple(on.whole(of.model, part) for part in of.layer.parts)
    layer = of.layer._replace(parts=parts)

    def computed(steps: Any, layer: Layer) -> Array:
        cut = [slice(copy * each, (copy + 1) * each) for copy in range(split.copies)]
        rows = [slice(own.start * new, own.stop * new) for own in cut]
        layers = [
            layer._replace(x=layer.x[some], keys=layer.keys[own], values=layer.values[own])
            for some, own in zip(rows, cut, strict=True)
        ]
        kernels = tiles.BY_JOBS if tiled else devices.BY_NUMPY
        found = dies.computed(steps, layers, split, ITEMSIZE, kernels)
        return found.reshape(split.copies, tp, -1, layer.x.shape[1]).swapaxes(0, 1).reshape(tp, *layer.x.shape)

    return Walk(tuple(one.units[1].steps), layer, computed)


def _pooled(part: Part, attend: Attend) -> Block:
    calls = tuple(devices_layout.call(part, operator, 1, BF16, None) for operator in part.operators)
    return Block(part.name, calls, alike(calls), breadth_first(calls), float(part.times))


def right(walk: Walk, of: Drawn) -> bool:
    """Whether every worker has the layer's output."""
    return bool(np.allclose(walk.computed(walk.blocks, walk.layer), of.expected, rtol=1e-9, atol=1e-9))


def straddles(of: Drawn, tp: int) -> bool:
    """Whether heads of queries of some device have more KV heads than the layout gives one."""
    model = of.model
    here = -(-model.heads // tp)
    spans = [range(start, min(start + here, model.heads)) for start in range(0, model.heads, here)]
    each = [len({head * model.kv_heads // model.heads for head in span}) for span in spans]
    return max(each) > -(-model.kv_heads // tp)


@given(DENSE | SPARSE, st.integers(1, 5), st.sampled_from(sorted(ALLREDUCE)))
@EXAMPLES
def test_devices_compute_the_layer(of: Drawn, tp: int, algorithm: str) -> None:
    assume(not straddles(of, tp))
    assert right(on_devices(of, tp, algorithm), of)


@given(DENSE | EVEN, st.integers(1, 3), st.integers(1, 3), st.sampled_from(sorted(ATTENTION)))
@EXAMPLES
def test_all_tiles_compute_the_layer(of: Drawn, rows: int, cols: int, dataflow: str) -> None:
    assert right(on_tiles(of, rows, cols, dataflow), of)


@given(
    DENSE | SPARSE, st.sampled_from(sorted(PARTITION)), st.sampled_from(PLACEMENTS), st.sampled_from([1, 2, 3, 4, 6]),
    st.sampled_from(["divided", "whole"]),
)  # fmt: skip
@EXAMPLES
def test_groups_of_a_pipeline_compute_the_layer(of: Drawn, partition: str, placement: str, tp: int, experts: str) -> None:
    assert right(on_cores(of, partition, placement, tp, experts), of)


def test_heads_that_straddle_are_refused() -> None:
    """Six heads of queries that share two of keys, on three devices: one of them needs both, and is given one."""
    of = drawn("prefill", 2, 3, 1, 2, 0)
    with pytest.raises(ValueError, match="worker 1: has 1 KV heads from 0 on, not those of all its heads"):
        right(on_devices(of, 3), of)


DRAWN = {
    "dense": lambda phase: drawn(phase, 4, 2, 4, 4, 0),
    "experts": lambda phase: balanced(
        drawn(phase, 4, 2, 4, 4, 0, hidden=16, experts=Experts(count=8, top_k=2, intermediate=8, shared=1, load="even"))
    ),
}
LAYOUTS = {
    "devices": on_devices,
    "tiles": on_tiles,
    "cores": on_cores,
    "cores by rows": lambda of: on_cores(of, "mn", "mesh", 8),
}
CELLS = pytest.mark.parametrize(
    ("layout", "kind", "phase"), [(a, b, c) for a in LAYOUTS for b in DRAWN for c in ("prefill", "decode")]
)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize(("tp", "ep"), [(1, 1), (1, 4), (2, 1), (2, 4), (4, 4)])
def test_dies_compute_the_layer(phase: str, tp: int, ep: int, tiled: bool) -> None:
    experts = Experts(count=8, top_k=2, intermediate=8, shared=1, load="even")
    of = balanced(drawn(phase, 4, 2, 16, 1, tp + ep, experts=experts, hidden=16))
    assert right(on_dies(of, tp, ep, tiled=tiled), of)


def faulty(walk: Walk) -> Iterator[tuple[str, Walk]]:
    """Walks with one thing less: a call, a collective or a member of one, an exchange, or a residual sum."""
    for number, block in enumerate(walk.blocks):
        if isinstance(block, Crossing):
            yield f"without {block.name}", _with(walk, number)
            continue
        if walk.layer.part(block.calls[0].part) is not None:
            for place, call in enumerate(block.calls):
                yield f"without {call.name}", _with(walk, number, _dropped(block, place))
                if call.exchange is not None and call.exchange.times:
                    calls = list(block.calls)
                    calls[place] = call._replace(exchange=call.exchange._replace(times=0))
                    yield f"without the exchange of {call.name}", _with(walk, number, block._replace(calls=tuple(calls)))
        if block.opener is not None:
            yield f"without what {block.name} waits for", _with(walk, number, block._replace(opener=None))
            fewer = block.opener._replace(peers=block.opener.peers - 1)
            yield f"one peer fewer before {block.name}", _with(walk, number, block._replace(opener=fewer))
    for number, part in enumerate(walk.layer.parts):
        parts = list(walk.layer.parts)
        parts[number] = replace(part, kind="")
        yield f"without the residual sum of {part.name}", walk._replace(layer=walk.layer._replace(parts=tuple(parts)))


def _with(walk: Walk, number: int, *instead: Block) -> Walk:
    return walk._replace(blocks=(*walk.blocks[:number], *instead, *walk.blocks[number + 1 :]))


def _dropped(block: Block, place: int) -> Block:
    order = tuple(one - (one > place) for one in block.order if one != place)
    return block._replace(calls=block.calls[:place] + block.calls[place + 1 :], order=order)


def noticed(walk: Walk, of: Drawn) -> bool:
    """Whether a walk is refused or comes to something else."""
    try:
        return not right(walk, of)
    except ValueError:
        return True


@CELLS
def test_whatever_is_left_out_is_noticed(layout: str, kind: str, phase: str) -> None:
    of = DRAWN[kind](phase)
    walk = LAYOUTS[layout](of)
    assert right(walk, of)
    assert not [name for name, fault in faulty(walk) if not noticed(fault, of)]
