"""Degrees of parallelism that inference engines start, and what others pad.

Heads, columns and blocks of scales have to divide.

vLLM, SGLang and TensorRT-LLM refuse a tensor parallelism that does not divide the heads of queries, or the columns of FFNs. KV
heads are replicated where there are fewer than devices. A device's columns must be whole blocks of scales. Vocabularies are
padded, and so are columns in blocks of up to `PADDED_BLOCK`. Layouts here pad what does not divide, which `padding_text` says.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from dse.space.array_math import ceil_div, where
from dse.space.layers import MOE, layers
from dse.space.mapping import FormatPlan, Mapping
from dse.space.model import Model
from dse.space.number_formats import FORMATS
from dse.space.parameter_counts import shared_expert_width, value_head_dim

PADDED_BLOCK = 32
"""Values of a block of scales up to which kernels pad columns (MXFP4 and NVFP4, as of gpt-oss's 2,880 on 8 devices)."""


class DividedWidth(NamedTuple):
    """What devices of a group divide: so many heads or columns, and of how many values each.

    Attributes:
        name: in words.
        units, width: heads or columns, and values of each along which blocks of scales lie.
        degree: devices that divide them.
        number_format: of the weights.
        replicated: whether fewer units than devices are copied.
    """

    name: str
    units: int
    width: int
    degree: Any
    number_format: str
    replicated: bool = False

    @property
    def scaled_values(self) -> int:
        """Values of a device's share that it must have whole numbers of; 1 where kernels pad blocks of scales."""
        number_format = FORMATS[self.number_format]
        block = max(number_format.block, number_format.across)
        return 1 if self.replicated or block <= PADDED_BLOCK else block  # keys and values are fused with queries


def divided_widths(model: Model, tp: Any, ep: Any, precision: FormatPlan) -> Iterator[DividedWidth]:
    """Heads and columns that devices divide, in layers of each kind.

    Args:
        model: whose.
        tp, ep: devices that share layers, and those that share out experts; experts are whole where `ep` is above 1.
        precision: number formats.
    """
    attention = str(precision.attention or precision.weights)
    for mixing in layers(model).mixings:
        kind, state = mixing.of, mixing.of.recurrence
        if state is not None:
            yield DividedWidth("heads of states", state.heads, state.value_dim, tp, attention)
            continue
        yield DividedWidth("heads", kind.heads, value_head_dim(kind), tp, attention)
        if kind.latent is None and kind.compressed is None and not kind.kv_reused:
            yield DividedWidth("KV heads", kind.kv_heads, kind.head_dim, tp, attention, replicated=True)
    for ffn in layers(model).ffns:
        experts = ffn.of.experts
        if not ffn.name.startswith(MOE) or experts is None:
            yield DividedWidth("columns of FFNs", ffn.of.ffn_intermediate, 1, tp, precision.weights)
            continue
        word, degree = str(precision.experts or precision.weights), where(ep > 1, 1, tp)
        yield DividedWidth("columns of experts", experts.intermediate, 1, degree, word)
        if experts.shared:
            yield DividedWidth("columns of shared experts", experts.shared * shared_expert_width(experts), 1, degree, word)


def start_obstacle(model: Model, tp: int, ep: int, precision: FormatPlan) -> str:
    """Why no engine starts a model with some degrees of parallelism; empty string if one does.

    Args:
        model, tp, ep, precision: as of `divided_widths`.
    """
    for divided in divided_widths(model, tp, ep, precision):
        units, degree = divided.units, divided.degree
        copied = divided.replicated and degree > units
        if degree % units if copied else units % degree:
            return f"{units:,} {divided.name} do not divide over TP {degree}"
        values = units // degree * divided.width
        if values % divided.scaled_values:
            share = f"{values:,} values a device, no multiple of the {divided.scaled_values} that share a scale"
            return f"{units:,} {divided.name} over TP {degree} are {share} in {divided.number_format}"
    return ""


def design_obstacle(mapping: Mapping, model: Model) -> str:
    """Why no engine starts a model by a mapping of devices or dies with a cache; empty string if one does."""
    obstacles = (start_obstacle(model, *degrees_of(plan), mapping.precision) for plan in plans_of(mapping))
    return next(filter(None, obstacles), "")


def plans_of(mapping: Mapping) -> tuple[Any, Any]:
    """Plans of both phases of a mapping."""
    return mapping.prefill, mapping.decode


def degrees_of(plan: Any) -> tuple[int, int]:
    """Devices of a plan that share layers, and that share out experts; 1 where none do."""
    return int(plan.tp), int(getattr(plan, "ep", 1))


def padding_text(model: Model, tp: int, ep: int, precision: FormatPlan) -> str:
    """What devices pad since it does not divide, in words; empty string if all divides.

    Args:
        model, tp, ep, precision: as of `divided_widths`.
    """
    texts = {}
    for divided in divided_widths(model, tp, ep, precision):
        own = ceil_div(divided.units, divided.degree)
        held = own * divided.degree
        if held > divided.units and not (divided.replicated and divided.degree > divided.units):
            name = f"{divided.units:,} {divided.name}"
            texts[name] = f"{name} as {held:,}, {own:,} on each of {divided.degree} ({held / divided.units - 1:+.0%})"
    return "; ".join(texts.values())
