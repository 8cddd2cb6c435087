"""Functional simulation of a decoder layer on all tiles of a chip.

Each call's job runs its kernel's program, from memory and back.

Weights of norms, and angles, are in tiles before a program begins: a weight of the norm of heads is one for both halves of a
head, as its recipe has it, and rows whose angles differ are simulated turn by turn.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models.analytical_attention import AttentionJob
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.graph.operators import ElementwiseOp, IndexerOp, RecurrenceOp
from dse.evaluators.kernels.attention import split_kv_merge as merge
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, block_counts
from dse.evaluators.kernels.attention.dataflow import PARTIAL_OUTPUTS
from dse.evaluators.kernels.attention.dataflow import attention_program as attending
from dse.evaluators.kernels.attention.operand_blocks import gather_output, rows_stored, rows_to_heads, scatter_qkv
from dse.evaluators.kernels.gemm import summa_diagonal as summa
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.vector import block_loop_kernels as walked
from dse.evaluators.kernels.vector import row_kernels as streamed
from dse.space.array_math import Array, ceil_div
from dse.testing.functional.call_worker import HEADS_NORM, AttentionInputs, CallWorker, KernelFunctions, compute_elementwise
from dse.testing.functional.layer import LayerTensors, as_integer, gated_silu, is_residual, rotary_angles
from dse.testing.functional.recurrent_states import RecurrentState, StateInputs, state_inputs
from dse.testing.functional_simulator import in_double_precision, run_program


def compute_layer(blocks: Sequence[CallBlock], layer: LayerTensors) -> Array:
    """Residual stream after the layer, shape (tokens, hidden), with calls run one after the other."""
    x = layer.x
    for block in blocks:
        part = layer.find_part(block.calls[0].part)
        if part is None:
            continue
        worker = CallWorker(layer, part, block.calls, 0, JOB_KERNELS, x)
        for call in block.calls:
            worker.run(call)
        x = x + worker.residual() if is_residual(part) else x
    return x


def compute_product(call: KernelCall, a: Array, weights: Array) -> Array:
    """Product of a call by the program of SUMMA."""
    return np.asarray(compute_products(call, a[None], weights[None])[0])


def compute_products(call: KernelCall, a: Array, weights: Array) -> Array:
    """Products of a SUMMA job, shape (copies, m, n).

    Raises:
        ValueError: they have other shapes.
    """
    if isinstance(call.job, JobSequence):
        ends = np.cumsum([as_integer(job.shape.m) for job in call.job.jobs])
        pieces = zip(call.job.jobs, np.split(a, ends[:-1], axis=1), strict=True)
        return np.concatenate([compute_products(call._replace(job=job), rows, weights) for job, rows in pieces], axis=1)
    job = call.job
    shape, copies, mesh = (
        GemmShape(*map(as_integer, (job.shape.m, job.shape.k, job.shape.n))),
        as_integer(job.copies),
        _mesh(job),
    )
    if (copies, shape.m, shape.k, shape.n) != (*a.shape, weights.shape[2]):
        raise ValueError(f"call {call.name!r}: {copies} products {shape}, has {a.shape} and {weights.shape}")
    part = summa.SummaTiling(*map(as_integer, job.part))
    program = in_double_precision(
        summa.build_program(shape, part, mesh, "float32", channels=mesh.cols, copies=copies, weights=job.weights)
    )
    stored = run_program(program, {}, summa.scatter_operands(a, weights, part, mesh))
    return summa.gather_result(
        stored["c"].reshape(-1, program.rows // part.split, mesh.cols, part.m, part.n), shape, part, mesh, copies
    )


def compute_experts(call: KernelCall, a: Array, weights: Array, rows: list[Array]) -> Array:
    """Products of the experts that have rows, each with as many rows as the job counts."""
    used_experts = [(matrix, places) for matrix, places in zip(weights, rows, strict=True) if len(places)]
    jobs = call.job.jobs if isinstance(call.job, JobSequence) else (call.job,)
    m, copies = sum(as_integer(job.shape.m) for job in jobs), as_integer(jobs[0].copies)
    if len(used_experts) > copies or max(len(places) for _, places in used_experts) > m:
        raise ValueError(f"call {call.name!r}: {copies} experts of {m} rows, has {[len(places) for _, places in used_experts]}")
    given = np.zeros((copies, m, a.shape[1]))
    matrices = np.zeros((copies, *weights.shape[1:]))
    for number, (matrix, places) in enumerate(used_experts):
        given[number, : len(places)], matrices[number] = a[places], matrix
    study, out = compute_products(call, given, matrices), np.zeros((len(a), weights.shape[2]))
    for number, (_, places) in enumerate(used_experts):
        out[places] = study[number, : len(places)]
    return out


def compute_attention(call: KernelCall, inputs: AttentionInputs) -> Array:
    """Attention by the dataflow's program, with a merge where keys are split.

    Raises:
        ValueError: heads or keys are not those of the job, or a sink joins the softmax, which no program has.
    """
    if isinstance(call.job, JobSequence):
        outputs, first = [], 0
        for piece in call.job.jobs:
            queries, keys = as_integer(piece.shape.queries), as_integer(piece.shape.keys)
            end = first + queries
            seen = inputs.k.shape[1] - (inputs.q.shape[1] - end if piece.shape.causal else 0)
            k, v = (every[:, seen - keys : seen] for every in (inputs.k, inputs.v))
            outputs.append(compute_attention(call._replace(job=piece), inputs._replace(q=inputs.q[:, first:end], k=k, v=v)))
            first = end
        return np.concatenate(outputs, axis=1)
    job: AttentionJob = call.job
    shape = replace(job.shape, **_whole(job.shape))
    q, k, v = (tensor.swapaxes(1, 2) for tensor in (inputs.q, inputs.k, inputs.v))
    keys, numbers = k.shape[2], None
    if inputs.picked is not None and shape.piece:
        if q.shape[2] > 1:
            raise ValueError(f"call {call.name!r}: tokens of prompts have as many keys as on average, and no numbers")
        numbers = np.stack([np.flatnonzero(mask) for mask in inputs.picked[:, 0]])
        keys, numbers = numbers.shape[1], numbers[:, None].repeat(k.shape[1], axis=1)
    if shape.latent and not np.array_equal(v, k[..., -v.shape[3] :]):
        raise ValueError(f"call {call.name!r}: values are not the last columns of keys")
    sizes = (shape.batch, shape.heads, shape.queries, shape.kv_heads, shape.keys)
    if sizes != (*q.shape[:3], k.shape[1], keys) or (inputs.own != np.arange(shape.heads) // shape.heads_per_kv).any():
        raise ValueError(f"call {call.name!r}: {shape}, has queries {q.shape} and keys {k.shape}")
    if inputs.scored.sinks is not None:
        raise ValueError(f"call {call.name!r}: programs of attention on tiles have no sinks")
    mesh, tiling = _mesh(job), replace(job.tiling, **_whole(job.tiling))
    options = {"channels": mesh.cols, "kv": job.kv, "cap": inputs.scored.cap or 1.0, "scale": inputs.scored.scale}
    program = in_double_precision(attending(job.of, shape, tiling, mesh, "float32", **options))
    stored = run_program(program, {}, scatter_qkv(q, k, v, job.of, shape, tiling, mesh, numbers))
    if block_counts(shape, tiling, mesh).parts == 1:
        return gather_output(stored, job.of, shape, tiling, mesh).swapaxes(1, 2)
    partial = {slot: rows_stored(stored, slot, job.of, shape, tiling, mesh) for slot in PARTIAL_OUTPUTS}
    left = merge.plan_merge(shape, tiling, mesh)
    program = in_double_precision(merge.merge_program(left, mesh, "float32", channels=mesh.cols))
    idle = {"totals": np.ones((mesh.rows, mesh.cols, left.parts, left.each))}  # what tiles without rows divide by
    return rows_to_heads(
        merge.gather_merged(run_program(program, idle, merge.scatter_partials(partial, left, mesh)), left, mesh), shape
    ).swapaxes(1, 2)


def compute_rows(call: KernelCall, operator: ElementwiseOp, inputs: list[Array], layer: LayerTensors) -> Array:
    """Result of an elementwise operator by its row kernel's program."""
    if operator.name == "combination":
        values, _, _, weight = inputs
        by_token = _by_token(inputs[1]).T
        return _played(call, {"x": values[by_token], "score": weight[by_token][..., None]}, {}, "out")
    if operator.name == "rope":
        return _turned(call, operator, inputs, layer)
    if operator.name == "state_conv":
        return _convolved(call, *inputs)
    x = inputs[0]
    if operator.name == "output_activation":  # what a sigmoid leaves is that of a SiLU without its factor
        x, *inputs = compute_elementwise(operator, [np.ones_like(x), inputs[1]], layer) / gated_silu(inputs[1]) * x, inputs[1]
        return _played(call, {"x": inputs[0][None], "y": x[None]}, {}, "out")
    if operator.name in ("state_norm", HEADS_NORM):  # head by head
        heads = x.reshape(-1, len(inputs[1]))
        return _played(call, {"x": heads[None]}, {"weight": inputs[1] * heads.shape[1] ** 0.5}, "out").reshape(x.shape)
    if operator.name == "choice":
        return _played(call, {"x": x[None]}, {}, "chosen")
    if operator.name.endswith("norm"):
        return _played(call, {"x": x[None]}, {"weight": inputs[1] * x.shape[1] ** 0.5}, "out")
    gate, up = (x, inputs[1]) if len(inputs) > 1 else (x, np.ones_like(x))
    return _played(call, {"x": gate[None], "y": up[None]}, {}, "out")


def compute_states(call: KernelCall, operator: RecurrenceOp, inputs: list[Array], state: RecurrentState, own: range) -> Array:
    """Result of a state update by its kernel's program: token by token, or chunk by chunk.

    Raises:
        ValueError: states, values or chunks are not those of the job.
    """
    found_inputs = state_inputs(call, operator, inputs, state, own)
    return (_prompts if operator.chunk > 1 else _tokens)(call, operator, found_inputs, state.matrices)


def compute_index(call: KernelCall, operator: IndexerOp, q: Array, weights: Array, k: Array) -> Array:
    """Keys that an indexer selects, by the programs of its scores and its top-k selection.

    Raises:
        ValueError: queries and keys are not those of the job, or a prompt's, whose tokens see ever more keys.
    """
    first, *then = call.job.jobs
    if first.rising is not None:
        raise ValueError(f"call {call.name!r}: tokens of a prompt, which see ever more keys, have no numbers on tiles")
    scores = _scored(call, first, q, weights, k)
    if not then:
        return np.ones(scores.shape, bool)
    mask = np.zeros((scores.shape[0] * scores.shape[1], k.shape[1]), bool)
    np.put_along_axis(mask, _largest(call, then, scores.reshape(mask.shape)).astype(int), np.array(True), axis=1)
    return mask.reshape(scores.shape)


JOB_KERNELS = KernelFunctions(
    compute_product,
    compute_experts,
    compute_attention,
    compute_rows,
    compute_products,
    compute_states,
    compute_index,
    norms_before=True,
)


def _scored(call: KernelCall, job: Any, q: Array, weights: Array, k: Array) -> Array:
    """Scores of all keys, shape (sequences, queries, keys)."""
    sides, mesh = {slot.name: tuple(map(as_integer, slot.shape)) for slot in job.walk.slots}, _mesh(job)
    (each, heads, dim), (_, many, _), (sequences, queries) = sides["q"], sides["k"], q.shape[:2]
    down, across, blocks = ceil_div(queries, each), ceil_div(k.shape[1], many), as_integer(job.blocks)
    parts = ceil_div(across, blocks)
    items = sequences * down * parts
    if as_integer(job.items) != items or (heads, dim) != q.shape[2:] or queries % each:
        raise ValueError(f"call {call.name!r}: {job.items} items, has {items} of {q.shape} and {k.shape}")
    by_item = (tensor.reshape(sequences * down, 1, each, *tensor.shape[2:]).repeat(parts, axis=0) for tensor in (q, weights))
    given = dict(zip("qw", by_item, strict=True))
    given["w"] = np.moveaxis(given["w"], 3, 2)[:, :, :, None, None]
    keys = np.pad(k, ((0, 0), (0, parts * blocks * many - k.shape[1]), (0, 0)))
    given["k"] = (
        keys.reshape(sequences, 1, parts, blocks, 1, many, dim).repeat(down, axis=1).reshape(items, blocks, 1, many, dim)
    )
    given["scale"] = np.ones((items, blocks, 1, 1, many, 1))
    counts = (blocks,) * ceil_div(items, mesh.rows * mesh.cols)
    program = in_double_precision(walked.build_program(job.walk, items, counts, mesh, channels=mesh.cols))
    loads = {name: x for name, x in given.items() if name in job.walk.opening + job.walk.loads}
    out = walked.gather_result(
        run_program(program, {}, walked.scatter_operands(loads, job.walk, counts, mesh)), "out", job.walk, counts
    )
    out = out.reshape(sequences, down, parts, blocks, many, each).transpose(0, 1, 5, 2, 3, 4)
    return np.asarray(out.reshape(sequences, queries, -1)[..., : k.shape[1]])


def _largest(call: KernelCall, jobs: Sequence[Any], x: Array) -> Array:
    """Positions of the largest of each row."""
    parts = as_integer(jobs[0].rows) // len(x)
    wide = ceil_div(x.shape[1], parts)
    padded = np.pad(x, ((0, 0), (0, parts * wide - x.shape[1])), constant_values=x.min() - 1)
    given = {"x": padded.reshape(1, -1, wide)}
    if len(jobs) == 1:
        return _played(call._replace(job=jobs[0]), given, {}, "chosen")
    at, values = (
        _played(call._replace(job=jobs[0]), given, {}, slot).reshape(len(x), parts, -1) for slot in ("chosen", "values")
    )
    at = at + wide * np.arange(parts)[:, None]
    again = {"x": values.reshape(1, len(x), -1), "at": at.reshape(1, len(x), -1)}
    return _played(call._replace(job=jobs[1]), again, {}, "found")


def _tokens(call: KernelCall, operator: RecurrenceOp, done: StateInputs, matrices: Array) -> Array:
    """Rows are states, or slices of their values."""
    jobs = call.job.jobs if isinstance(call.job, JobSequence) else (call.job,)
    parts, begun = [], 0
    for job in jobs:
        slices, mesh = ceil_div(operator.value_dim, as_integer(job.block.width)), _mesh(job)
        count, block = as_integer(job.rows / slices), streamed.RowBlock(as_integer(job.block.rows), as_integer(job.block.width))
        span = slice(begun, begun + count)

        def by_row(x: Array, high: int, wide: int, span: slice = span, slices: int = slices) -> Array:
            """Slices of values are rows of their own, each with the same keys."""
            x = x.reshape(-1, high, wide)[span]
            if wide == 1:
                return x.repeat(slices, axis=0)
            x = np.pad(x, ((0, 0), (0, 0), (0, -wide % slices))).reshape(len(x), high, slices, -1)
            return np.moveaxis(x, 2, 1).reshape(-1, high, x.shape[3])

        given = {name: by_row(getattr(done, name), operator.key_dim, 1) for name in "kq"} | {
            "v": by_row(done.v, 1, operator.value_dim)
        }
        given |= {"decay": by_row(np.exp(done.decay), done.decay.shape[3], 1), "beta": by_row(done.rate, 1, 1)}
        given["state"] = by_row(matrices, operator.key_dim, operator.value_dim)
        program = in_double_precision(
            streamed.build_program(job.recipe, len(given["v"]), block, mesh, "float32", channels=mesh.cols)
        )
        tiles = {}
        if job.recipe.whole:
            state_last = streamed.scatter_operands({"state": given["state"][None]}, job.recipe, block, mesh)["state/last"]
            tiles["state"] = np.zeros((program.rows * program.cols, *state_last.shape[2:]))
            tiles["state"][: state_last.shape[1]] = state_last[0]
            tiles["state"] = tiles["state"].reshape(program.rows, program.cols, *state_last.shape[2:])
        loads = {name: given[name][None] for name in job.recipe.loads}
        out = _stored(
            run_program(program, tiles, streamed.scatter_operands(loads, job.recipe, block, mesh)),
            "out",
            len(given["v"]),
            block,
            mesh,
        )
        parts.append(out.reshape(count, -1)[:, : operator.value_dim])
        begun += count
    if begun != done.v.shape[0] * done.v.shape[2]:
        raise ValueError(f"call {call.name!r}: {begun} states, has {done.v.shape[0] * done.v.shape[2]}")
    return np.concatenate(parts).reshape(len(done.v), -1)


def _prompts(call: KernelCall, operator: RecurrenceOp, done: StateInputs, matrices: Array) -> Array:
    """Items are some heads with the same keys of a sequence, or slices of their values; blocks are chunks of its prompt."""
    job, mesh = call.job, _mesh(call.job)
    sides = {slot.name: tuple(map(as_integer, slot.shape)) for slot in job.walk.slots}
    (chunk, _, _), (_, values, each) = sides["q"], sides["start"]
    sequences, tokens, heads = done.v.shape[:3]
    parts, slices, blocks = heads // each, operator.value_dim // values, ceil_div(tokens, chunk)
    items = sequences * parts * slices
    if (as_integer(job.items), as_integer(job.blocks)) != (items, blocks):
        raise ValueError(f"call {call.name!r}: {job.items} items of {job.blocks} chunks, has {items} of {blocks}")

    def split_into_chunks(x: Array, each: int, *, wide: bool = False) -> Array:
        """By item and chunk, heads last."""
        x = np.pad(x, ((0, 0), (0, blocks * chunk - tokens), (0, 0), (0, 0)))
        x = x.reshape(sequences, blocks, chunk, parts, each, x.shape[3]).transpose(0, 3, 1, 2, 5, 4)
        x = x.reshape(*x.shape[:4], slices, values, each) if wide else np.repeat(x[..., None, :, :], slices, axis=4)
        return np.moveaxis(x, 4, 2).reshape(items, blocks, chunk, x.shape[5], each)

    given = {name: split_into_chunks(getattr(done, name)[:, :, ::each], 1) for name in "qk"} | {
        "v": split_into_chunks(done.v, each, wide=True)
    }
    given |= {"g": split_into_chunks(done.decay, each), "beta": split_into_chunks(done.rate, each)}
    start = matrices.reshape(sequences, parts, each, operator.key_dim, slices, values).transpose(0, 1, 4, 3, 5, 2)
    given["start"] = start.reshape(items, 1, operator.key_dim, values, each)
    counts = (blocks,) * ceil_div(items, mesh.rows * mesh.cols)
    program = in_double_precision(walked.build_program(job.walk, items, counts, mesh, channels=mesh.cols))
    loads = {name: x for name, x in given.items() if name in job.walk.opening + job.walk.loads}
    out = walked.gather_result(
        run_program(program, {}, walked.scatter_operands(loads, job.walk, counts, mesh)), "out", job.walk, counts
    )
    out = out.reshape(sequences, parts, slices, blocks * chunk, values, each)[:, :, :, :tokens]
    return out.transpose(0, 3, 1, 5, 2, 4).reshape(sequences * tokens, -1)


def _convolved(call: KernelCall, rows: Array, taps: Array) -> Array:
    """Rows with those before them, which are kept of a token's sequence, or which a block of a prompt reads once more.

    A block is of one sequence.
    """
    weights, before = {f"w{tap}": weight for tap, weight in enumerate(taps)}, len(taps) - 1
    if rows.shape[1] == len(taps) and "x0" in call.job.recipe.loads:
        return _played(call, {f"x{tap}": rows[None, :, tap] for tap in range(len(taps))}, weights, "out")
    job, mesh, columns = call.job, _mesh(call.job), rows.shape[2]
    block, outputs = streamed.RowBlock(as_integer(job.block.rows), as_integer(job.block.width)), []
    new = rows.shape[1] - before
    if columns != block.width or as_integer(job.rows) != len(rows) * new:
        raise ValueError(f"call {call.name!r}: {job.rows} rows of {block.width}, has {len(rows) * new} of {columns}")
    for row in rows:
        padded = np.pad(row, ((0, -new % block.rows), (0, 0)))
        starts = range(0, len(padded) - before, block.rows)
        seen = np.concatenate([padded[start : start + block.rows + before] for start in starts])
        program = in_double_precision(streamed.build_program(job.recipe, new, block, mesh, "float32", channels=mesh.cols))
        tiles = {slot.name: np.ones((program.rows, program.cols, *slot.shape)) for slot in program.slots}
        tiles |= {name: _in_tiles(value, tiles[name]) for name, value in weights.items()}
        wide = streamed.RowBlock(block.rows + before, block.width)
        out = run_program(program, tiles, streamed.scatter_operands({"x": seen[None]}, job.recipe, wide, mesh))
        outputs.append(_stored(out, "out", new, block, mesh))
    return np.concatenate(outputs)


def _turned(call: KernelCall, operator: ElementwiseOp, inputs: list[Array], layer: LayerTensors) -> Array:
    """Heads, one a row, halves of whose first columns are turned by angles of the row, which tiles have beforehand."""
    x, *weight = inputs
    job, mesh, wide = call.job, _mesh(call.job), operator.rotated_columns
    heads = x.reshape(-1, layer.rotated_width)
    halves = np.moveaxis(heads[:, :wide].reshape(-1, 2, wide // 2), 1, 0)
    each = mesh.rows * mesh.cols * as_integer(job.block.rows)
    angles = np.repeat(np.stack(rotary_angles(layer.positions, wide // 2)), len(halves[0]) // len(x), axis=1)
    known = {"weight": weight[0][: wide // 2] * wide**0.5} if weight else {}
    pairs = []
    for start in range(0, len(halves[0]), each):
        span = slice(start, start + each)
        cos, sin = angles[:, span]
        given = {"x": halves[:1, span], "y": halves[1:, span]}
        fixed = {"cos": cos, "sin": sin, "minus": -sin}
        pairs.append([_played(call, given, known | fixed, slot) for slot in ("left", "right")])
    turned = np.concatenate([np.concatenate(pair, axis=1) for pair in pairs])
    return np.concatenate([turned, heads[:, wide:]], axis=1).reshape(x.shape)


def _played(call: KernelCall, values: dict[str, Array], known: dict[str, Array], slot: str) -> Array:
    """What a recipe leaves in a slot, by row, of what it loads, shape (times, rows, columns), and of what tiles know.

    Raises:
        ValueError: rows that the job does not have, or wider ones.
    """
    job, mesh = call.job, _mesh(call.job)
    count, columns = next(iter(values.values())).shape[1:]
    block = streamed.RowBlock(as_integer(job.block.rows), as_integer(job.block.width))
    if columns != block.width or count > as_integer(job.rows):
        raise ValueError(f"call {call.name!r}: {job.rows} rows of {block.width}, has {count} of {columns}")
    program = in_double_precision(streamed.build_program(job.recipe, count, block, mesh, "float32", channels=mesh.cols))
    tiles = {slot.name: np.ones((program.rows, program.cols, *slot.shape)) for slot in program.slots}
    for name, value in known.items():
        tiles[name] = _in_tiles(value, tiles[name])
    return _stored(
        run_program(program, tiles, streamed.scatter_operands(values, job.recipe, block, mesh)), slot, count, block, mesh
    )


def _stored(out: dict[str, Array], slot: str, count: int, block: streamed.RowBlock, mesh: CoreMesh) -> Array:
    """Rows of a buffer that a program has stored."""
    full = streamed.row_waves(count, block, mesh).waves > 1  # slots keep their names beside the streams of the same name
    return streamed.gather_result({name: value for name, value in out.items() if full or name.endswith("/last")}, slot, count)


def _in_tiles(value: Array, like: Array) -> Array:
    """A weight of each column, or values of rows that are dealt to tiles block by block, columns first."""
    if value.ndim == 1:
        return np.broadcast_to(value[:, None], like.shape)
    rows, cols, wide, each = like.shape
    padded = np.zeros((rows * cols * each, wide))
    padded[: len(value)] = value
    return padded.reshape(rows, cols, each, wide).swapaxes(2, 3)


def _by_token(token: Array) -> Array:
    """Places of the copies of each token."""
    return np.argsort(token, kind="stable").reshape(int(token.max()) + 1, -1)


def _mesh(job: Any) -> CoreMesh:
    return CoreMesh(as_integer(job.chip.mesh.rows), as_integer(job.chip.mesh.cols))


def _whole(shape: AttentionShape | AttentionTiling) -> dict[str, Any]:
    """Leaves that are counts, as whole numbers."""
    found_fields = {spec.name: getattr(shape, spec.name) for spec in fields(shape)}
    return {name: as_integer(value) for name, value in found_fields.items() if not isinstance(value, bool)}
