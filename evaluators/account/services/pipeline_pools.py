"""Pools of pipelines of groups of tiles: prices of their iterations, memory for caches, and the way of these between pools.

Leaves are of one design, or of several with the same words, of shape (designs,).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.played import served
from dse.evaluators.account.played.assembled import layers
from dse.evaluators.account.services.fleet import Pipelines, iteration, least, number, paces, room_of_request
from dse.evaluators.layouts.kv_transfer import Fleet, Layout, Ways, ways
from dse.evaluators.layouts.played_transfer import played_ways
from dse.evaluators.machine.fabric import tile_fabric
from dse.evaluators.readers.price import Reader
from dse.evaluators.serving.kvcache import prefixes, two_level, two_paged
from dse.evaluators.serving.loop import Deployment, Pool
from dse.evaluators.serving.price import Price, Pricing
from dse.evaluators.serving.state import Transfer
from dse.space.design import Design
from dse.space.elementwise import Array, minimum, option
from dse.space.layers import two_forms
from dse.space.mapping import ARRANGEMENTS, BYTES, Mapping
from dse.space.workload import Load


class Paced(NamedTuple):
    """What pipelines do over time, of each design.

    Attributes:
        shares: of an iteration's time, by stage.
        tokens: that all pipelines can do. [1/s]
    """

    shares: list[tuple[float, ...]]
    tokens: Any


def paced(load: Load, fleet: tuple[Pipelines, ...], reader: Reader) -> list[Paced]:
    """Of each pool."""
    return [Paced(*paces(load, of, reader)) for of in fleet]


def priced(load: Load, of: Pipelines, reader: Reader, between: Ways | None, crowding: Any) -> Pricing:
    """Seconds of iterations of a pool, whose messages take `crowding` times as long; designs are the last axis."""

    def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Any:
        counts = (prompt, prompt_context, decodes, context, spilled, crowding)
        if of.words is not None and of.name == "decode" and between is not None:  # whose words are those of tokens alone
            return iteration(load, of, reader, "decode", *counts).seconds
        mixed = iteration(load, of, reader, "prefill", *counts).seconds
        if not two_forms(load.model) or (of.words is not None and of.name == "prefill"):
            return mixed
        # latent attention and states are computed otherwise where nothing is prefilled
        return np.where(prompt > 0, mixed, iteration(load, of, reader, "decode", *counts).seconds)

    return pricing


def assembled(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], prices: Sequence[Price], paces: Sequence[Paced],
    between: Ways | None,
) -> list[Deployment]:  # fmt: skip
    """What serves, of each design.

    Args:
        design, load, fleet: as they are.
        prices: of each pool.
        paces: of `paced`.
        between: caches on their way.
    """
    mapping = design.mapping
    pools = [_pools(of, load, mapping, price, pace) for of, price, pace in zip(fleet, prices, paces, strict=True)]
    ways: list[Transfer | None] = [None] * len(fleet[0].rules)
    if between is not None:
        # a token of the mean prompt takes as long as messages of its share of that prompt's bytes
        room, prompt = room_of_request(design, load, fleet[-1].holds), float(load.requests.prompt.mean())
        rooms = room.times(between.per_token * prompt / number(room.of(prompt))).each_of(len(ways))
        said, sent = _rows([between.latency, between.together, between.blocks], len(ways)), layers(mapping.serving, load)
        ways = [
            Transfer(one.growing, latency, int(together), True, int(blocks), fixed=one.fixed, windows=one.windows, layers=sent)
            for one, (latency, together, blocks) in zip(rooms, said, strict=True)
        ]
    each = zip(zip(*pools, strict=True), ways, strict=True)
    return [Deployment(some, transfer, mapping.serving.routing) for some, transfer in each]


def _pools(of: Pipelines, load: Load, mapping: Mapping, price: Price, paces: Paced) -> list[Pool]:
    """Of each design: blocks in local memories and in HBM, or buffers there, one a request; and what of prefixes is kept."""
    longest, block = served.longest(load), int(mapping.serving.block)
    kept, every = float(mapping.serving.prefix), int(mapping.serving.snapshot or 0)
    form = two_paged if mapping.serving.overflow == "pages" else two_level
    size, found = len(of.rules), []
    numbers = _rows([of.free, of.near, least(of, load, mapping), of.dp, of.batch], size)
    for rule, shares, room, (free, near, alone, dp, batch) in zip(
        of.rules, paces.shares, of.room.each_of(size), numbers, strict=True
    ):
        # the longest request must fit, which is a limit
        memory = form(near, max(free * (1 - kept), alone), room, longest=longest, block=block)
        known = prefixes(free * kept, room, load.requests.block, every)
        found.append(Pool(price, rule, memory, shares=shares, instances=int(dp), batch=int(batch), **known._asdict()))
    return found


def moved(design: Design, load: Load, fleet: tuple[Pipelines, ...], paces: Sequence[Paced], reader: Reader) -> Ways | None:
    """Caches on their way from pipelines that prefill to those that decode, where there are both.

    Args:
        design, load, fleet: as they are.
        paces: of `paced`.
        reader: that plays messages, or has a formula for them.
    """
    if len(fleet) == 1:
        return None
    chip, mapping, asked = design.chip, design.mapping, load.requests
    size, prompt = len(fleet[0].rules), float(asked.prompt.mean())
    # as many as come, or as pipelines can do
    means = (float(asked.prompt.mean()), float(asked.output.mean()))
    rates = [minimum(asked.rate * mean, of.tokens) for mean, of in zip(means, paces, strict=True)]
    positions = [room_of_request(design, load, of.holds).of(prompt) / (prompt * load.model.layers) for of in fleet]
    rows, cols, block = (int(size) for size in (chip.mesh.rows, chip.mesh.cols, mapping.serving.block))
    fabric, act = tile_fabric(chip), float(BYTES[mapping.precision.activations])
    of_design = _rows([*(of.plan.tp for of in fleet), *(of.plan.pp for of in fleet), *(of.dp for of in fleet)], size)
    of_fabric, rated = _rows(list(fabric), size), _rows([*positions, *rates], size)
    arrangements = np.broadcast_to(option(mapping.serving.arrangement, ARRANGEMENTS), size).tolist()
    of_layer, carried = ([getattr(of.cut, name).tolist() for of in fleet] for name in ("of_layer", "carried"))
    found = []
    for row in range(size):
        tps, pps, dps = (of_design[row][at : at + 2] for at in (0, 2, 4))
        fleets = [
            Fleet(int(tp), int(pp), int(dp), tuple(layers[row]), position, (values[row] or load.model.hidden) * act)
            for tp, pp, dp, layers, values, position in zip(tps, pps, dps, of_layer, carried, rated[row], strict=False)
        ]
        # more groups than there is room for, which is a limit, are as many columns wider
        wide = max(cols, -(-sum(of.tp * of.pp * of.dp for of in fleets) // rows))
        layout, links = Layout(rows, wide, ARRANGEMENTS[arrangements[row]], *fleets), type(fabric)(*of_fabric[row])
        said = (layout, links, block, *rated[row][2:])
        found.append(ways(*said) if reader.play is None else played_ways(*said, reader.play))
    return found[0] if size == 1 else Ways(*(np.array(values) for values in zip(*found, strict=True)))


def _rows(values: Sequence[Any], size: int) -> list[list[float]]:
    """Numbers of each design, in order."""
    found: list[list[float]] = np.array([np.broadcast_to(np.ravel(value), size) for value in values], float).T.tolist()
    return found
