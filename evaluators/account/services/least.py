"""What a design that serves a load does at least, whatever it chooses: no price is asked, and leaves broadcast over designs.

An iteration that decodes anything reads the weights that one token uses, once each, from all the memories of an instance's
stage; and a prompt's products take what engines that never wait do. Both are below what any reader prices.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import MatMul, useful
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.layouts.formats import weights_of
from dse.evaluators.serving.kvcache import WATERMARK, Room
from dse.space.chip import Chip
from dse.space.elementwise import maximum, where
from dse.space.mapping import BYTES, Precision, Serving
from dse.space.model import Model
from dse.space.workload import Load

HEAD = "head"
"""The part of a model that only the last token of a prompt takes."""


class Least(NamedTuple):
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
def worked_prompt(model: Model) -> Any:
    """Of products of layers, for each token of a prompt. [FLOP]"""
    parts = transformer(model, Step("prefill", 1.0, 1.0, 1.0, 0.0))
    return sum(
        part.times * useful(of) for part in parts if part.name != HEAD for of in part.operators if isinstance(of, MatMul)
    )


def multiplied(load: Load) -> Any:
    """Multiply-adds of layers for all tokens that go through them: of prompts, and all of answers but the last. [1]"""
    requests = load.requests
    return worked_prompt(load.model) / 2 * float(requests.prompt.sum() + requests.output.sum() - len(requests))


@lru_cache(maxsize=16)
def read_weights(model: Model, precision: Precision) -> Any:
    """Weights that products of an iteration read if it has one token. [B]"""
    return sum(
        part.times * of.copies * of.k.width * of.k.units * of.n.width * of.n.units * BYTES[weights_of(part, of, precision)]
        for part in transformer(model, Step("decode", 1.0, 1.0, 1.0, 1.0))
        for of in part.operators
        if isinstance(of, MatMul)
    )


def fastest(chip: Chip) -> Any:
    """What engines of a chip of tiles multiply at most: arrays, or lanes where these take products and are more. [FLOP/s]"""
    tile = chip.tile
    macs = tile.matrix.rows * tile.matrix.cols * 1.0
    if tile.products != "matrix":
        macs = maximum(macs, tile.vector.lanes)
    return 2.0 * chip.mesh.rows * chip.mesh.cols * macs * chip.clock


def lanes(serving: Serving) -> Any:
    """Of instances that do both phases; 0 where some only prefill, or where budgets are not the same for all."""
    budgets = (serving.tokens, serving.unit, serving.chunk)
    if any(isinstance(value, np.ndarray) for value in budgets):
        return 0.0
    return where(serving.prefill_instances > 0, 0.0, serving.instances * 1.0)


def at_a_time(serving: Serving, free: Any, room: Room, longest: int) -> Any:
    """Requests as long as the longest one that free memory has room for, blocks rounded up; 0 where blocks are said."""
    left = (free - serving.reserved) * (1 - serving.prefix) * (1 - WATERMARK) * where(serving.blocks > 0, 0.0, 1.0)
    return maximum(left / room.of(longest + 2 * serving.block) // 1, 0.0)
