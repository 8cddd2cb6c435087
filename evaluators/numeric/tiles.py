"""A decoder layer on all tiles of a chip: each call's job is its kernel's program, from memory and back to it.

Weights of norms, and angles, are in tiles before a program begins: a weight of the norm of heads is one for both halves of a
head, as its recipe has it, and rows whose angles differ are played turn by turn.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from dse.evaluators.graph.operators import Elementwise
from dse.evaluators.kernels.attention import merge
from dse.evaluators.kernels.attention.dataflow import PARTIAL
from dse.evaluators.kernels.attention.dataflow import steps as attending
from dse.evaluators.kernels.attention.operands import heads, place, result, stored_rows
from dse.evaluators.kernels.attention.shape import Heads, Tiling, cut
from dse.evaluators.kernels.gemm import summa_diagonal as summa
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.kernels.vector import streamed
from dse.evaluators.numeric.layer import Layer, summed_up, turns, whole
from dse.evaluators.numeric.walk import Attends, Kernels, Worker
from dse.evaluators.passes.call import Block, Call
from dse.evaluators.readers.closed_attention import Job
from dse.evaluators.readers.numeric import in_double, play
from dse.space.elementwise import Array


def computed(blocks: Sequence[Block], layer: Layer) -> Array:
    """The residual stream behind the layer, shape (tokens, hidden), calls of its parts one after the other."""
    x = layer.x
    for block in blocks:
        part = layer.part(block.calls[0].part)
        if part is None:
            continue
        worker = Worker(layer, part, block.calls, 0, BY_JOBS, x)
        for call in block.calls:
            worker.run(call)
        x = x + worker.left() if summed_up(part) else x
    return x


def product(call: Call, a: Array, weights: Array) -> Array:
    """SUMMA of one product."""
    return np.asarray(products(call, a[None], weights[None])[0])


def products(call: Call, a: Array, weights: Array) -> Array:
    """SUMMA of the products of a job, shape (copies, m, n).

    Raises:
        ValueError: they have other shapes.
    """
    of = call.job
    shape, copies, mesh = Shape(*map(whole, (of.shape.m, of.shape.k, of.shape.n))), whole(of.copies), _mesh(of)
    if (copies, shape.m, shape.k, shape.n) != (*a.shape, weights.shape[2]):
        raise ValueError(f"call {call.name!r}: {copies} products {shape}, has {a.shape} and {weights.shape}")
    part = summa.Part(*map(whole, of.part))
    program = in_double(summa.steps(shape, part, mesh, "float32", channels=mesh.cols, copies=copies, weights=of.weights))
    stored = play(program, {}, summa.place(a, weights, part, mesh))
    return summa.result(stored["c"].reshape(-1, mesh.rows // part.split, mesh.cols, part.m, part.n), shape, part, mesh, copies)


def experts(call: Call, a: Array, weights: Array, rows: list[Array]) -> Array:
    """Products of the experts that have any rows, each with as many rows as the job says."""
    some = [(matrix, places) for matrix, places in zip(weights, rows, strict=True) if len(places)]
    m, copies = whole(call.job.shape.m), whole(call.job.copies)
    if len(some) > copies or max(len(places) for _, places in some) > m:
        raise ValueError(f"call {call.name!r}: {copies} experts of {m} rows, has {[len(places) for _, places in some]}")
    given = np.zeros((copies, m, a.shape[1]))
    matrices = np.zeros((copies, *weights.shape[1:]))
    for number, (matrix, places) in enumerate(some):
        given[number, : len(places)], matrices[number] = a[places], matrix
    found, out = products(call, given, matrices), np.zeros((len(a), weights.shape[2]))
    for number, (_, places) in enumerate(some):
        out[places] = found[number, : len(places)]
    return out


def attention(call: Call, of: Attends) -> Array:
    """The dataflow's program, and that of the sum of parts where keys are split."""
    job: Job = call.job
    shape = replace(job.shape, **_whole(job.shape))
    q, k, v = (some.swapaxes(1, 2) for some in (of.q, of.k, of.v))
    said = (shape.batch, shape.heads, shape.queries, shape.kv_heads, shape.keys)
    if said != (*q.shape[:3], *k.shape[1:3]) or (of.own != np.arange(shape.heads) // shape.shared).any():
        raise ValueError(f"call {call.name!r}: {shape}, has queries {q.shape} and keys {k.shape}")
    mesh, tiling = _mesh(job), replace(job.tiling, **_whole(job.tiling))
    program = in_double(attending(job.of, shape, tiling, mesh, "float32", channels=mesh.cols, kv=job.kv))
    stored = play(program, {}, place(q, k, v, job.of, shape, tiling, mesh))
    if cut(shape, tiling, mesh).parts == 1:
        return result(stored, job.of, shape, tiling, mesh).swapaxes(1, 2)
    partial = {slot: stored_rows(stored, slot, job.of, shape, tiling, mesh) for slot in PARTIAL}
    left = merge.merge(shape, tiling, mesh)
    program = in_double(merge.steps(left, mesh, "float32", channels=mesh.cols))
    idle = {"totals": np.ones((mesh.rows, mesh.cols, left.parts, left.each))}  # what tiles without rows divide by
    return heads(merge.result(play(program, idle, merge.place(partial, left, mesh)), left, mesh), shape).swapaxes(1, 2)


def rows(call: Call, of: Elementwise, inputs: list[Array], layer: Layer) -> Array:
    """The recipe's program."""
    if of.name == "combination":
        values, _, _, weight = inputs
        by_token = _by_token(inputs[1]).T
        return _played(call, {"x": values[by_token], "score": weight[by_token][..., None]}, {}, "out")
    if of.name == "rope":
        return _turned(call, inputs, layer)
    x = inputs[0]
    if of.name == "choice":
        return _played(call, {"x": x[None]}, {}, "chosen")
    if of.name.endswith("norm"):
        return _played(call, {"x": x[None]}, {"weight": inputs[1] * x.shape[1] ** 0.5}, "out")
    gate, up = (x, inputs[1]) if len(inputs) > 1 else (x, np.ones_like(x))
    return _played(call, {"x": gate[None], "y": up[None]}, {}, "out")


BY_JOBS = Kernels(product, experts, attention, rows)


def _turned(call: Call, inputs: list[Array], layer: Layer) -> Array:
    """Heads, one a row, whose halves are turned by angles of the row, which tiles have beforehand."""
    x, *weight = inputs
    job, mesh, wide = call.job, _mesh(call.job), layer.attention.qk_dim
    halves = np.moveaxis(x.reshape(-1, 2, wide // 2), 1, 0)
    each = mesh.rows * mesh.cols * whole(job.block.rows)
    angles = np.repeat(np.stack(turns(layer.positions, wide // 2)), len(halves[0]) // len(x), axis=1)
    known = {"weight": weight[0][: wide // 2] * wide**0.5} if weight else {}
    found = []
    for start in range(0, len(halves[0]), each):
        some = slice(start, start + each)
        cos, sin = angles[:, some]
        given = {"x": halves[:1, some], "y": halves[1:, some]}
        fixed = {"cos": cos, "sin": sin, "minus": -sin}
        found.append([_played(call, given, known | fixed, slot) for slot in ("left", "right")])
    return np.concatenate([np.concatenate(pair, axis=1) for pair in found]).reshape(x.shape)


def _played(call: Call, values: dict[str, Array], known: dict[str, Array], slot: str) -> Array:
    """What a recipe leaves in a slot, by row, of what it loads, shape (times, rows, columns), and of what tiles know.

    Raises:
        ValueError: rows that the job does not have, or wider ones.
    """
    job, mesh = call.job, _mesh(call.job)
    count, columns = next(iter(values.values())).shape[1:]
    block = streamed.Block(whole(job.block.rows), whole(job.block.width))
    if columns != block.width or count > whole(job.rows):
        raise ValueError(f"call {call.name!r}: {job.rows} rows of {block.width}, has {count} of {columns}")
    program = in_double(streamed.steps(job.recipe, count, block, mesh, "float32", channels=mesh.cols))
    tiles = {one.name: np.ones((mesh.rows, mesh.cols, *one.shape)) for one in program.slots}
    for name, value in known.items():
        tiles[name] = _in_tiles(value, tiles[name])
    out = play(program, tiles, streamed.place(values, job.recipe, block, mesh))
    full = streamed.cut(count, block, mesh).waves > 1  # slots keep their names beside the streams of the same name
    return streamed.result({name: value for name, value in out.items() if full or name.endswith("/last")}, slot, count)


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


def _mesh(job: Any) -> Mesh:
    return Mesh(whole(job.chip.mesh.rows), whole(job.chip.mesh.cols))


def _whole(of: Heads | Tiling) -> dict[str, Any]:
    """Leaves that are counts, as whole numbers."""
    found = {spec.name: getattr(of, spec.name) for spec in fields(of)}
    return {name: whole(value) for name, value in found.items() if not isinstance(value, bool)}
