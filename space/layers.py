"""Layers of a model: their kinds, the number and order of each kind, and the reach of attention.

A layer of a kind is described by a model whose layers are all of that kind (`Layer.of`). Code that reads heads or
windows is then the same for uniform and mixed models.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from dse.space.array_math import minimum, where
from dse.space.errors import DesignError, suggest_nearest
from dse.space.model import LayerKind, LayerOperator, Model

ATTENTION, STATE, GRAPH, FFN, MOE = "attention", "state", "graph", "ffn", "moe"
"""Segment names of layers that are all equal."""

RESERVED = ("embedding", "head", "mtp", "region", FFN, MOE)
"""Names that a kind of layers cannot have."""


AS_THE_MODEL: LayerKind = cast(Any, LayerKind)()


class AttentionReach(NamedTuple):
    """How far back a query attends: full, window, chunk, top-k or compressed.

    Attributes:
        window: tokens before it and with it, at most; 0 for all.
        chunk: tokens of the chunk that it does not look out of; 0 for no chunks.
        ratio: tokens of one compressed entry, besides the window; 0 for none.
        top: positions, or entries, that it picks out, at most; 0 for all.
    """

    window: int = 0
    chunk: int = 0
    ratio: int = 0
    top: int = 0

    def seen_positions(self, context: Any) -> Any:
        """Positions that a query attends to, given the context length; within a chunk the mean.

        >>> (
        ...     AttentionReach(window=4).seen_positions(10),
        ...     AttentionReach(chunk=4).seen_positions(10),
        ...     AttentionReach(window=4, ratio=2, top=3).seen_positions(10),
        ... )
        (4, 2.5, 7)
        """
        if self.chunk:
            return where(context > self.chunk, (self.chunk + 1) / 2, context)
        if self.ratio:
            entries = context / self.ratio
            return minimum(context, self.window) + (minimum(entries, self.top) if self.top else entries)
        limit = self.window or self.top
        return minimum(context, limit) if limit else context

    def count_pairs(self, prompt: Any) -> Any:
        """Query-key pairs per head of a whole prompt, each token attending to itself and earlier ones.

        >>> (
        ...     AttentionReach().count_pairs(4),
        ...     AttentionReach(window=2).count_pairs(4),
        ...     AttentionReach(chunk=2).count_pairs(5),
        ...     AttentionReach(top=2).count_pairs(4),
        ... )
        (10.0, 7.0, 7.0, 7.0)
        """
        if self.chunk:
            full = prompt // self.chunk
            left = prompt - full * self.chunk
            return full * (self.chunk * (self.chunk + 1) / 2) + left * (left + 1) / 2
        if self.ratio:
            near = _within(prompt, self.window) if self.window else 0.0
            return near + _within(prompt, self.top * self.ratio) / self.ratio
        return _within(prompt, self.window or self.top)

    def remaining_positions(self, past: Any, prompt: Any) -> Any:
        """Query-key pairs per head of prompt tokens that follow `past` tokens processed earlier.

        >>> whole, window, chunk = AttentionReach(), AttentionReach(window=2), AttentionReach(chunk=4)
        >>> whole.remaining_positions(2, 2), window.remaining_positions(2, 2), chunk.remaining_positions(2, 4)
        (7.0, 4.0, 10.0)
        """
        return self.count_pairs(past + prompt) - self.count_pairs(past)

    def kept_positions(self, context: Any) -> Any:
        """Most positions that the KV cache keeps of a context: all, a window or chunk, or compressed entries.

        >>> reaches = AttentionReach(4), AttentionReach(chunk=8), AttentionReach(top=4)
        >>> tuple(reach.kept_positions(10) for reach in reaches)
        (4, 8, 10)
        >>> AttentionReach(4, ratio=2).kept_positions(10), AttentionReach(ratio=2).kept_positions(10)
        (9.0, 5.0)
        """
        limit = self.window or self.chunk
        if self.ratio:
            return (minimum(context, limit) if limit else 0.0) + context / self.ratio
        return minimum(context, limit) if limit else context

    @property
    def grows(self) -> float:
        """Positions added to the KV cache per token of a long sequence. [1]"""
        return 1.0 / self.ratio if self.ratio else float(not (self.window or self.chunk))


def causal_pairs(queries: Any, keys: Any, window: Any = 0) -> Any:
    """Query-key pairs of the last `queries` of `keys` positions in a causal window; window 0 for all.

    >>> causal_pairs(4, 6), causal_pairs(4, 6, 2), causal_pairs(1, 6), causal_pairs(6, 6) == AttentionReach().count_pairs(6)
    (18.0, 8.0, 6.0, True)
    """
    limit = where(window > 0, window, keys) if np.any(window > 0) else keys
    return _within(keys, limit) - _within(keys - queries, limit)


def _within(prompt: Any, limit: Any) -> Any:
    near = minimum(prompt, limit) if np.any(limit) else prompt
    return near * (near + 1) / 2 + (prompt - near) * near


class LayerGroup(NamedTuple):
    """Layers of a model that share one kind of mixing or of FFN.

    Attributes:
        name: of the part of a step that it is.
        of: a model all of whose layers are of it.
        times: layers that have it.
        reach: place of its reach among those of the model; of mixing by attention.
        indexed: place of the reach of its indexer.
    """

    name: str
    of: Model
    times: int
    reach: int = 0
    indexed: int = 0


class LayerSequence(NamedTuple):
    """All layers of a model: groups of mixings and FFNs, their order, and the attention reaches.

    Attributes:
        mixings, ffns: layer groups of each, in the order of their first layer.
        line: of each layer the names of its mixing and its FFN; "" where it has none.
        reaches: how far attention looks, as far as that differs.
    """

    mixings: tuple[LayerGroup, ...]
    ffns: tuple[LayerGroup, ...]
    line: tuple[tuple[str, str], ...]
    reaches: tuple[AttentionReach, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the segments of all layers in order."""
        return tuple(name for layer in self.line for name in layer if name)


@lru_cache(maxsize=256)
def layers(model: Model) -> LayerSequence:
    """Layer groups and order of a model, from its kinds and its `order` text.

    Raises:
        DesignError: an order that does not add up, or names no kind; no message has the model's address.
    """
    kinds = dict(model.kinds)
    turns = expand_order(model.order, tuple(kinds), model.layers) if model.order else ("",) * model.layers
    own = {name: model_of_kind(model, kinds.get(name, AS_THE_MODEL)) for name in dict.fromkeys(turns)}
    mixings: dict[Model, tuple[str, int]] = {}
    ffns: dict[tuple[str, Model], tuple[str, int]] = {}
    line = []
    for place, name in enumerate(turns):
        kind, given_model = kinds.get(name, AS_THE_MODEL), own[name]
        mixes = "" if kind.mixing == "none" else _counted(mixings, _mixing(given_model), name)
        words = "ffn" if kind.ffn is None else kind.ffn
        if words == "ffn":
            words = "experts" if given_model.experts is not None and place >= given_model.experts.dense_layers else "dense"
        feeds = "" if words == "none" else _counted(ffns, (words, _ffn(given_model, words)), name)
        line.append((mixes, feeds))
    named_mixings = {kind: _named(name, kind, len(mixings)) for kind, (name, _) in mixings.items()}
    several = {word: sum(name_of_ffn == word for name_of_ffn, _ in ffns) for word, _ in ffns}
    named_ffns = {
        key: (MOE if key[0] == "experts" else FFN) + (f" {name}" if several[key[0]] > 1 else "")
        for key, (name, _) in ffns.items()
    }
    reaches = tuple(dict.fromkeys(reach for model in mixings for reach in _reaches(model))) or (AttentionReach(),)
    return LayerSequence(
        tuple(
            LayerGroup(named_mixings[model], model, count, *(reaches.index(reach) for reach in _reaches(model)[:2]))
            for model, (_, count) in mixings.items()
        ),
        tuple(LayerGroup(named_ffns[key], key[1], count) for key, (_, count) in ffns.items()),
        tuple((_at(named_mixings, mixes), _at(named_ffns, feeds)) for mixes, feeds in line),
        reaches,
    )


def _counted(known: dict[Any, tuple[str, int]], key: Any, name: str) -> Any:
    first, count = known.get(key, (name, 0))
    known[key] = first, count + 1
    return key


def _at(names: dict[Any, str], key: Any) -> str:
    return names[key] if key != "" else ""


def _named(name: str, model: Model, count: int) -> str:
    if model.operators:
        return name or GRAPH
    if count == 1 and model.recurrence is None:
        return ATTENTION
    if model.recurrence is not None:
        return name or STATE
    return name if name.endswith(ATTENTION) else f"{name} {ATTENTION}".strip()


def model_of_kind(model: Model, kind: LayerKind) -> Model:
    """A model whose layers are all of one kind, made from a model and the kind's fields."""
    values: dict[str, Any] = {spec.name: getattr(kind, spec.name) for spec in fields(kind)}
    values = {name: value for name, value in values.items() if value is not None and name not in ("mixing", "ffn")}
    if not kind.operators or kind.mixing == ATTENTION:  # those of a graph are the model's, unless the kind has attention
        values["operators"] = () if kind.mixing == ATTENTION else model.operators
    if kind.mixing == ATTENTION:
        values["recurrence"] = None
    return replace(model, kinds=(), order="", **values)


def _mixing(model: Model) -> Model:
    """What mixing has of it: FFNs are none of its."""
    return replace(model, ffn_intermediate=1, experts=None)


def _ffn(model: Model, word: str) -> Model:
    """What an FFN has of it: kinds that differ in mixing alone share theirs."""
    plain = replace(
        model, heads=1, kv_heads=1, head_dim=1, v_dim=0, window=0, chunk=0, rope=1.0, qk_norm=False, qkv_bias=False,
        out_bias=False, sinks=False, gate="none", softcap=False, v_proj=True, kv_reused=False, latent=None, indexer=None,
        recurrence=None, compressed=None, operators=(),
    )  # fmt: skip
    return replace(plain, experts=None) if word == "dense" else replace(plain, ffn_intermediate=1)


def attention_reach(model: Model) -> AttentionReach:
    """Attention reach of a model whose layers are all of one kind."""
    top = 0 if model.indexer is None else model.indexer.top
    return AttentionReach(model.window, model.chunk, 0 if model.compressed is None else model.compressed.ratio, top)


def indexer_reach(model: Model) -> AttentionReach:
    """Reach of the sparse indexer of a model of one layer kind: all earlier positions or entries."""
    ratio = 0 if model.compressed is None else model.compressed.ratio
    return AttentionReach(0, 0, ratio)


def has_described_layers(model: Model) -> bool:
    """Whether operators of a graph describe some layers of a model."""
    return bool(model.operators) or any(kind.operators for _, kind in model.kinds)


def operator_reach(operator: LayerOperator) -> AttentionReach:
    """Attention reach of an operator that a graph describes."""
    return AttentionReach(operator.window)


def _reaches(model: Model) -> tuple[AttentionReach, ...]:
    if model.operators:
        attends = (operator for _, operator in model.operators if operator.kind == ATTENTION)
        return tuple(dict.fromkeys(map(operator_reach, attends)))
    if model.recurrence is not None:
        return ()
    return (attention_reach(model),) if model.indexer is None else (attention_reach(model), indexer_reach(model))


def differs_between_phases(model: Model) -> bool:
    """Whether some layer computes a prompt otherwise than a single token (latents or states)."""
    return any(layer.of.latent is not None or layer.of.recurrence is not None for layer in layers(model).mixings)


class PerReachArray(np.ndarray[Any, Any]):
    """Counts with one leading axis entry per attention reach of a model; arithmetic keeps the type."""


def per_reach(model: Model, count: Callable[[AttentionReach], Any]) -> Any:
    """Counts for each attention reach of a model: a number for one reach, else with a leading axis."""
    counts = [count(reach) for reach in layers(model).reaches]
    if len(counts) == 1:
        return counts[0]
    several = np.stack(np.broadcast_arrays(*(np.asarray(count, float) for count in counts)))
    return (several.reshape(-1, 1, 1) if several.ndim == 1 else several).view(PerReachArray)


def value_at_reach(values: Any, place: int) -> Any:
    """Count at one attention reach; a single number is returned unchanged.

    >>> value_at_reach(3.0, 0), value_at_reach(np.array([[[1.0]], [[2.0]]]).view(PerReachArray), 1)
    (3.0, 2.0)
    """
    if not isinstance(values, PerReachArray):
        return values
    value = np.asarray(values[place])
    return float(value.item()) if value.size == 1 else value


def value_of_widest_reach(values: Any) -> Any:
    """Largest count over the attention reaches; a single number is returned unchanged.

    >>> value_of_widest_reach(3.0), value_of_widest_reach(np.array([[[1.0]], [[2.0]]]).view(PerReachArray)).tolist()
    (3.0, [[2.0]])
    """
    return np.asarray(values).max(axis=0) if isinstance(values, PerReachArray) else values


ORDER_TERM = re.compile(r"\s*(?:(\d+)\s*\(|(\d+)?\s*([A-Za-z_]\w*)|(\))|(,))")

ORDER_EXAMPLE = "write as in 10 (5 local, global), 2 local"


def expand_order(order: str, known: tuple[str, ...], wanted: int) -> tuple[str, ...]:
    """Kind of each layer, expanded from the `order` text of a model.

    Raises:
        DesignError: what cannot be read, a name that no kind has, or another number of layers.

    >>> expand_order("2 (3 delta, full), delta", ("delta", "full"), 9)
    ('delta', 'delta', 'delta', 'full', 'delta', 'delta', 'delta', 'full', 'delta')
    """
    stack: list[tuple[int, list[str]]] = [(1, [])]
    place = 0
    while place < len(order.rstrip()):
        term = ORDER_TERM.match(order, place)
        if term is None:
            raise DesignError(f"order: cannot read {order[place:].strip()[:40]!r}; write as in 10 (5 local, global), 2 local")
        place = term.end()
        group, count, name, closes, _ = term.groups()
        if group is not None:
            stack.append((_times(group, wanted), []))
        elif name is not None:
            if name not in known:
                raise DesignError(f"order: no kind {name!r}; {suggest_nearest(name, known)}")
            stack[-1][1].extend([name] * _times(count or "1", wanted))
        elif closes is not None:
            if len(stack) == 1:
                raise DesignError(f"order: a closing bracket has no opening one; {ORDER_EXAMPLE}")
            times, inner = stack.pop()
            if times * len(inner) > wanted:
                raise DesignError(f"order: has more layers than model.layers={wanted}; make both equal")
            stack[-1][1].extend(inner * times)
    if len(stack) > 1:
        raise DesignError(f"order: an opening bracket has no closing one; {ORDER_EXAMPLE}")
    turns = tuple(stack[0][1])
    if len(turns) != wanted:
        raise DesignError(f"order: has {len(turns)} layers, but model.layers={wanted}; make both equal")
    return turns


def _times(text: str, wanted: int) -> int:
    if len(text) > 6 or int(text) > wanted:
        raise DesignError(f"order: {text[:20]} repetitions exceed model.layers={wanted}")
    return int(text)


def check_layers(model: Model) -> None:
    """Refuse layer kinds that the order never names, and fields that contradict each other.

    Raises:
        DesignError: with the field first.
    """
    for name, _ in model.kinds:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in RESERVED:
            raise DesignError(f"kinds.{name}: is not allowed as a name; choose a word, none of {', '.join(RESERVED)}")
    if bool(model.order) != bool(model.kinds):
        field, other = ("kinds", "order") if model.order else ("order", "kinds")
        raise DesignError(f"{field}: missing, but {other} is set; set both, or none of them for equal layers")
    found_layers = layers(model)
    used = expand_order(model.order, tuple(dict(model.kinds)), model.layers) if model.order else ()
    idle = {name for name, _ in model.kinds} - set(used)
    if idle:
        raise DesignError(f"kinds.{min(idle)}: no layer is of this kind; name it in order, or remove it")
    if not any(mixes for mixes, _ in found_layers.line):
        raise DesignError("kinds: at least one layer must mix tokens")
    if model.mtp and not any(feeds for _, feeds in found_layers.line):
        raise DesignError(f"mtp: {model.mtp} modules need the last FFN of a layer, and no layer has one; set mtp: 0")
    for name, kind in model.kinds:
        if kind.ffn == "experts" and model.experts is None:
            raise DesignError(f"kinds.{name}.ffn: experts, but the model has none; set experts, or use dense here")
    kinds = dict(model.kinds) or {"": AS_THE_MODEL}
    turns = expand_order(model.order, tuple(kinds), model.layers) if model.order else ("",)
    mixes = [name for name in dict.fromkeys(turns) if kinds[name].mixing != "none"]
    for place, name in enumerate(mixes):
        _refuse(model_of_kind(model, kinds[name]), name, kinds[name], first=place == 0)


def _refuse_operators(operators: tuple[tuple[str, LayerOperator], ...], address: str) -> None:
    """Refuse needs that name no earlier operator, and sizes that their groups do not divide."""
    known: set[str] = set()
    for name, operator in operators:
        where_named = f"{address}.{name}"
        missing = next((need for need in operator.needs if need not in known), None)
        if missing is not None:
            raise DesignError(f"{where_named}.needs: no earlier operator {missing!r}; name operators above it")
        for size, groups in (("inputs", "input_groups"), ("outputs", "output_groups"), ("heads", "kv_heads")):
            if getattr(operator, size) % getattr(operator, groups):
                raise DesignError(
                    f"{where_named}.{groups}: {getattr(operator, groups)} do not divide {size}={getattr(operator, size)}"
                )
        if operator.chosen > operator.matrices:
            raise DesignError(f"{where_named}.chosen: {operator.chosen} of {operator.matrices} matrices")
        known.add(name)


def _refuse(model: Model, name: str, kind: LayerKind, *, first: bool) -> None:
    def get_address(field: str) -> str:
        """The address of what a kind of layers has: its own, or that of the model."""
        own = getattr(kind, field.partition(".")[0]) is not None
        return f"kinds.{name}.{field}" if own else field

    if model.operators:
        _refuse_operators(model.operators, f"kinds.{name}.operators" if kind.operators else "operators")
        return
    if model.recurrence is not None:
        state = model.recurrence
        if state.heads % state.key_heads:
            raise DesignError(
                f"{get_address('recurrence.key_heads')}: {state.key_heads} key heads do not divide {state.heads} value heads"
            )
        return
    if model.heads % model.kv_heads:
        raise DesignError(f"{get_address('kv_heads')}: {model.kv_heads} KV heads do not divide {model.heads} query heads")
    if model.window > model.max_position:
        raise DesignError(
            f"{get_address('window')}: {model.window} tokens exceed max_position={model.max_position}; set 0 for no window"
        )
    if model.chunk > model.max_position:
        raise DesignError(
            f"{get_address('chunk')}: {model.chunk} tokens exceed max_position={model.max_position}; set 0 for no chunks"
        )
    if model.window and model.chunk:
        raise DesignError(
            f"{get_address('chunk')}: cannot be combined with a window of {model.window} tokens; remove one of them"
        )
    if model.kv_reused and first:
        raise DesignError(f"{get_address('kv_reused')}: no earlier layer has keys and values to reuse")
    if model.compressed is not None and model.heads % model.compressed.groups:
        raise DesignError(
            f"{get_address('compressed.groups')}: {model.compressed.groups} groups do not divide {model.heads} query heads"
        )
    if model.indexer is None:
        return
    index = model.indexer
    if model.compressed is None and (model.window or model.chunk):
        raise DesignError(f"{get_address('indexer')}: cannot be combined with a window or chunk; remove one of them")
    if index.top > model.max_position:
        raise DesignError(
            f"{get_address('indexer.top')}: picks {index.top} positions, "
            f"but a cache has {model.max_position} at most (max_position)"
        )
    if index.top % index.block:
        raise DesignError(f"{get_address('indexer.top')}: {index.top} positions are not a multiple of blocks of {index.block}")
    if index.reused and first:
        raise DesignError(f"{get_address('indexer.reused')}: no earlier layer has a choice to reuse")
