"""Functional simulation of a decoder layer on a region of cores.

Each call runs its kernel's program, whose inputs must lie where the kernel needs them.

Calls of a region say no needs: what a kernel takes is what those before it left under the names of the graph. Of vectors, a
width lies over the rows or the columns of the region, which the sides of a kernel's mesh tell apart where it is no square; a
product brings it to the other side. Heads lie evenly on columns: some columns a head, or some heads a column. Masks, roots of
widths, weights of norms, and pairs that are rotated are applied to tiles by NumPy, and so is the choice of experts.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dse.evaluators.calls.call import CallBlock, KernelCall, MeshKernel
from dse.evaluators.graph.operators import ElementwiseOp, MatMulOp, Segment
from dse.evaluators.kernels.data_movement import MOVE
from dse.evaluators.kernels.gemm import find_gemm
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape, join_blocks, matrix_blocks
from dse.evaluators.kernels.gemv import find_gemv
from dse.evaluators.kernels.kv import find_kv_method
from dse.evaluators.kernels.vector import VECTOR
from dse.evaluators.layouts.tensor_formats import ROUTING_OPERATORS
from dse.evaluators.program.kernel_ir import MASKED_SCORE
from dse.space.array_math import Array, ceil_div
from dse.testing.functional.call_worker import CallWorker, LocalCopies
from dse.testing.functional.layer import LayerTensors, as_integer, combine_experts, results_left, rotary_angles, route_tokens
from dse.testing.functional_simulator import in_double_precision, run_program

ROWS, COLS = "rows", "columns"
"""Over what of the region a width lies."""


def compute_layer(
    parts: Sequence[CallBlock], layer: LayerTensors, mesh: CoreMesh, *, vectors: bool, full: bool = False
) -> Array:
    """Residual stream after the layer, shape (tokens, hidden).

    Args:
        parts: blocks of a step, of which those of the layer are done.
        layer: of numbers; one prompt, or a token of each sequence.
        mesh: of the region.
        vectors: whether these are tokens of decode.
        full: whether keys and values are cached for each head of queries.
    """
    x = layer.x
    for block in parts:
        part = layer.find_part(block.calls[0].part)
        if part is not None:
            region = _Region(layer, part, block.calls, x, mesh, vectors=vectors, full=full)
            for call in block.calls:
                region.run(call)
            x = region.x
    return x


class _Region(CallWorker):
    """Values of a part, and over what they lie."""

    def __init__(
        self,
        layer: LayerTensors,
        part: Segment,
        calls: tuple[KernelCall, ...],
        x: Array,
        mesh: CoreMesh,
        *,
        vectors: bool,
        full: bool,
    ) -> None:
        super().__init__(layer, part, calls, 0, None, x)  # type: ignore[arg-type]
        self.mesh, self.vectors = mesh, vectors
        self.lie: dict[str, str] = {}
        self.cache: list[tuple[Array, Array, Array]] = []
        self.heads = layer.attention.heads.units
        self.cached = self.heads if full else layer.attention.kv_heads.units
        self.wide: dict[str, int] = {}

    def run(self, call: KernelCall) -> None:
        """Run the kernel of one call."""
        kernel = _kernel(call)
        if kernel.kind == "kv":
            self._cached(call)
        elif kernel.kind == "move":
            self._moved(call)
        elif kernel.name in ("scores", "scores_tanh", "softmax", "values"):
            getattr(self, f"_{kernel.name}")(call)
        elif kernel.algorithm == "expand":
            self._expanded(call)
        elif kernel.kind == "vector":
            self._vector(call)
        else:
            self._products(call)

    def _expanded(self, call: KernelCall) -> None:
        """Values that become wide for the kernel that the call is named for."""
        kernel = _kernel(call)
        shape, mesh = _sizes(call)
        program = in_double_precision(VECTOR["expand"].build_program(shape, mesh, "float32", **kernel.options))
        x = np.arange(1.0, shape.m * shape.k + 1).reshape(shape.m, shape.k)
        if not np.array_equal(
            _gathered(run_program(program, {"x": _spread(x, mesh, alike=False)})["wide"], shape, alike=False), x
        ):
            raise ValueError(f"call {call.name!r}: some values are not made wide")
        self.wide[kernel.name.removesuffix("_expand")] = as_integer(shape.m * shape.k * kernel.times * kernel.copies)

    def _used(self, name: str) -> int:
        """Values of weights that are multiplied with some token."""
        weight = self.layer.weights[name]
        return int(weight.size if weight.ndim == 2 else len(np.unique(self.routed_tokens.expert)) * weight[0].size)

    def _is_wide(self, call: KernelCall, tensor: str, values: int) -> None:
        """Refuses what is multiplied as it is stored, where it is packed."""
        wide_values = self.wide.get(_kernel(call).name, 0)
        if tensor in self.layer.packed and wide_values < values:
            raise ValueError(f"call {call.name!r}: {values} values of {tensor} are multiplied, {wide_values} are wide")

    def _products(self, call: KernelCall) -> None:
        """Products of one operand, side by side."""
        operators = [self.operators[name] for name in call.operators]
        first = operators[0]
        assert isinstance(first, MatMulOp)
        packed = [operator.name for operator in operators if operator.name not in ROUTING_OPERATORS]  # which keep 16 bits
        self._is_wide(call, "weights", sum(self._used(name) for name in packed))
        weights = self._side_by_side(operators, call)
        side = self.side(call)
        if weights.ndim == 3:
            experts = self._of_experts(first, weights, call, side)
        else:
            name = first.needs[0] if first.needs else ""
            experts = _product(call, self.take_operand(name, side), weights)
        widths = np.cumsum([self._width(operator, call) for operator in operators])[:-1]
        for operator, value in zip(operators, np.split(experts, widths, axis=1), strict=True):
            self.put_result(operator.name, value, _other(side))
        if first.name == "router":
            self.routed = route_tokens(experts, self.layer.top)

    def _of_experts(self, operator: MatMulOp, weights: Array, call: KernelCall, side: str) -> Array:
        down = operator.name == "experts_down"
        copies = self.here
        if copies is None:
            raise ValueError(f"call {call.name!r}: tokens are not where experts are")
        a = self.take_operand("experts_activation", side) if down else self._checked(copies.rows, "experts", side)
        kernel = _kernel(call)
        if as_integer(kernel.times * kernel.shape.m) != len(a):
            raise ValueError(f"call {call.name!r}: {kernel.times} times {kernel.shape.m} rows, has {len(a)}")
        experts = np.zeros((len(a), weights.shape[2]))
        for matrix, places in zip(weights, copies.places, strict=True):
            if len(places):
                experts[places] = _product(call, a[places], matrix, rows=len(places))
        return experts

    def _side_by_side(self, operators: list[Any], call: KernelCall) -> Array:
        """Matrices of some products side by side, with key and value heads repeated as their columns need."""
        columns = []
        for operator in operators:
            weights = self.layer.weights[operator.name]
            times = self._width(operator, call) // weights.shape[-1]
            if times > 1:
                heads = weights.reshape(len(weights), -1, 1, operator.n.width)
                weights = np.broadcast_to(heads, (*heads.shape[:2], times, operator.n.width)).reshape(len(weights), -1)
            columns.append(weights)
        return np.concatenate(columns, axis=-1)

    def _width(self, operator: Any, call: KernelCall) -> int:
        """Columns of a product of a call; what all of them have beyond the graph's are repeated heads of keys and values."""
        plain = {name: self.layer.weights[name].shape[-1] for name in call.operators}
        several = [name for name in plain if name in ("k_proj", "v_proj")]
        if operator.name in several and as_integer(_kernel(call).shape.n) != sum(plain.values()):
            return self.heads * int(operator.n.width)
        return int(plain[operator.name])

    def _vector(self, call: KernelCall) -> None:
        """Norms of rows or heads, rotations, gates, and the residual sum."""
        kernel = _kernel(call)
        side, name = self.side(call), kernel.name
        function = kernel.options.get("function")
        if function == "add":
            left = np.sum([self._left(name, side) for name in results_left(self.part)], axis=0)
            self.x = self._elements(call, self.x, left)
        elif name in ("q_norm", "k_norm"):
            self._head_norm(call, name.replace("norm", "proj"))
        elif kernel.algorithm == "norm":
            (x,) = self.collect_inputs(self.operators[name])
            self.put_result(name, self._elements(call, x) * self.layer.weights[name] * x.shape[1] ** 0.5, side)
        elif function == "rotate":
            self._rotated(call, side)
        else:
            needs = [self.take_operand(need, side) for need in self.operators[name].needs]
            self.put_result(
                name, self._elements(call, *(needs if len(needs) > 1 else (needs[0], np.ones_like(needs[0])))), side
            )

    def _left(self, name: str, side: str) -> Array:
        return self.take_operand("combined" if name == "experts_down" else name, side)

    def _elements(self, call: KernelCall, *inputs: Array, empty: float = 0.0) -> Array:
        """A kernel of vectors, of matrices whose columns lie over the rows of its mesh; places beyond them are `empty`."""
        kernel = _kernel(call)
        shape, mesh = _sizes(call)
        if (shape.m, shape.k) != inputs[0].shape:
            raise ValueError(f"call {call.name!r}: {shape}, has {inputs[0].shape}")
        program = in_double_precision(VECTOR[kernel.algorithm].build_program(shape, mesh, "float32", **kernel.options))
        alike = kernel.options.get("replicated", False)
        more = (0, 0), (0, -shape.k % mesh.rows)
        filled = (np.pad(x, more, constant_values=empty) for x in inputs)
        tiles = {name: _spread(x, mesh, alike) for name, x in zip("xyuv", filled, strict=False)}
        return _gathered(run_program(program, tiles)["x"], shape, alike)

    def _head_norm(self, call: KernelCall, name: str) -> None:
        """Of each head on its columns, those of a column as further rows."""
        shape, _ = _sizes(call)
        x, wide = self.take_operand(name, COLS), self.layer.attention.qk_dim
        heads, weight = x.reshape(len(x), -1, wide), self.layer.weights[name.replace("proj", "norm")]
        each = as_integer(shape.m / len(x))
        for first in range(0, heads.shape[1], each):
            head = heads[:, first : first + each].reshape(-1, wide)
            heads[:, first : first + each] = self._elements(call, head).reshape(len(x), each, wide) * weight * wide**0.5
        self.put_result(name, heads.reshape(len(x), -1), COLS)

    def _rotated(self, call: KernelCall, side: str) -> None:
        """Queries and keys side by side, of each head what is turned, each value with the other one of its pair."""
        operator = self.operators[call.operators[0]]
        assert isinstance(operator, ElementwiseOp)
        parts = [self.take_operand(name, side) for name in operator.needs]
        x, wide = np.concatenate(parts, axis=1), operator.rotated_columns
        heads = x.reshape(len(x), -1, self.layer.attention.qk_dim)
        flat = heads[..., :wide].reshape(len(x), -1)
        halves = flat.reshape(len(x), -1, 2, wide // 2)
        pair = np.stack([-halves[:, :, 1], halves[:, :, 0]], axis=2).reshape(flat.shape)
        cos, sin = (
            np.tile(rotary_angle, flat.shape[1] // (wide // 2))
            for rotary_angle in rotary_angles(self.layer.positions, wide // 2)
        )
        turned = self._elements(call, flat, pair, cos, sin).reshape(*heads.shape[:2], wide)
        rotary = np.concatenate([turned, heads[..., wide:]], axis=-1).reshape(x.shape)
        for name, value in zip(operator.needs, np.split(rotary, [parts[0].shape[1]], axis=1), strict=True):
            self.put_result(name, value, side)
        self.done[operator.name] = rotary

    def _cached(self, call: KernelCall) -> None:
        """The new token's keys and values come to those of its sequence, which lie over the rows by positions."""
        kernel = _kernel(call)
        method, attention = find_kv_method(kernel.algorithm), self.layer.attention
        self._on_all(call)
        count = as_integer(self.cached)
        new = np.concatenate([self._of_cache(self.take_operand(f"{name}_proj", COLS), count) for name in "kv"], axis=1)
        for sequence in range(self.layer.sequences):
            old = [cache[sequence].repeat(count // cache.shape[2], axis=1) for cache in (self.layer.keys, self.layer.values)]
            past = np.concatenate([cache.reshape(len(cache), prod(cache.shape[1:])) for cache in old], axis=1)
            before, after = (np.array(method.tokens_per_row(len(past) + more, self.mesh.rows)) for more in (0, 1))
            each, wide = int(after.max()), ceil_div(new.shape[1], self.mesh.cols)
            tiles = np.zeros((self.mesh.rows, self.mesh.cols, each, wide))
            starts = np.cumsum(before) - before
            for row, (start, held) in enumerate(zip(starts, before, strict=True)):
                tiles[row, :, :held] = _over_columns(past[start : start + held], self.mesh.cols)
            given = np.broadcast_to(_over_columns(new[sequence : sequence + 1], self.mesh.cols), (*tiles.shape[:2], 1, wide))
            program = in_double_precision(method.append_program(self.mesh, len(past), wide, each))
            cache = run_program(program, {"cache": tiles, "new": given})["cache"]
            whole_rows = cache.transpose(0, 2, 1, 3).reshape(self.mesh.rows * each, -1)[:, : new.shape[1]]
            seen = (np.arange(each) < after[:, None]).ravel()
            k, v = np.split(whole_rows, [count * attention.qk_dim], axis=1)
            self.cache.append((k.reshape(len(k), count, -1), v.reshape(len(v), count, -1), seen))

    def _of_cache(self, x: Array, count: int) -> Array:
        """Heads of keys or values as the cache has them: each once, or as often as there are heads of queries."""
        heads = x.reshape(len(x), -1, self.layer.attention.qk_dim)
        fewer = heads[:, :: max(heads.shape[1] // count, 1)]
        return np.asarray(fewer.repeat(count // fewer.shape[1], axis=1).reshape(len(x), -1))

    def _queries(self) -> Array:
        """Of each head, shape (tokens, heads, of a head), scaled."""
        for need in self.layer.attention.needs:
            self.get(need)
        wide, how = self.layer.attention.qk_dim, self.layer.scored
        if how.sinks is not None:
            raise ValueError("kernels of a region have no sinks")
        return np.asarray(self.take_operand("q_proj", COLS).reshape(len(self.x), -1, wide) / wide**0.5 / (how.cap or 1.0))

    def _scores(self, call: KernelCall) -> None:
        """Head by head, of vectors sequence by sequence; shape (tokens, heads, keys)."""
        q, columns = self._queries(), []
        if self.vectors and not self.cache:
            raise ValueError(f"call {call.name!r}: nothing is cached")
        self._is_wide(call, "kv", sum(k[seen].size for k, _, seen in self.cache))
        for head in range(q.shape[1]):
            if not self.vectors:
                k = self.get("k_proj").reshape(len(self.x), -1, q.shape[2])
                columns.append(_product(call, q[:, head], k[:, head * k.shape[1] // q.shape[1]].T))
                continue
            rows = []
            for token, (k, _, _) in enumerate(self.cache):
                keys = k[:, head * k.shape[1] // q.shape[1]]
                rows.append(_product(call, q[token : token + 1, head], _padded(keys, _kernel(call).shape.n).T, rows=1))
            columns.append(np.concatenate(rows))
        self.done["scores"] = np.stack(columns, axis=1)

    def _seen(self, keys: int) -> Array:
        """Which keys each token sees, shape (tokens, keys)."""
        if not self.vectors:
            window = self.layer.scored.window or keys
            return np.asarray(np.tri(len(self.x), keys) > np.tri(len(self.x), keys, -window))
        return np.stack([np.pad(seen, (0, keys - len(seen))) for _, _, seen in self.cache])

    def _softmax(self, call: KernelCall) -> None:
        """Of the heads of each column, or of each group of columns, in turn."""
        scores = self.get("scores_tanh" if self.layer.attention.capped else "scores")
        seen = self._seen(scores.shape[2])[:, None]
        self.done["shares"] = self._of_scores(call, np.where(seen, scores, MASKED_SCORE), empty=MASKED_SCORE)

    def _scores_tanh(self, call: KernelCall) -> None:
        """Between two scales, the first of which is with that of queries, the other with exponentials."""
        self.done["scores_tanh"] = self.layer.scored.cap * self._of_scores(call, self.get("scores"), empty=0.0)

    def _of_scores(self, call: KernelCall, scores: Array, *, empty: float) -> Array:
        """Run a vector kernel on scores, shape (tokens, heads, keys); missing keys have `empty`."""
        shape, mesh = _sizes(call)
        each = as_integer(shape.m / len(scores))
        if not self.vectors:
            parts = [scores[:, first : first + each].reshape(-1, shape.k) for first in range(0, scores.shape[1], each)]
            elements = [self._elements(call, part, empty=empty).reshape(len(scores), each, -1) for part in parts]
            return np.concatenate(elements, axis=1)
        owned = self._owned(scores.shape[1], each)
        rows = scores[:, owned].transpose(1, 3, 0, 2).reshape(mesh.cols, shape.k, -1)  # by column: positions, tokens and turns
        kernel = _kernel(call)
        program = in_double_precision(VECTOR[kernel.algorithm].build_program(shape, mesh, "float32", **kernel.options))
        tiles = rows.reshape(mesh.cols, mesh.rows, -1, rows.shape[2]).swapaxes(0, 1)
        out = run_program(program, {"x": tiles})["x"].swapaxes(0, 1).reshape(mesh.cols, shape.k, len(scores), each)
        by_head = np.zeros_like(scores)
        by_head[:, owned] = out.transpose(2, 0, 3, 1)
        return by_head

    def _owned(self, heads: int, each: int) -> Array:
        """Heads of each column of the region, shape (columns, turns)."""
        groups = heads // each
        if heads % each or self.mesh.cols % groups:
            raise ValueError(f"{heads} heads do not lie evenly on {self.mesh.cols} columns")
        first = np.arange(self.mesh.cols) // (self.mesh.cols // groups) * each
        return np.asarray(first[:, None] + np.arange(each))

    def _values(self, call: KernelCall) -> None:
        """Shares of each head times its values; of vectors, what a column multiplies with is of its own heads."""
        shares, attention = self.get("shares"), self.layer.attention
        heads = shares.shape[1]
        if not self.vectors:
            v = self.get("v_proj").reshape(len(self.x), -1, attention.v_dim)
            study = [_product(call, shares[:, head], v[:, head * v.shape[1] // heads]) for head in range(heads)]
            self.put_result("attention", np.concatenate(study, axis=1), COLS)
            return
        kernel, mesh = _kernel(call), self._on_all(call)
        self._is_wide(call, "kv", sum(v[seen].size for _, v, seen in self.cache))
        each = max(heads // mesh.cols, 1)
        owned, out, shape = self._owned(heads, each), np.zeros((len(self.x), heads, attention.v_dim)), _sizes(call)[0]
        for token, (_, v, _) in enumerate(self.cache):
            for turn in range(each):
                selected_heads = np.unique(owned[:, turn])
                matrix = np.concatenate([_padded(v[:, head * v.shape[1] // heads], shape.k) for head in selected_heads], axis=1)
                single_shape = GemmShape(1, shape.k, matrix.shape[1])
                program = in_double_precision(
                    find_gemv(kernel.algorithm).build_program(single_shape, mesh, "float32", **kernel.options)
                )
                tiles = find_gemv(kernel.algorithm).scatter_operands(single_shape, mesh, shares[token : token + 1, 0], matrix)
                tiles["x"] = shares[token, owned[:, turn]].T.reshape(mesh.rows, -1, mesh.cols, 1).swapaxes(1, 2)
                rows = find_gemv(kernel.algorithm).gather_result(single_shape, mesh, run_program(program, tiles))
                out[token, selected_heads] = _agreed(call, rows).reshape(len(selected_heads), -1)
        self.put_result("attention", out.reshape(len(self.x), -1), COLS)

    def _moved(self, call: KernelCall) -> None:
        """Tokens to experts and back; vectors that come to lie over the rows."""
        kernel = _kernel(call)
        if kernel.name == "kv_window":  # where a prompt is cut into stretches, each with the one before
            if as_integer(kernel.times):
                raise ValueError(f"call {call.name!r}: stretches of a prompt within a window have no numbers")
            return
        shape, mesh = _sizes(call)
        if kernel.algorithm == "turn":
            raise ValueError(f"call {call.name!r}: nothing of this layer has to turn")
        back = kernel.name == "combine"
        (x,) = [self.get("experts_down")] if back else self.collect_inputs(self.operators["router"])
        rows = x if back else x[self.routed_tokens.token]
        if (shape.m, shape.k) != rows.shape:
            raise ValueError(f"call {call.name!r}: {shape}, has {rows.shape}")
        outputs = run_program(
            in_double_precision(MOVE["dispatch"].build_program(shape, mesh)), {"x": matrix_blocks(rows, mesh.rows, mesh.cols)}
        )["all"]
        if not np.array_equal(outputs, np.broadcast_to(outputs[:1], outputs.shape)):
            raise ValueError(f"call {call.name!r}: rows of cores differ in what has come to all of them")
        whole_rows = join_blocks(outputs[:1], outputs.shape[2], shape.k)[: shape.m]
        if back:
            self.put_result(
                "combined", combine_experts(whole_rows, self.routed_tokens, len(self.x)), self.lie.get("experts_down", ROWS)
            )
            return
        count = len(self.layer.weights["experts_up"])
        self.here = LocalCopies(
            whole_rows, slice(0, count), [np.flatnonzero(self.routed_tokens.expert == index) for index in range(count)]
        )

    def side(self, call: KernelCall) -> str:
        """Over what the operand of a call lies; of a prompt always the columns, since tokens lie over the rows."""
        _, mesh = _sizes(call)
        if not self.vectors or self.mesh.rows == self.mesh.cols:
            return ""
        return ROWS if mesh == self.mesh else COLS

    def _on_all(self, call: KernelCall) -> CoreMesh:
        """The region, as rows and columns of a call that is on all of it."""
        _, mesh = _sizes(call)
        if mesh != self.mesh:
            raise ValueError(f"call {call.name!r}: on {mesh}, caches are on {self.mesh}")
        return mesh

    def put_result(self, name: str, value: Array, side: str) -> None:
        """What an operator leaves, over a side."""
        self.done[name], self.lie[name] = value, side

    def take_operand(self, name: str, side: str) -> Array:
        """What lies over a side."""
        return self._checked(self.get(name) if name else self.x, name, side)

    def _checked(self, value: Array, name: str, side: str) -> Array:
        lies = self.lie.get(name, ROWS)
        if side and self.vectors and self.mesh.rows != self.mesh.cols and lies != side:
            raise ValueError(f"part {self.part.name!r}: {name!r} lies over the {lies}, it is wanted over the {side}")
        return value


def _product(call: KernelCall, a: Array, weights: Array, rows: int = 0) -> Array:
    """The kernel's program, for all rows of the call, or for some of them at a time."""
    kernel = _kernel(call)
    gemm, mesh = _sizes(call)
    shape = GemmShape(rows or gemm.m, gemm.k, gemm.n)
    if (shape.m, shape.k, shape.n) != (*a.shape, weights.shape[1]):
        raise ValueError(f"call {call.name!r}: {shape}, has {a.shape} and {weights.shape}")
    given_gemm = find_gemm(kernel.algorithm) if kernel.kind == "gemm" else find_gemv(kernel.algorithm)
    program = in_double_precision(given_gemm.build_program(shape, mesh, "float32", **kernel.options))
    if kernel.kind == "gemv":
        return _agreed(
            call,
            given_gemm.gather_result(shape, mesh, run_program(program, given_gemm.scatter_operands(shape, mesh, a, weights))),
        )
    given = weights.T if getattr(given_gemm, "TRANSPOSED", False) else weights
    product: Array = given_gemm.gather_result(
        shape, mesh, run_program(program, given_gemm.scatter_operands(shape, mesh, a, given))
    )
    return product


def _kernel(call: KernelCall) -> MeshKernel:
    if call.kernel is None:
        raise ValueError(f"call {call.name!r}: has no kernel, as calls of a region have")
    return call.kernel


def _agreed(call: KernelCall, rows: Array) -> Array:
    """What all rows of cores have of a product of vectors."""
    if not np.allclose(rows, rows[:1]):
        raise ValueError(f"call {call.name!r}: rows of cores differ in what has come to all of them")
    return np.asarray(rows[0])


def _sizes(call: KernelCall) -> tuple[GemmShape, CoreMesh]:
    """Of one run, in whole numbers."""
    kernel = _kernel(call)
    sizes = (ceil_div(size, 1) for size in (kernel.shape.m, kernel.shape.k, kernel.shape.n))
    return GemmShape(*map(as_integer, sizes)), CoreMesh(as_integer(kernel.mesh.rows), as_integer(kernel.mesh.cols))


def _spread(x: Array, mesh: CoreMesh, alike: bool) -> Array:
    """Columns over the rows of a mesh, and rows over its columns, or on all of them."""
    if not alike:
        return matrix_blocks(x.T, mesh.rows, mesh.cols)
    return np.broadcast_to(matrix_blocks(x.T, mesh.rows, 1), (mesh.rows, mesh.cols, ceil_div(x.shape[1], mesh.rows), len(x)))


def _gathered(tiles: Array, shape: GemmShape, alike: bool) -> Array:
    return np.asarray(join_blocks(tiles[:, :1] if alike else tiles, shape.k, shape.m).T)


def _over_columns(x: Array, cols: int) -> Array:
    """Columns of a matrix over the columns of a mesh, shape (columns of the mesh, rows, columns)."""
    return np.asarray(matrix_blocks(x, 1, cols)[0])


def _padded(x: Array, rows: Any) -> Array:
    """Rows of cores that hold fewer positions than the fullest have zeros there; others have none to add."""
    return np.pad(x, ((0, as_integer(rows) - len(x)), (0, 0)))


def _other(side: str) -> str:
    """Where a product brings what lies over a side."""
    return {ROWS: COLS, COLS: ROWS}.get(side, "")
