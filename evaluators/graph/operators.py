"""Operators of a model before they are divided between devices.

A dimension states whether it may be divided; the rest follows in layouts.
"""

from dataclasses import dataclass, replace
from typing import Any

from dse.space.array_math import ceil_div
from dse.space.errors import DesignError


@dataclass(frozen=True, slots=True)
class MatrixDim:
    """A matrix dimension of `units` indivisible groups of `width`, divided between devices if `split`.

    Columns may be `beside` others with groups of their own, as heads of values beside heads of keys.
    """

    units: int
    width: int = 1
    split: bool = False
    beside: "MatrixDim | None" = None


def local_width(dim: MatrixDim, tp: Any) -> Any:
    """Columns of a dimension on one device.

    >>> (
    ...     local_width(MatrixDim(28, 128, split=True), 8),
    ...     local_width(MatrixDim(8, 128, split=True), 32),
    ...     local_width(MatrixDim(4096), 8),
    ... )
    (512, 128, 4096)
    >>> local_width(MatrixDim(4, 128, split=True, beside=MatrixDim(32, 64, split=True)), 8)
    384
    """
    own = (ceil_div(dim.units, tp) if dim.split else dim.units) * dim.width
    return own if dim.beside is None else own + local_width(dim.beside, tp)


def dim_width(dim: Any) -> Any:
    """Columns of a matrix dimension in all. [-]"""
    return dim.units * dim.width + (0 if dim.beside is None else dim_width(dim.beside))


@dataclass(frozen=True, slots=True)
class MatMulOp:
    """Matrix product [m, k] x [k, n] with weights in memory.

    Attributes:
        m: rows of activations, over all copies.
        copies: weight matrices that are read (experts that are touched).
        stored: weight matrices that exist (all experts); 0 for a table that another operator stores.
        apart: matrices side by side along n with rows of activations of their own, as those of heads.
        alone: whether rows are of prompts alone, or of decodes alone, which have another form.
        again: of the rows, those that an earlier step has done already, as of a prompt's latents before a chunk.
        unequal: whether copies have unequal shares of the rows, as experts that tokens choose.
    """

    name: str
    needs: tuple[str, ...]
    m: Any
    k: MatrixDim
    n: MatrixDim
    copies: Any = 1.0
    stored: float = 1.0
    apart: int = 1
    alone: bool = False
    again: Any = 0.0
    unequal: bool = False


@dataclass(frozen=True, slots=True)
class AttentionOp:
    """Attention: scores, softmax and weighted sum over cached or new keys and values.

    Attributes:
        heads, kv_heads: query and key/value heads; MLA's absorbed form has one KV head for all.
        qk_dim, v_dim: of a head.
        kv_dim: values cached per position and KV head, keys and values together; of a latent, of all heads.
        layout_dim: values of one contiguous piece in the cache: one head's keys of one position.
        pairs, positions: as in `Step`.
        tokens: rows of queries.
        picked: positions that an indexer picks out for each query, which lie anywhere, at most; 0 where none does.
        together: positions side by side that are picked together.
        capped: whether scores go through a tanh.
        sequences: that tokens are of.
        prompts: whether they are prompts, or chunks of them, but for `decodes`: sequences beside that have `queries` tokens
            each, which read `decoded` positions and have `scored` pairs in all.
        alone: whether tokens are of prompts alone, or of decodes alone, which have another form.
    """

    name: str
    needs: tuple[str, ...]
    heads: MatrixDim
    kv_heads: MatrixDim
    qk_dim: int
    v_dim: int
    kv_dim: int
    layout_dim: int
    tokens: Any
    pairs: Any
    positions: Any
    picked: int = 0
    together: int = 1
    capped: bool = False
    sequences: Any = 1.0
    prompts: bool = False
    decodes: Any = 0.0
    queries: float = 1.0
    decoded: Any = 0.0
    scored: Any = 0.0
    alone: bool = False

    @property
    def latent(self) -> bool:
        """Whether keys and values come from one cached row (a latent)."""
        return self.kv_dim != self.qk_dim + self.v_dim

    def cached_values(self, kv_heads: Any) -> Any:
        """Values cached per position with a number of KV heads; a latent is cached once."""
        return float(self.kv_dim) if self.latent else kv_heads * float(self.kv_dim)

    def position_values(self, kv_heads: Any) -> Any:
        """Values of a new position that attention reads: cached ones, or keys and values made from a latent."""
        return self.cached_values(kv_heads) if self.kv_heads.units == 1 else kv_heads * float(self.qk_dim + self.v_dim)


@dataclass(frozen=True, slots=True)
class IndexerOp:
    """Sparse indexer: small heads score one key per position and choose the best [deepseekai2025].

    Attributes:
        heads, dim: of the heads that score; every device has all of them, since all need the choice.
        top: positions that are chosen for each query, at most.
        block: positions side by side that are chosen together.
        tokens: rows of queries.
        pairs, positions: that are scored a head, and keys that are read, as in `Step`.
    """

    name: str
    needs: tuple[str, ...]
    heads: int
    dim: int
    top: int
    block: int
    tokens: Any
    pairs: Any
    positions: Any

    @property
    def alone(self) -> bool:
        """Whether tokens must be of prompts or of decodes only; false, as both are scored equally."""
        return False


@dataclass(frozen=True, slots=True)
class RecurrenceOp:
    """Update and read of recurrent states, one matrix [key_dim, value_dim] per head and sequence.

    Attributes:
        rule: recurrence rule, of `space.model.RECURRENCE_RULES`.
        heads: of values; those of keys are `shared` by as many of these.
        key_dim, value_dim: of a head.
        tokens, sequences: tokens of the step, and sequences to which they belong.
        resumed: sequences whose states are read; all are written.
        chunk: tokens of a sequence that are worked out together by products; 1 for one by one, as in decode.
    """

    name: str
    needs: tuple[str, ...]
    rule: str
    heads: MatrixDim
    shared: int
    key_dim: int
    value_dim: int
    tokens: Any
    sequences: Any
    resumed: Any
    chunk: int

    @property
    def alone(self) -> bool:
        """Whether tokens must be of prompts or of decodes only; true, as prompts are processed by chunks."""
        return True

    @property
    def state(self) -> int:
        """Values of one head's recurrent state."""
        return self.key_dim * self.value_dim


def refuse_selective(operator: RecurrenceOp) -> None:
    """Refuse Mamba-1 states on chips without kernels for them.

    Raises:
        DesignError: decays of each entry of a state.
    """
    if operator.rule == "selective":
        raise DesignError("model: Mamba-1 states (selective) are supported on shared-cache dies only; use chip=h100")


@dataclass(frozen=True, slots=True)
class ElementwiseOp:
    """Elementwise operator (norm, rotation, activation): vector operations and memory passes per element.

    Attributes:
        turned: columns of each head that a rotation changes, if whole heads are normed before; 0 for all.
        alone: whether rows are of prompts alone, or of decodes alone, which have another form.
    """

    name: str
    needs: tuple[str, ...]
    rows: Any
    dim: MatrixDim
    operations: float
    passes: int
    turned: int = 0
    alone: bool = False

    @property
    def rotated_columns(self) -> int:
        """Columns of each head that a rotation changes."""
        return self.turned or self.dim.width


Operator = MatMulOp | AttentionOp | IndexerOp | RecurrenceOp | ElementwiseOp

MIXING, FEEDING = "mixing", "feeding"
"""What the two halves of a layer are."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Operators that run once in each of `times` layers, between two synchronisation points of devices.

    Attributes:
        rows: input and output tokens.
        kind: `MIXING`, `FEEDING`, or its own name.
        of: a model whose layers all have the segment; None where it is in no layer.
        reach, indexed: places of the reaches of its attention, and of its indexer, among those of the model.
        joined: whether what it leaves is added to what the next part leaves, so that devices meet once for both.
    """

    name: str
    rows: Any
    operators: tuple[Operator, ...]
    times: int
    kind: str = ""
    of: Any = None
    reach: int = 0
    indexed: int = 0
    joined: bool = False


def common_segment(part: Segment) -> Segment:
    """A segment without operators that prompts and decodes run separately."""
    return replace(part, operators=tuple(operator for operator in part.operators if not operator.alone))


def useful_flop(operator: Operator) -> Any:
    """Useful operations of an operator: two per multiply-add, without padding or repetition. [op]"""
    if isinstance(operator, MatMulOp):
        return (
            2.0 * (operator.m - operator.again) * (operator.k.units * operator.k.width) * (operator.n.units * operator.n.width)
        )
    if isinstance(operator, AttentionOp):
        return 2.0 * operator.pairs * operator.heads.units * (operator.qk_dim + operator.v_dim)
    if isinstance(operator, IndexerOp):
        return 2.0 * operator.pairs * operator.heads * operator.dim
    if isinstance(operator, RecurrenceOp):
        return operator.tokens * operator.heads.units * (2.0 * recurrence_macs(operator) / operator.chunk)
    return 0.0


def repeated_flop(operator: Operator) -> Any:
    """Operations of an operator that repeat work of an earlier step. [op]"""
    return (
        2.0 * operator.again * (operator.k.units * operator.k.width) * (operator.n.units * operator.n.width)
        if isinstance(operator, MatMulOp)
        else 0.0
    )


def recurrence_shapes(operator: RecurrenceOp) -> tuple[tuple[float, float, float], ...]:
    """Products [m, k] x [k, n] per head of a recurrent layer, for a chunk of tokens or for a single token.

    A single token: the state is read with its key (if the rule corrects the stored value), the product of key and
    value is added, and the state is read with the query. A chunk: queries with keys and with the state, keys with
    values into the state, and scores with values, each within the chunk; where values are corrected also keys with
    keys, the inverse of a triangle applied to keys and values, and the state with keys. Scores of queries and keys
    are shared by all heads with the same ones, unless a head's own decay is needed in them.

    Source:
        chunked forms of [yang2024] section 3.3, [dao2024] section 6.

    >>> delta = RecurrenceOp("", (), "delta", MatrixDim(1), 1, 128, 128, 64, 1, 0, 64)
    >>> sum(m * k * n for m, k, n in recurrence_shapes(delta)) / 64 / 128 / 128
    5.5
    """
    chunk, keys, values = float(operator.chunk), float(operator.key_dim), float(operator.value_dim)
    corrected = operator.rule in ("delta", "channel_delta")
    read, added = (chunk, keys, values), (keys, chunk, values)
    if operator.chunk == 1:
        return (read, added, read) if corrected else (added, read)
    scores = (chunk / (1 if corrected else operator.shared), keys, chunk)
    own: tuple[tuple[float, float, float], ...] = (scores, read, added, (chunk, chunk, values))
    return own + (((chunk, keys, chunk), (chunk, chunk, keys), (chunk, chunk, values), read) if corrected else ())


def recurrence_macs(operator: RecurrenceOp) -> float:
    """Multiply-adds of a recurrent layer's head for a chunk of tokens."""
    return sum(m * k * n for m, k, n in recurrence_shapes(operator))
