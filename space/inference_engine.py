"""Inference engines: the memory that they leave for KV caches, and what they can be started with.

An engine's constants are of one version. The settings of its scheduler are those of `mapping.serving`, of which the
engine's file has the defaults (`conf/inference_engine`).
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import boolean_field, option_field, quantity_field, record_class

ENGINES = ("sglang", "tensorrt_llm", "vllm")
"""Inference engines whose command line is known."""

MEMORY_BASES = ("all", "free")
"""Memory of which a share is for the engine: all that the driver offers, or what weights and contexts leave of it."""


@record_class
class InferenceEngine:
    """An inference engine of one version: its memory rule, formats of weights and legal degrees.

    Equations and sources: `docs/physics.md`, "KV pool of an inference engine".
    """

    name: str = option_field("inference engine: vllm, tensorrt_llm or sglang", ENGINES)
    version: str = option_field("version of which the constants are")
    vendors: str = option_field('makers of chips that the engine runs on, as in "nvidia amd"')
    memory_share: Number = quantity_field(
        "1", "share of a device's memory that the engine may use, for all or for KV caches", high=1.0, positive=True
    )
    memory_base: str = option_field(
        "memory of which memory_share is taken: all, or what weights and contexts leave free", MEMORY_BASES
    )
    activation_factor: Any = quantity_field(
        "1",
        "activations of the first run, in vectors of 16 bits per token: this times hidden and intermediate width",
        absent=True,
    )
    sampler_memory: Any = quantity_field(
        "B", "memory of the sampler's first run, per request and word of the vocabulary", absent=True
    )
    context_memory: Number = quantity_field("B", "memory of contexts, graphs and libraries on a device", default=0.0)
    parallel_context_memory: Any = quantity_field(
        "B", "the same where several devices share a model; context_memory if absent", absent=True
    )
    expert_context_memory: Any = quantity_field(
        "B",
        "the same where dies share experts and have attention of their own; parallel_context_memory if absent",
        absent=True,
    )
    weight_formats: str = option_field('formats of weights for which the engine has kernels, as in "bf16 fp8"')
    speculation: bool = boolean_field("whether the engine can check drafted tokens")
    window_caches: bool = boolean_field(
        "whether layers with a window or chunks keep the positions in these alone; all positions if not", default=True
    )
