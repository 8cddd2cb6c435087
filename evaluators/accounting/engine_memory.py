"""Main memory by the rule of an inference engine: activations of its first run, and reserves.

An engine runs the largest iteration once before it allocates KV blocks, and gives these a share of what is left
(`space.inference_engine`, `docs/physics.md`, "KV pool of an inference engine"). Without an engine, KV caches have all
memory that weights and the layout's activations leave.
"""

from typing import Any, NamedTuple

from dse.evaluators.accounting.memory_contents import ACTIVATIONS
from dse.evaluators.layouts.startable_degrees import divided_widths, plans_of
from dse.space.array_math import maximum, minimum, where
from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.inference_engine import InferenceEngine
from dse.space.layers import layers, per_reach
from dse.space.limits import Limit, divides_limit
from dse.space.main_memory import main_memory
from dse.space.mapping import FormatPlan, Mapping
from dse.space.memoize import memoize_by_identity
from dse.space.model import Model

ENGINE_PART = "inference engine"
"""Name of memory that an inference engine keeps for itself, among the contents of main memory."""

HALF = 2.0
"""Bytes of a value of 16 bits, which activations of the first run have. [B]"""


class EngineDemand(NamedTuple):
    """What an inference engine sizes the first run on one device for; leaves broadcast over designs.

    Attributes:
        tokens: of the largest iteration. [token]
        requests: that run at once. [1]
        tp: devices that share each layer. [1]
        devices: that share the model, all stages and experts. [1]
        attention_copies: copies of attention among dies that share experts. [1]
    """

    tokens: Any
    requests: Any
    tp: Any = 1
    devices: Any = 1
    attention_copies: Any = 1


class EngineMemory(NamedTuple):
    """Bytes of one device that KV caches cannot have, beside weights. [B]

    Attributes:
        activations: of the engine's first run, or those of the layout without an engine.
        reserved: contexts, graphs, and the share that the engine does not use; 0 without an engine.
    """

    activations: Any
    reserved: Any = 0.0

    def parts(self, mapping: Mapping) -> tuple[tuple[str, Any], ...]:
        """Bytes by use, as contents of main memory list them; the engine's own where a mapping has one."""
        own = ((ENGINE_PART, self.reserved),) if mapping.inference_engine is not None else ()
        return ((ACTIVATIONS, self.activations), *own)


def device_capacity(chip: Chip, mapping: Mapping) -> Any:
    """Main memory of a device: by the driver for an inference engine, else by the data sheet. [B]"""
    memory = main_memory(chip)
    return memory.capacity if mapping.inference_engine is None else memory.usable_capacity


def keeps_windows_alone(mapping: Mapping) -> bool:
    """Whether caches of layers with a window or chunks hold these alone, as without an engine."""
    return mapping.inference_engine is None or bool(mapping.inference_engine.window_caches)


def cached_positions(mapping: Mapping, model: Model, positions: Any) -> Any:
    """Positions of a request that each kind of layer of a model keeps, by reach."""
    if keeps_windows_alone(mapping):
        return per_reach(model, lambda reach: float(reach.kept_positions(positions)))
    return per_reach(model, lambda reach: float(positions if reach.window or reach.chunk else reach.kept_positions(positions)))


def engine_memory(
    chip: Chip, mapping: Mapping, model: Model, weights: Any, activations: Any, demand: EngineDemand
) -> EngineMemory:
    """Memory of one device beside weights and KV caches, by the rule of its inference engine.

    Args:
        chip, mapping, model: as they are.
        weights: on the device, as stored. [B]
        activations: as the layout counts them, which hold without an engine. [B]
        demand: largest iteration of the engine.
    """
    engine: InferenceEngine | None = mapping.inference_engine
    if engine is None:
        return EngineMemory(activations)
    width = model.hidden + ffn_width(model) / demand.tp
    factor, sampler = (0.0 if value is None else value for value in (engine.activation_factor, engine.sampler_memory))
    run = HALF * factor * demand.tokens * width
    sampled = sampler * demand.requests * float(model.vocab)
    contexts = _context_memory(engine, demand)
    offered = device_capacity(chip, mapping)
    shared = offered if engine.memory_base == "all" else maximum(offered - weights - contexts, 0.0)
    return EngineMemory(maximum(run, sampled), contexts + (1 - engine.memory_share) * shared)


def _context_memory(engine: InferenceEngine, demand: EngineDemand) -> Any:
    """Contexts, graphs and libraries of one device: alone, with others that share a model, or that share experts. [B]"""
    alone = engine.context_memory
    together = alone if engine.parallel_context_memory is None else engine.parallel_context_memory
    experts = together if engine.expert_context_memory is None else engine.expert_context_memory
    return where(demand.attention_copies > 1, experts, where(demand.devices > 1, together, alone))


@memoize_by_identity
def ffn_width(model: Model) -> float:
    """Largest intermediate width of a token in a layer: of its FFN, experts or described operators."""
    ffns = [layer.of for layer in layers(model).ffns]
    widths = [ffn.ffn_intermediate if ffn.experts is None else ffn.experts.top_k * ffn.experts.intermediate for ffn in ffns]
    described = [each for layer in layers(model).mixings for _, each in layer.of.operators if each.per == "token"]
    return float(max((*widths, *(each.rows * each.outputs for each in described)), default=0.0))


def engine_limits(mapping: Mapping, model: Model, guesses: int = 0) -> list[Limit]:
    """Limits of an inference engine on degrees of parallelism; none without an engine.

    Heads and columns are divided evenly, in whole blocks of scales; key heads are divided evenly, or each is on as many
    devices (`layouts.startable_degrees`).

    Raises:
        DesignError: a format of weights or drafted tokens that the engine does not support.
    """
    engine: InferenceEngine | None = mapping.inference_engine
    if engine is None:
        return []
    _refuse_unsupported(engine, mapping.precision, guesses)
    limits = []
    for phase, plan in zip(("prefill", "decode"), plans_of(mapping), strict=True):
        address = f"mapping.{phase}.tp"
        for divided in divided_widths(model, plan.tp, getattr(plan, "ep", 1), mapping.precision):
            units, degree = divided.units, divided.degree
            if divided.replicated:
                limits.append(divides_limit(address, minimum(degree, units), maximum(degree, units)))
                continue
            limits.append(divides_limit(address, degree, units))
            if divided.scaled_values > 1:
                limits.append(divides_limit(address, degree * divided.scaled_values, units * divided.width))
    return limits


def _refuse_unsupported(engine: InferenceEngine, precision: FormatPlan, guesses: int) -> None:
    """Refuse formats of weights for which an inference engine has no kernels, and drafted tokens that it cannot check.

    Raises:
        DesignError: naming the setting, and what the engine has.
    """
    formats = engine.weight_formats.split()
    for name in ("weights", "attention", "experts"):
        stored = getattr(precision, name)
        if stored is not None and stored not in formats:
            raise DesignError(
                f"mapping.precision.{name}: {engine.name} {engine.version} has no kernels for {stored}; valid: "
                f"{', '.join(sorted(formats))}, or inference_engine=none for any"
            )
    if guesses and not engine.speculation:
        raise DesignError(f"workload.speculation: {engine.name} {engine.version} checks no drafted tokens; remove it")
