"""Simulated KV transfers on the links of a mesh, with pipelines that compute and send.

The same messages as in `kv_transfer`, as a program: all pipelines of both kinds take their time for some tokens and send them
on; beside that, caches go from pipelines that prefill to those that decode, layer by layer. Cores do nothing else here.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.layouts.kv_transfer import FleetLayout, PipelineFleet, TransferCost, place_fleets, transfer_cost
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    SendInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array
from dse.space.chip import MatrixEngine, VectorEngine

MAX_PAIRS = 8
"""Largest number of simulated pairs of pipelines, taken evenly from all of them."""

TURNS, PASSES = 8, 2
"""Blocks of tokens for which a KV transfer is simulated, and steps of pipelines during transfers."""

RARE = 1e5
"""Largest simulated time of a block in clocks: rarer messages do not meet, and idle routers take CPU time."""

FINE = 1e-15
"""What counts as no time for an engine. [s]"""

Play = Callable[..., SimulationResult]


@lru_cache(maxsize=256)
def simulated_transfer_cost(
    layout: FleetLayout, fabric: MeshFabric, block: int, prefilled: float, decoded: float, play: Play
) -> TransferCost:
    """Cost of KV transfers from a simulated program, as `kv_transfer.transfer_cost`.

    Hops, latency and blocks of the chip are equal to those of the formula.

    Args:
        layout, fabric, block, prefilled, decoded: as there.
        play: simulator of programs.
    """
    traffic = SimulatedPipelines.at_rates(layout, fabric, block, prefilled, decoded)
    closed = transfer_cost(layout, fabric, block, prefilled, decoded)
    pairs = [(p, d) for p, partners in enumerate(layout.partners) for d in partners]
    selected_pairs = [pairs[place] for place in np.unique(np.linspace(0, len(pairs) - 1, MAX_PAIRS).round().astype(int))]
    taken = [_cache(traffic, [pair], play) for pair in selected_pairs]
    together = max(1, int(closed.together * float(np.mean(taken)) / max(closed.per_token, 1e-30)))
    crowding = _crowding(traffic, play)
    return closed._replace(per_token=float(np.mean(taken)), together=together, prefill=crowding[0], decode=crowding[1])


class SimulatedPipelines(NamedTuple):
    """Pipelines and their work in the time of one block of tokens per prefill pipeline.

    Attributes:
        layout, fabric, block: as of `kv_transfer.transfer_cost`.
        places: cores of both fleets, shapes (dp, pp, tp, 2).
        tokens: of a pipeline of each kind.
        seconds: of a block, or `RARE` clocks.
    """

    layout: FleetLayout
    fabric: MeshFabric
    block: int
    places: tuple[Array, Array]
    tokens: tuple[float, float]
    seconds: float

    @classmethod
    def at_rates(
        cls, layout: FleetLayout, fabric: MeshFabric, block: int, prefilled: float, decoded: float
    ) -> "SimulatedPipelines":
        """Pipelines at given token rates of all prefill and of all decode pipelines. [1/s]"""
        seconds = block * layout.prefill.dp / prefilled
        tokens = (float(block), decoded / layout.decode.dp * seconds)
        return cls(layout, fabric, block, place_fleets(layout), tokens, min(seconds, RARE * float(fabric.cycle)))

    def pass_messages(self) -> tuple[Buffer, Buffer, SendInstruction]:
        """Buffers and send of all pipelines' activations, with the nearest parts of a group first."""
        ends, sizes = [], []
        for fleet, places, tokens in zip((self.layout.prefill, self.layout.decode), self.places, self.tokens, strict=True):
            sources, targets = (
                np.moveaxis(place[:, :, ::-1], 2, 0).reshape(-1, 2) for place in (places[:, :-1], places[:, 1:])
            )
            ends.append(np.concatenate([sources, targets], axis=1))
            sizes.append(np.full(len(sources), ceil(tokens * fleet.activations / fleet.tp)))
        row, col, to_row, to_col = np.concatenate(ends).T
        sent, most = np.concatenate(sizes), max(1, *(int(size.max(initial=0)) for size in sizes))
        send = SendInstruction(
            "x", CoreIndex(row, col), CoreIndex(to_row, to_col), np.zeros(len(sent), int), sent, at=0 * sent, into="y"
        )
        return Buffer("x", (most, 1), "int8"), Buffer("y", (most, 1), "int8"), send

    def caches(self, pairs: Iterable[tuple[int, int]]) -> tuple[Buffer, Buffer, list[SendInstruction]]:
        """Buffers and sends of a block's keys and values, one layer per pair of groups at a time."""
        prefill, decode = self.layout.prefill, self.layout.decode
        counts = Counter(zip(prefill.layers, decode.layers, strict=True))
        nbytes, messages = ceil(self.block * decode.position), []
        for turn in range(max(counts.values())):
            ends = [
                (*self.places[0][p, a, core * prefill.tp // decode.tp], *self.places[1][d, b, core])
                for p, d in pairs
                for (a, b), layers in counts.items()
                if layers > turn
                for core in range(decode.tp)
            ]
            row, col, to_row, to_col = np.array(ends).T
            messages.append(
                SendInstruction(
                    "kv",
                    CoreIndex(row, col),
                    CoreIndex(to_row, to_col),
                    np.asarray(0),
                    np.asarray(nbytes),
                    at=np.asarray(0),
                    into="got",
                )
            )
        return Buffer("kv", (nbytes, 1), "int8"), Buffer("got", (nbytes, 1), "int8"), messages

    def simulate(
        self, play: Play, slots: tuple[Buffer, ...], strands: list[tuple[Round | Loop, ...]], busy: float, gap: float
    ) -> SimulationResult:
        """Simulate strands whose products take pipelines `busy`, and vector instructions `gap`. [s], [s]"""
        rows, cols = (int(max(place[..., axis].max() for place in self.places)) + 1 for axis in (0, 1))
        matrix = MatrixEngine(dataflow="weight", rows=1, cols=1, depth=0, reload="hidden", fill=0.0, start=busy / FINE)
        engines = TileEngines(1 / FINE, matrix, VectorEngine(lanes=1e12, special=1e12, start=gap / FINE), 1e30)
        mesh = max(rows, self.layout.rows), max(cols, self.layout.cols)
        return play(Program(*mesh, slots, tuple(strands)), self.fabric, engines=engines)


def _pass(traffic: SimulatedPipelines, turns: int) -> tuple[tuple[Buffer, ...], tuple[Round | Loop, ...]]:
    """Pipelines that compute and send in turn."""
    x, y, send = traffic.pass_messages()
    slots = (x, y, Buffer("a", (x.shape[0], 1), "int8"), Buffer("b", (1, 1), "int8"))
    return slots, (Loop((Round((MultiplyInstruction("a", "b", "x", combine="set"),)), Round((send,))), turns),)


def _cache(traffic: SimulatedPipelines, pairs: list[tuple[int, int]], play: Play) -> float:
    """Of a token of a cache, while all pipelines go on. [s]"""
    kv, got, sends = traffic.caches(pairs)
    strand = (Loop(tuple(Round((send,)) for send in sends), TURNS),)
    alone = traffic.simulate(play, (kv, got), [strand], 0.0, 0.0).seconds
    slots, passing = _pass(traffic, int(2 * alone / traffic.seconds) + 2)
    sending = _sending(traffic, play)
    busy = max(traffic.seconds - sending, 0.0)
    beside = traffic.simulate(play, (kv, got, *slots), [passing, strand], busy, 0.0)
    return float(beside.ready["got"].max()) / (TURNS * traffic.block)


def _sending(traffic: SimulatedPipelines, play: Play) -> float:
    """Of a pass, of the slowest of all messages. [s]"""
    slots, passing = _pass(traffic, 1)
    return traffic.simulate(play, slots, [passing], 0.0, 0.0).seconds


def _crowding(traffic: SimulatedPipelines, play: Play) -> tuple[float, float]:
    """Slowdown of a pipeline's messages by the KV transfers of all, mean over pipelines of a phase. [-]"""
    layout = traffic.layout
    pairs = [(p, partners[p % len(partners)]) for p, partners in enumerate(layout.partners)]
    kv, got, sends = traffic.caches(pairs)
    slots, passing = _pass(traffic, PASSES)
    busy, gap = max(traffic.seconds - _sending(traffic, play), 0.0), traffic.seconds / len(sends)
    rounds = [(Round((VectorInstruction("add", ("kv", "kv"), "kv"),)), Round((send,))) for send in sends]
    caches = (Loop(tuple(turn for pair in rounds for turn in pair), PASSES),)
    alone, beside = (
        traffic.simulate(play, (kv, got, *slots), strands, busy, gap).ready["y"] for strands in ([passing], [passing, caches])
    )
    # both compute as long; what is left is messages, of which those alone take a known part
    return _longer(layout.prefill, traffic.places[0], alone, beside, busy), _longer(
        layout.decode, traffic.places[1], alone, beside, busy
    )


def _longer(fleet: PipelineFleet, places: Array, alone: Array, beside: Array, busy: float) -> float:
    """Of the slowest messages of each pipeline, mean over pipelines."""
    if fleet.pp == 1:
        return 1.0
    at = places[:, 1:].reshape(fleet.dp, -1, 2)
    before, after = (times[at[..., 0], at[..., 1]] - PASSES * busy for times in (alone, beside))
    return float(np.mean(np.max(after / np.maximum(before, FINE), axis=1)))
