"""Recurrent states on a region of cores, which keep them in local memory.

Vectors. The state of a head, [key_dim, value_dim] in single precision, lies with its keys over the rows and its values over the
columns that the head has, heads of a column in turn. Keys and queries come from the columns to the rows (`move/turn.py`), and
what is there is read with both in one product whose sums go along the columns of cores, as in other products of vectors:

    S k and S q of the state before;  d = b (v - g S k);  o = g S q + (k q) d;  S = g S + k d

so that a token takes one allreduce, the product of k and q as a column of each head beside its values; rules that correct
nothing read with q alone, and add v. All else is done on every core by itself. Where a column has fewer rows of a state than
there are cores, these have whole values of it evenly (`region_memory.py`); the product is evaluated as if they had whole rows.

Prompts. Tokens of a chunk lie over `rows` of the region's rows, as few as hold one (its share of the prompt, evenly), and
chunks side by side over all: a chunk is far smaller than a region, whose every row more would be a step more of its products.
Within a chunk they are those of attention, on the columns of a head, all chunks at a time. Keys and queries then go to all
cores of their row, so that products with the state, of which each core has all keys of its own values, need nobody else. The
state goes from chunk to chunk down the rows: read with keys, where the rule corrects, then the sum over the rows of what the
chunk adds, decay, and the way to the next rows. That is the chain: chunks of a sequence are one after the other, heads beside
each other. What is read with queries waits for no chain.
"""

from typing import Any, NamedTuple

from dse.evaluators.calls.call import ONCE, KernelCall, MeshKernel
from dse.evaluators.graph.operators import (
    ElementwiseOp,
    MatMulOp,
    MatrixDim,
    RecurrenceOp,
    Segment,
    dim_width,
    recurrence_shapes,
    refuse_selective,
)
from dse.evaluators.kernels.gemm import find_gemm
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.layouts.region_calls import HeadColumns, RegionContext, elementwise_call, head_columns, kernel_call
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.model import Model
from dse.space.parameter_counts import STATE_BYTES, conv_values_per_sequence

CORRECTED_RULES = ("delta", "channel_delta")
"""Rules that read what is there before they add to it."""

WORDS = 2
"""16-bit values that one of single precision is as long as."""


def recurrence_calls(part: Segment, operator: RecurrenceOp, context: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    """Calls that update and read the states of a recurrent layer.

    Args:
        part, of, on: what, and where.
        ring: the algorithm by which blocks of a chunk go round, an option of their products.
    """
    refuse_selective(operator)
    return _token(part, operator, context) if context.vectors else _chunks(part, operator, context, ring)


def convolution_calls(part: Segment, operator: ElementwiseOp, context: RegionContext, taps: int) -> list[KernelCall]:
    """Calls of a causal convolution, tap by tap, and its SiLU.

    Rows of a prompt first get the last tokens of the rows above.
    """
    k, mesh = dim_width(operator.dim), context.mesh_over(operator.dim)
    shape = GemmShape(operator.rows, k, 1)
    before = MeshKernel(part.name, "state_before", "kv", "shift", GemmShape(taps - 1, k, 1), context.mesh, {})
    return [
        *([] if context.vectors or taps == 1 else [kernel_call(before)]),
        elementwise_call(part.name, "state_taps", "tapped", shape, mesh, same=context.vectors, times=float(taps)),
        elementwise_call(part.name, operator.name, "silu", shape, mesh, (operator.name,), same=context.vectors),
    ]


def _token(part: Segment, operator: RecurrenceOp, context: RegionContext) -> list[KernelCall]:
    m, corrected, values = operator.tokens, operator.rule in CORRECTED_RULES, operator.heads.units * operator.value_dim
    mesh, name, head = (
        context.mesh,
        part.name,
        _key_head(operator.heads.units // operator.shared, operator.shared * operator.value_dim, context.mesh),
    )
    both = GemmShape(2 * m * head.turns, operator.key_dim, 1)
    read = GemmShape(m * (2 if corrected else 1), operator.key_dim, values + operator.heads.units)
    new, shape = GemmShape(m, values, 1), GemmShape(m * ceil_div(values, mesh.cols), operator.key_dim, 1)
    _, read_out, added, _, *more = _done(operator)
    over = mesh.transposed_mesh
    return [
        *_rates(part, operator, context),
        kernel_call(
            MeshKernel(name, "state_turn", "move", "turn", both, CoreMesh(mesh.rows, head.cols), {}, ONCE, head.copies)
        ),
        kernel_call(
            MeshKernel(name, "state_read", "gemv", context.plan.gemv, read, mesh, context.tree), (), read_out + sum(more)
        ),
        *([elementwise_call(name, "state_correct", "correct", new, over)] if corrected else ()),
        elementwise_call(name, "state_out", "learn", new, over),
        elementwise_call(name, operator.name, "learn", shape, mesh, (operator.name,))._replace(flop=added),
    ]


class _Chunks(NamedTuple):
    """Chunks of a prompt on a region.

    Attributes:
        count: of them; each is `tokens` long, on so many `rows`.
        beside, turns: chunks that are worked out at a time, and how many times.
        head: columns of a head, or of all that share its keys where these share scores.
        wide: values of it.
    """

    count: Any
    tokens: Any
    rows: Any
    beside: Any
    turns: Any
    head: HeadColumns
    wide: Any


def _cut(operator: RecurrenceOp, mesh: CoreMesh) -> _Chunks:
    tokens = minimum(operator.tokens, operator.chunk * 1.0)
    count = ceil_div(operator.tokens, tokens)
    rows = minimum(maximum(ceil_div(tokens, ceil_div(operator.tokens, mesh.rows)), find_gemm("meshgemm_t").MIN_SIDE), mesh.rows)
    beside = minimum(maximum(mesh.rows // rows, 1), count)
    shared = 1 if operator.rule in CORRECTED_RULES else operator.shared
    head = head_columns(MatrixDim(operator.heads.units // shared, shared * operator.value_dim), mesh.cols)
    return _Chunks(count, tokens, rows, beside, ceil_div(count, beside), head, head.width)


def _chunks(part: Segment, operator: RecurrenceOp, context: RegionContext, ring: dict[str, Any]) -> list[KernelCall]:
    by, name, keys, corrected = _cut(operator, context.mesh), part.name, operator.key_dim, operator.rule in CORRECTED_RULES
    head, own = by.head, CoreMesh(by.rows, by.head.cols)
    scores, read, added, within, *more = _done(operator)
    of_keys = _key_head(operator.heads.units // operator.shared, operator.shared * operator.value_dim, context.mesh)
    gathered, along = GemmShape(2 * keys * of_keys.turns, operator.tokens, 1), CoreMesh(of_keys.cols, context.mesh.rows)
    beside: tuple[Any, ...] = (head.turns * by.turns, head.copies * by.beside)

    def product(what: str, algorithm: str, k: Any, n: Any, done: Any, times: int = 1) -> KernelCall:
        turns, copies = beside
        shape = GemmShape(by.tokens, k, n)
        return kernel_call(MeshKernel(name, what, "gemm", algorithm, shape, own, ring, times * turns, copies), (), done)

    def with_states(what: str, times: Any, copies: Any, done: Any) -> KernelCall:
        """Each core has its tokens' keys, and all of the state that is of its values."""
        shape = GemmShape(ceil_div(by.tokens, by.rows), keys, by.wide)
        return kernel_call(
            MeshKernel(name, what, "gemv", context.plan.gemv, shape, CoreMesh(1, head.cols), context.tree, times, copies),
            (),
            done,
        )

    def on_tokens(what: str, function: str, wide: Any, times: Any, copies: Any) -> KernelCall:
        return elementwise_call(
            name, what, function, GemmShape(by.tokens, wide, 1), own.transposed_mesh, same=False, times=times, copies=copies
        )

    calls = [
        *_rates(part, operator, context),
        kernel_call(MeshKernel(name, "state_keys", "move", "dispatch", gathered, along, {}, ONCE, of_keys.copies)),
        product("chunk_scores", "meshgemm_t", keys, by.tokens, scores + (more[0] if corrected else 0.0), 2 if corrected else 1),
        on_tokens("chunk_decays", "decayed", by.tokens * (2 if corrected else 1), *beside),
    ]
    if corrected:
        calls.append(product("chunk_inverse", "meshgemm_v", by.tokens, keys + by.wide, more[1] + more[2]))
    calls.append(product("chunk_values", "meshgemm_v", by.tokens, by.wide, within))
    # the chain: what is in it goes chunk after chunk, else all are beside one another
    chain: tuple[Any, ...] = (head.turns * by.count, head.copies)
    if corrected:
        calls += [
            with_states("state_read_keys", chain[0], chain[1] * by.rows, more[3]),
            on_tokens("state_correct", "add", by.wide, *chain),
        ]
    times, copies = chain if corrected else beside
    # sums are long and their lines short: one phase of a tree streams them once
    summed, tree = GemmShape(keys, by.tokens, by.wide), {"phases": 1, "broadcast": False}
    sums = MeshKernel(name, "state_add", "gemv", context.plan.gemv, summed, own, tree, times, copies)
    whole = GemmShape(operator.tokens, operator.heads.units * operator.value_dim, 1)
    shape, down = GemmShape(keys, by.wide, 1), GemmShape(WORDS * keys, by.wide, 1)
    way = MeshKernel(name, "state_next", "move", "transfer", down, CoreMesh(head.cols, by.rows), {"replicated": True}, *chain)
    return [
        *calls,
        kernel_call(sums, (), added),
        elementwise_call(name, "state_decay_sum", "decayed", shape, CoreMesh(head.cols, 1), times=chain[0], copies=chain[1]),
        kernel_call(way),
        with_states("state_read", beside[0], beside[1] * by.rows, read),
        elementwise_call(name, operator.name, "add", whole, context.mesh.transposed_mesh, (operator.name,), same=False),
    ]


def _rates(part: Segment, operator: RecurrenceOp, context: RegionContext) -> list[KernelCall]:
    """Rates and decays from what is projected for them: a softplus and an exponential, of a head or of each channel of keys."""
    projected = ("state_decay", *(("decay_up",) if operator.rule == "channel_delta" else ()))
    wide = sum(
        dim_width(operator.n) for operator in part.operators if isinstance(operator, MatMulOp) and operator.name in projected
    )
    shape = GemmShape(operator.tokens, wide, 1)
    return (
        [
            elementwise_call(
                part.name, "state_rates", "silu", shape, context.mesh.transposed_mesh, same=context.vectors, times=2.0
            )
        ]
        if wide
        else []
    )


def _done(operator: RecurrenceOp) -> list[Any]:
    """Operations of all heads, by the product: scores, reading, adding, and within a chunk.

    Where values are corrected also keys with keys, the inverse with keys and with values, and reading with keys. Those of a
    token by itself have nothing within.
    """
    each = operator.tokens * (operator.heads.units / operator.chunk) * 2.0
    macs = [each * (m * k * n) for m, k, n in recurrence_shapes(operator)]
    if operator.chunk > 1:
        return macs
    *corrected, added, read = macs
    return [0.0, read, added, 0.0, *((0.0, 0.0, 0.0, *corrected) if corrected else ())]


def _key_head(heads: Any, wide: Any, mesh: CoreMesh) -> HeadColumns:
    """The columns of a head of keys, which are those of all heads of values that share it."""
    return head_columns(MatrixDim(heads, wide), mesh.cols)


def state_bytes(model: Model, mesh: CoreMesh) -> Any:
    """Bytes per core of one sequence's state in a layer; a column's share lies evenly on its rows. [B]"""
    state = model.recurrence
    if state is None:
        return 0.0
    return STATE_BYTES * ceil_div(state.key_dim * ceil_div(state.heads * state.value_dim, mesh.cols), mesh.rows)


def conv_bytes(model: Model, mesh: CoreMesh, value: float) -> Any:
    """Bytes per core that a convolution keeps of a sequence in a layer, on every row. [B]"""
    state = model.recurrence
    if state is None or not state.conv:
        return 0.0
    return value * (state.conv - 1) * ceil_div(conv_values_per_sequence(model) / (state.conv - 1), mesh.cols)


def working_bytes(model: Model, tokens: Any, mesh: CoreMesh) -> Any:
    """Bytes per core for the passing state of a prompt's prefill, and its keys and queries. [B]"""
    state = model.recurrence
    if state is None:
        return 0.0
    columns = ceil_div(state.heads * state.value_dim, mesh.cols)
    keys = _key_head(state.key_heads, state.heads // state.key_heads * state.value_dim, mesh).turns * ceil_div(
        tokens, mesh.rows
    )
    return state.key_dim * (STATE_BYTES * columns + 2 * STATE_BYTES / WORDS * keys)
