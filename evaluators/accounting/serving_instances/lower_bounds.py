"""What a design that serves a load does at least, whatever it chooses: no price is asked, and leaves broadcast over designs.

An iteration that decodes anything reads the weights that one token uses, once each, from all the memories of an instance's
stage; and a prompt's products take what engines that never wait do. Both are below what any reader prices.
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
from dse.space.chip import Chip
from dse.space.mapping import BYTES_BY_FORMAT, FormatPlan, ServingPlan
from dse.space.model import Model
from dse.space.workload import ServingLoad

HEAD = "head"
"""The part of a model that only the last token of a prompt takes."""


class WorkLowerBounds(NamedTuple):
    """A design, and what it does at least.

    Attributes:
        chips: of all instances, or dies where a chip is one.
        decode_cores: tiles of one that only decode.
        decode: of an iteration with a request that decodes. [s]
        prompt: of each token of a prompt. [s]
        lanes: instances that do both phases, all their engines at a time; 0 where they are others.
        room: requests of an instance that memory has room for; 0 where nobody knows.
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
    """Of products of layers, for each token of a prompt. [FLOP]"""
    parts = transformer_segments(model, StepCounts("prefill", 1.0, 1.0, 1.0, 0.0))
    return sum(
        part.times * useful_flop(of) for part in parts if part.name != HEAD for of in part.operators if isinstance(of, MatMulOp)
    )


def load_macs(load: ServingLoad) -> Any:
    """Multiply-adds of layers for all tokens that go through them: of prompts, and all of answers but the last. [1]"""
    requests = load.requests
    return prefill_flop_per_token(load.model) / 2 * float(requests.prompt.sum() + requests.output.sum() - len(requests))


@lru_cache(maxsize=16)
def weight_bytes_read(model: Model, precision: FormatPlan) -> Any:
    """Weights that products of an iteration read if it has one token. [B]"""
    return sum(
        part.times
        * of.copies
        * of.k.width
        * of.k.units
        * of.n.width
        * of.n.units
        * BYTES_BY_FORMAT[weight_format(part, of, precision)]
        for part in transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))
        for of in part.operators
        if isinstance(of, MatMulOp)
    )


def peak_flops(chip: Chip) -> Any:
    """What engines of a chip of tiles multiply at most: arrays, or lanes where these take products and are more. [FLOP/s]"""
    tile = chip.tile
    macs = tile.matrix.rows * tile.matrix.cols * 1.0
    if tile.products != "matrix":
        macs = maximum(macs, tile.vector.lanes)
    return 2.0 * chip.mesh.rows * chip.mesh.cols * macs * chip.clock


def budget_lanes(serving: ServingPlan) -> Any:
    """Of instances that do both phases; 0 where some only prefill, or where budgets are not the same for all."""
    budgets = (serving.max_batched_tokens, serving.chunk_budget_units, serving.max_chunk_tokens)
    if any(isinstance(value, np.ndarray) for value in budgets):
        return 0.0
    return where(serving.prefill_instances > 0, 0.0, serving.instances * 1.0)


def concurrent_requests(serving: ServingPlan, free: Any, room: RequestMemory, longest: int) -> Any:
    """Requests as long as the longest one that free memory has room for, blocks rounded up; 0 where blocks are said."""
    left = (
        (free - serving.reserved_memory)
        * (1 - serving.prefix_cache_share)
        * (1 - WATERMARK)
        * where(serving.kv_blocks > 0, 0.0, 1.0)
    )
    return maximum(left / room.of(longest + 2 * serving.block_size) // 1, 0.0)
