"""Common parts of layouts on a region: places of widths and heads, and calls of kernels.

Of a prompt, tokens lie over the rows and widths over the columns. Vectors have the residual stream over the rows; what products
of it leave lies over the columns, on every row.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import ONCE, KernelCall, MeshKernel
from dse.evaluators.graph.operators import MatMulOp, MatrixDim, dim_width
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.layouts.tensor_formats import piece_bytes
from dse.space.array_math import ceil_div, maximum
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, Mapping, RegionPlan
from dse.space.model import Model
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import value_head_dim


def gemm_algorithm(plan: RegionPlan, part: str) -> str:
    """Algorithm of the matrix products of a segment of a layer."""
    algorithm = plan.gemm_attention if part == "attention" else plan.gemm_ffn
    return str(plan.gemm if algorithm is None else algorithm)


class RegionContext(NamedTuple):
    """Cores of a region, the model, and the plan of a phase.

    As `vectors`, every line of cores has all tokens; else they lie over the rows. `generated` are of a request's cached tokens.
    """

    model: Model
    mesh: CoreMesh
    plan: RegionPlan
    mapping: Mapping
    vectors: bool
    generated: Any

    @property
    def precision(self) -> FormatPlan:
        """Number formats of stored tensors."""
        precision: FormatPlan = self.mapping.precision
        return precision

    @property
    def is_same_layout(self) -> dict[str, Any]:
        """Options of vector kernels: whether tokens are replicated."""
        return {"replicated": True} if self.vectors else {}

    @property
    def tree(self) -> dict[str, Any]:
        """Options of products of vectors with matrices."""
        return {"phases": self.plan.ktree_k}

    @property
    def line(self) -> dict[str, Any]:
        """Options of kernels that add up along lines of cores."""
        return {"allreduce": self.plan.gemv, "phases": self.plan.ktree_k, **self.is_same_layout}

    def mesh_over(self, dim: MatrixDim) -> CoreMesh:
        """Mesh of the region, turned so that a width of activations lies over its rows.

        It lies over the columns beside tokens. Of vectors, the residual stream lies over the rows, and what products of it
        leave over the columns, from where the next ones bring it back.
        """
        return self.mesh.transposed_mesh if dim.split or not self.vectors else self.mesh

    def columns(self, operator: MatMulOp) -> MatrixDim:
        """Columns of a product as the region computes them. [-]"""
        return product_columns(operator, self.model, self.mapping.kv_projection)


def kernel_call(
    kernel: MeshKernel,
    operators: tuple[str, ...] = (),
    flop: Any = 0.0,
    weights: Any = None,
    *,
    masked: Any = 0.0,
    repeated: Any = 0.0,
) -> KernelCall:
    """Call of a kernel that runs some operators and reads some bytes of weights."""
    shape = (kernel.shape.m, kernel.shape.k, kernel.shape.n)
    reads = "" if weights is None else "weights"
    fetch = 0.0 if weights is None else weights
    return KernelCall(
        kernel.part, kernel.name, (), kernel.shape.m, shape, kernel=kernel, flop=flop, operators=operators, reads=reads,
        fetch=fetch,
        masked=masked, repeated=repeated,
    )  # fmt: skip


def elementwise_call(
    part: str,
    name: str,
    function: str,
    shape: GemmShape,
    mesh: CoreMesh,
    operators: tuple[str, ...] = (),
    *,
    same: bool = True,
    times: Any = ONCE,
    copies: Any = 1.0,
) -> KernelCall:
    """Call of a vector instruction on m tokens, k wide over the rows of a mesh.

    Tokens lie over its columns, or all of them on each.
    """
    options: dict[str, Any] = {"function": function} | ({"replicated": True} if same else {})
    return kernel_call(MeshKernel(part, name, "vector", "elementwise", shape, mesh, options, times, copies), operators)


PIECE = 1024
"""Values that a core has wide at a time, of packed ones that a product of vectors meets where they lie: 2 KiB of its memory
(assumed; instructions start once a piece, which is below 1 % of its operations). What travels while it is multiplied is wide
whole."""


def dequantize_piece(each: Any) -> Any:
    """Values that a core dequantises at a time, of vectors of which it has `each` values. [-]

    >>> dequantize_piece(12), dequantize_piece(2000)
    (1020, 2000)
    """
    return maximum(PIECE // each, 1) * each


def dequantize_calls(
    part: str,
    name: str,
    word: str,
    shape: GemmShape,
    mesh: CoreMesh,
    *,
    weights: Any = None,
    times: Any = ONCE,
    copies: Any = 1.0,
    pieces: bool = True,
) -> list[KernelCall]:
    """Calls that convert stored values to 16 bits before a kernel; none for formats of 16 bits.

    Args:
        part, name: of the kernel.
        word: the format.
        shape, mesh: m vectors over the columns, k wide over the rows, of one run.
        weights: bytes of weights that come from main memory for it; None where they are caches.
        times, copies: of the kernel.
        pieces: whether some vectors become wide after the others; else all at a time.
    """
    operations = FORMATS[word].expand
    if not operations or not np.any(times):
        return []
    if pieces:
        block_rows = ceil_div(shape.m, mesh.cols)
        each = ceil_div(shape.k, mesh.rows)
        turns = maximum(ceil_div(block_rows, dequantize_piece(each) // each), 1)
        shape, times = GemmShape(ceil_div(block_rows, turns) * mesh.cols, shape.k, 1), times * turns
    kernel = MeshKernel(part, f"{name}_expand", "vector", "expand", shape, mesh, {"operations": operations}, times, copies)
    return [kernel_call(kernel, weights=weights)]


def product_with_dequantize(word: str, sides: tuple[Any, Any], made: KernelCall) -> list[KernelCall]:
    """Product, and before it the dequantisation of its weights if their format needs one.

    Args:
        word: the format of weights.
        sides: vectors over the columns of the product's mesh, and values of each over its rows.
        made: the product.
    """
    kernel = made.kernel
    assert kernel is not None
    how: dict[str, Any] = {"times": kernel.times, "copies": kernel.copies, "pieces": kernel.kind == "gemv"}
    return fetch_before_product(
        dequantize_calls(kernel.part, kernel.name, word, GemmShape(*sides, 1), kernel.mesh, weights=made.fetch, **how), made
    )


def fetch_before_product(first: list[KernelCall], made: KernelCall) -> list[KernelCall]:
    """Product and its dequantisation; if there is one, it reads the weights from main memory."""
    return [*first, made._replace(reads="", fetch=0.0)] if first else [made]


def stored_shape(word: str, rows: Any, values: Any, lines: Any) -> GemmShape:
    """Shape of cached vectors as messages carry them, in 16-bit values, with whole ones per core.

    >>> stored_shape("fp16", 1, 128, 4).k, stored_shape("int8", 1, 128, 4).k, stored_shape("fp16", 1, 130, 4).k
    (128, 64, 132)
    """
    return GemmShape(rows, ceil_div(piece_bytes(word, ceil_div(values, lines)), BYTES_BY_FORMAT["fp16"]) * lines, 1)


def columns_to_rows_call(part: str, name: str, values: Any, rows: Any, context: RegionContext) -> KernelCall:
    """Call that moves vectors from columns of cores to rows."""
    return kernel_call(MeshKernel(part, name, "move", "turn", GemmShape(rows, values, 1), context.mesh, {}))


class HeadColumns(NamedTuple):
    """Columns of cores that hold a head, its width on them, heads per column, and groups side by side."""

    cols: Any
    width: Any
    turns: Any
    copies: Any


def head_columns(heads: MatrixDim, cols: Any) -> HeadColumns:
    """Columns of cores per head, where heads lie side by side over the columns."""
    local = ceil_div(dim_width(heads), cols)
    turns = maximum(ceil_div(heads.units, cols), 1.0)
    group = maximum(ceil_div(heads.width, local), 1.0)
    wide = group * local / turns
    return HeadColumns(group, wide, turns, heads.units / turns * maximum(heads.width / wide, 1.0))


def product_columns(operator: MatMulOp, model: Model, heads: str) -> MatrixDim:
    """Columns of a product; those of K and V by an option of `KV_HEADS`. [-]"""
    if operator.name not in ("k_proj", "v_proj"):
        return operator.n
    return MatrixDim(_kv_heads(model, heads), operator.n.width)


def kv_widths(model: Model, heads: str) -> tuple[int, int]:
    """Values of K and of V per position and layer of one kind; shared ones count as K. [-]"""
    if model.recurrence is not None or model.kv_reused:
        return 0, 0
    if model.latent is not None:
        return model.latent.kv_rank + model.latent.rope_dim, 0
    if model.compressed is not None:
        return model.head_dim, 0
    return _kv_heads(model, heads) * model.head_dim, _kv_heads(model, heads) * value_head_dim(model)


def compressed_entries(model: Model, tokens: Any) -> Any:
    """Compressed entries of a number of positions in a layer of one kind; 0 without compression. [-]

    >>> from types import SimpleNamespace as Said
    >>> compressed_entries(Said(compressed=Said(ratio=4)), 10), compressed_entries(Said(compressed=None), 10)
    (3, 0.0)
    """
    attention = model.compressed
    return 0.0 if attention is None or not attention.ratio else ceil_div(tokens, attention.ratio)


def _kv_heads(model: Model, heads: str) -> int:
    return int(model.heads if heads == "full" else model.kv_heads)
