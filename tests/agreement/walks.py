"""Calls of one step, as each layout makes them of a drawn layer, with who walks them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.partition_search import plan_with_partition
from dse.evaluators.calls.algorithm_candidates import add_candidates
from dse.evaluators.calls.call import CallBlock, equal_call_index, sort_breadth_first
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models.fastest_algorithm import kernels_by_choice
from dse.evaluators.graph.operators import Segment
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts import pipelines as by_pipelines
from dse.evaluators.layouts import regions as by_regions
from dse.evaluators.layouts import tensor_parallel as by_devices
from dse.evaluators.layouts import whole_chip
from dse.evaluators.layouts.attention_requests import RequestsOfReach
from dse.evaluators.layouts.group_attention import group_chip
from dse.evaluators.layouts.micro_batches import BatchWork
from dse.evaluators.layouts.multi_die import DieContext, DieExchange, DieSplit, micro_batch_passes, unchanged_segment
from dse.evaluators.layouts.operator_partitions import PartitionChoice, partition_rules, partitioned_blocks
from dse.evaluators.layouts.operator_partitions import offered_partitions as offered_words
from dse.evaluators.layouts.partition_costs import partition_choice, partition_cost_factors
from dse.evaluators.layouts.region_algorithms import region_candidates
from dse.evaluators.machine.machine import HardwareModel, mesh_program_machine
from dse.evaluators.tuning.variable_elimination import minimise_factors
from dse.space.array_math import Array
from dse.space.fields import replace_leaves
from dse.space.mapping import DIVISIONS
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import STATE_BYTES, sequence_memory
from dse.testing.functional import multi_die as dies
from dse.testing.functional import pipelines, regions, tiles
from dse.testing.functional import tensor_parallel as devices
from dse.testing.functional.layer import LayerTensors
from tests.agreement.layers import Drawn
from tests.evaluators.test_transformer import BF16
from tests.samples import asked

ITEMSIZE = 2.0


class Walk(NamedTuple):
    """Steps of a layout, blocks and what dies exchange, the layer's numbers, and who walks the steps of the layer."""

    steps: tuple[Any, ...]
    layer: LayerTensors
    computed: Callable[[Any, LayerTensors], Array]


def right(walk: Walk, draw: Drawn) -> bool:
    """Whether every worker has the layer's output."""
    return bool(np.allclose(walk.computed(walk.steps, walk.layer), draw.expected, rtol=1e-9, atol=1e-9))


def noticed(walk: Walk, draw: Drawn) -> bool:
    """Whether a walk is refused or comes to something else."""
    try:
        return not right(walk, draw)
    except ValueError:
        return True


def on_devices(draw: Drawn, tp: int = 4, algorithm: str = "ring", phases: int | None = None) -> Walk:
    """Tensor parallelism, with an allreduce between halves of layers."""
    blocks = by_devices.device_blocks(
        transformer_segments(draw.model, draw.at), (segment_order(draw.model, draw.at),), tp, BF16, algorithm, phases=phases
    )
    return Walk(blocks, draw.layer, lambda blocks, layer: devices.compute_layer(blocks, layer, tp, ITEMSIZE))


def on_tiles(draw: Drawn, rows: int = 2, cols: int = 2, dataflow: str = "flat_async", stay: float = 0.0) -> Walk:
    """One operator after the other on all tiles, where a share of states stays with them."""
    sides = f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}"
    base = asked("chip=tile32", *sides, f"mapping.both.attention.dataflow={dataflow}").base
    if stay:
        needed = (
            draw.case.batch * sum(memory.layer.times * memory.state for memory in sequence_memory(draw.model)) * STATE_BYTES
        )
        share = stay * needed / (float(base.chip.tile.sram) * rows * cols)
        base = replace(base, mapping=replace_leaves(base.mapping, {"decode.state_share": share}))
    ((_, blocks),) = whole_chip.passes_by_phase(draw.case, base.chip, base.mapping, "last")[draw.phase]
    return Walk(blocks, _routing(draw), tiles.compute_layer)


def _routing(draw: Drawn) -> LayerTensors:
    """With the choice and the sum of experts as operators."""
    return draw.layer._replace(parts=tuple(with_router_operators(draw.model, part) for part in draw.layer.parts))


def on_cores(
    draw: Drawn, partition: str = "k", placement: str = "ring", tp: int = 4, experts: str = "whole", *, flat: bool = False
) -> Walk:
    """A group of a pipeline; with `flat`, its attention as of a chip."""
    base = asked("chip=npu64", "mapping=npu_flat_attention" if flat else "mapping=npu").base
    settings = {"partition": partition, "placement": placement, "tp": tp, "pp": 1, "experts": experts}
    plan = replace(getattr(base.mapping, draw.phase), **settings)
    chip = group_chip(base.chip, plan, BF16) if flat else None
    return Walk(by_pipelines.group_blocks(draw.model, draw.at, plan, BF16, chip=chip), draw.layer, pipelines.compute_layer)


def on_mixed_cores(draw: Drawn, seed: int, placement: str = "mesh", tp: int = 4, experts: str = "divided") -> Walk:
    """A group of a pipeline whose operators have a partition each, those of least time by prices that are drawn."""
    base, rng = asked("chip=npu64", "mapping=npu").base, np.random.default_rng(seed)
    plan = replace(getattr(base.mapping, draw.phase), placement=placement, tp=tp, pp=1, experts=experts)
    model, words, heads = replace(draw.model, layers=2), offered_words(plan), bool(rng.integers(2))
    parts = transformer_segments(model, draw.at)
    by, names = (
        partition_rules(plan, heads=heads),
        [(part.name, operator.name) for part in parts for operator in part.operators],
    )
    seconds = {name: dict(enumerate(rng.random(len(DIVISIONS)))) for name in names}
    gather = {name: dict(enumerate(rng.random(3))) for name in names}
    choices = minimise_factors(list(partition_cost_factors(parts, segment_order(model, draw.at), words, seconds, gather, by)))
    chosen_ = PartitionChoice(
        *({name: int(value) for name, value in kind.items()} for kind in partition_choice(parts, words, choices, by))
    )
    by_word = {
        word: by_pipelines.group_blocks(model, draw.at, plan_with_partition(plan, word), BF16, apart=True) for word in words
    }
    blocks = partitioned_blocks(parts, by_word, chosen_, plan, ITEMSIZE)
    return Walk(blocks, draw.layer, lambda blocks, layer: pipelines.compute_layer(blocks, layer, heads=heads))


def on_dies(draw: Drawn, tp: int = 2, ep: int = 4, *, tiled: bool = False, gathers: bool = False) -> Walk:
    """A group of dies, pools of cores or tiles; copies of attention have as many sequences each."""
    split = DieSplit(tp, 1, ep, 1, max(tp, ep), 0, 1, gathers=gathers and ep > 1)
    each, new = draw.layer.sequences // split.copies, len(draw.layer.x) // draw.layer.sequences
    (_, prompt, output), *_ = draw.case.requests
    context, kernels = (_tiled(draw), tiles.JOB_KERNELS) if tiled else (_pooled(draw), devices.NUMPY_KERNELS)
    asked_ = BatchWork(replace(draw.case, requests=((each, prompt, output),)), draw.phase, "last")
    (forward_pass,) = micro_batch_passes(asked_, split, context)

    def computed(steps: Any, layer: LayerTensors) -> Array:
        own = [slice(copy * each, (copy + 1) * each) for copy in range(split.copies)]
        layers = [
            layer._replace(x=layer.x[steps.start * new : steps.stop * new], keys=layer.keys[steps], values=layer.values[steps])
            for steps in own
        ]
        found_layer = dies.compute_layer(steps, layers, split, ITEMSIZE, kernels)
        return found_layer.reshape(split.copies, tp, -1, layer.x.shape[1]).swapaxes(0, 1).reshape(tp, *layer.x.shape)

    return Walk(tuple(forward_pass.units[1].steps), _routing(draw) if tiled else draw.layer, computed)


def _pooled(draw: Drawn) -> DieContext:
    def cover(part: Segment, attend: RequestsOfReach) -> CallBlock:
        calls = tuple(by_devices.device_call(part, operator, 1, BF16, None) for operator in part.operators)
        return CallBlock(part.name, calls, equal_call_index(calls), sort_breadth_first(calls), float(part.times))

    return DieContext(draw.model, cover, ITEMSIZE, ITEMSIZE, unchanged_segment)


def _tiled(draw: Drawn) -> DieContext:
    base = asked("chip=tile32", "chip.mesh.rows=2", "chip.mesh.cols=2").base
    plan = getattr(base.mapping, draw.phase)
    context = whole_chip.ChipContext(
        draw.model, base.chip, whole_chip.KernelPlan(plan.attention, plan.gemm), base.mapping.precision, {}
    )
    return DieContext(
        draw.model,
        lambda part, attend: whole_chip.segment_calls(part, attend, context),
        ITEMSIZE,
        ITEMSIZE,
        with_router_operators,
    )


def in_region(draw: Drawn, rows: int, cols: int, **words: str) -> Walk:
    """A region of a wafer; words of its mapping."""
    mesh, vectors, base = CoreMesh(rows, cols), draw.phase == "decode", asked("chip=wse2").base
    mapping = replace_leaves(base.mapping, {name.replace("__", "."): word for name, word in words.items()})
    place = by_regions.Region(mesh, 1.0, 1.0, 1.0, 1.0, 1.0)
    blocks = by_regions.region_blocks(draw.model, draw.at, place, mapping, draw.at.positions / draw.layer.sequences)
    blocks = add_candidates(blocks, region_candidates(base.chip, getattr(mapping, draw.phase), mesh))
    blocks = tuple(_settled(block, mesh_program_machine(base.chip)) for block in blocks)
    formats = mapping.precision
    packed = tuple(name for name in ("weights", "kv") if FORMATS[getattr(formats, name)].expand)
    layer = draw.layer._replace(packed=packed)
    full = mapping.kv_heads == "full"
    return Walk(blocks, layer, lambda blocks, layer: regions.compute_layer(blocks, layer, mesh, vectors=vectors, full=full))


def _settled(block: CallBlock, hardware: HardwareModel) -> CallBlock:
    """Each kernel by the algorithm that it chooses."""
    kernels = [
        kernels_by_choice(call.kernel, hardware, closed.kernel_cost)[0] for call in block.calls if call.kernel is not None
    ]
    return block._replace(calls=tuple(call._replace(kernel=kernel) for call, kernel in zip(block.calls, kernels, strict=True)))


def faulty(walk: Walk) -> Iterator[tuple[str, Walk]]:
    """Walks with one thing less: a call, a collective or a member of one, an exchange, or a residual sum."""
    for number, step in enumerate(walk.steps):
        if isinstance(step, DieExchange):
            yield f"without {step.name}", _with(walk, number)
            continue
        if walk.layer.find_part(step.calls[0].part) is not None:
            for place, call in enumerate(step.calls):
                yield f"without {call.name}", _with(walk, number, _dropped(step, place))
                if call.exchange is not None and call.exchange.times:
                    still = call._replace(exchange=call.exchange._replace(times=0))
                    yield f"without the exchange of {call.name}", _with(walk, number, _changed(step, place, still))
                kernel = call.kernel
                if (
                    kernel is not None
                    and call.operators
                    and kernel.kind in ("gemv", "vector")
                    and kernel.mesh.rows != kernel.mesh.cols
                ):
                    turned = call._replace(kernel=kernel._replace(mesh=kernel.mesh.transposed_mesh))
                    yield f"{call.name} across", _with(walk, number, _changed(step, place, turned))
        if step.opener is not None:
            yield f"without what {step.name} waits for", _with(walk, number, step._replace(opener=None))
            fewer = step.opener._replace(peers=step.opener.peers - 1)
            yield f"one peer fewer before {step.name}", _with(walk, number, step._replace(opener=fewer))
    for number, part in enumerate(walk.layer.parts):
        parts = list(walk.layer.parts)
        parts[number] = replace(part, kind="")
        if not any("sum" in call.name for step in walk.steps if isinstance(step, CallBlock) for call in step.calls):
            yield f"without the residual sum of {part.name}", walk._replace(layer=walk.layer._replace(parts=tuple(parts)))


def _with(walk: Walk, number: int, *instead: CallBlock) -> Walk:
    return walk._replace(steps=(*walk.steps[:number], *instead, *walk.steps[number + 1 :]))


def _changed(block: CallBlock, place: int, call: Any) -> CallBlock:
    return block._replace(calls=(*block.calls[:place], call, *block.calls[place + 1 :]))


def _dropped(block: CallBlock, place: int) -> CallBlock:
    order = tuple(position - (position > place) for position in block.order if position != place)
    return block._replace(calls=block.calls[:place] + block.calls[place + 1 :], order=order)
