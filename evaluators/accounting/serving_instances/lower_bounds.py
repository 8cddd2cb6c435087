"""Lower bounds on the work of designs under a serving load, without iteration times.

An iteration that decodes reads the weights that one token uses once from all memories of an instance's stage. The
products of a prompt take at least the time of fully busy engines. Both are below the times of every fidelity, and
broadcast over designs.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import MatMulOp, useful_flop
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.tensor_formats import weight_format
from dse.evaluators.serving.kv_memory import WATERMARK, RequestMemory
from dse.space.array_math import maximum, where
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan
from dse.space.model import Model
from dse.space.serving_plan import ServingPlan
from dse.space.workload import ServingLoad

HEAD = "head"
"""The segment that only the last token of a prompt runs."""


class WorkLowerBounds(NamedTuple):
    """Lower bounds on the work of one design under a serving load.

    Attributes:
        chips: of all instances, or dies where a chip is one.
        decode_cores: tiles of one that only decode.
        decode: of an iteration with a request that decodes. [s]
        prompt: of each token of a prompt. [s]
        lanes: instances that do both phases, all their engines at a time; 0 where they are others.
        room: lower bound on the requests of an instance that fit in memory; 0 if unknown.
        joules: of what is done for all requests, whatever its time. [J]
    """

    chips: Any = 1.0
    decode_cores: Any = 0
    decode: Any = 0.0
    prompt: Any = 0.0
    lanes: Any = 0.0
    room: Any = 0.0
    joules: Any = 0.0


@lru_cache(maxsize=16)
def prefill_flop_per_token(model: Model) -> Any:
    """Operations of layers per prompt token. [FLOP]"""
    parts = transformer_segments(model, StepCounts("prefill", 1.0, 1.0, 1.0, 0.0))
    return sum(
        part.times * useful_flop(operator)
        for part in parts
        if part.name != HEAD
        for operator in part.operators
        if isinstance(operator, MatMulOp)
    )


def load_macs(load: ServingLoad) -> Any:
    """Multiply-adds of layers for all tokens of a load: prompts, and outputs but the last token. [1]"""
    requests = load.requests
    return prefill_flop_per_token(load.model) / 2 * float(requests.prompt.sum() + requests.output.sum() - len(requests))


@lru_cache(maxsize=16)
def weight_bytes_read(model: Model, precision: FormatPlan) -> Any:
    """Weights that the products of a one-token iteration read. [B]"""
    return sum(
        part.times
        * operator.copies
        * operator.k.width
        * operator.k.units
        * operator.n.width
        * operator.n.units
        * BYTES_BY_FORMAT[weight_format(part, operator, precision)]
        for part in transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))
        for operator in part.operators
        if isinstance(operator, MatMulOp)
    )


def budget_lanes(serving: ServingPlan) -> Any:
    """Instances that do both phases; 0 if some only prefill, or if token budgets differ by design."""
    budgets = (serving.max_batched_tokens, serving.chunk_budget_units, serving.max_chunk_tokens)
    if any(isinstance(value, np.ndarray) for value in budgets):
        return 0.0
    return where(serving.prefill_instances > 0, 0.0, serving.instances * 1.0)


def concurrent_requests(serving: ServingPlan, free: Any, room: RequestMemory, longest: int) -> Any:
    """Longest requests that fit in free KV memory, rounded to blocks; 0 if the block count is set."""
    left = (
        (free - serving.reserved_memory)
        * (1 - serving.prefix_cache_share)
        * (1 - WATERMARK)
        * where(serving.kv_blocks > 0, 0.0, 1.0)
    )
    return maximum(left / room.request_bytes(longest + 2 * serving.block_size) // 1, 0.0)
