"""Functional simulation of a decoder layer on a group of dies.

Each die runs its calls on its part; programs run the exchanges between dies.

Sums, and tokens that come to all, go around a ring of dies; tokens go to their experts and come back by the program of
`moe_layer_program`. Copies of attention have tokens of their own, and all dies of a group share out the
experts.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.graph.operators import Segment
from dse.evaluators.kernels.collective import mesh_rings as rings
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.layouts.multi_die import DieExchange, DieSplit
from dse.evaluators.program.kernel_ir import Buffer, Program
from dse.space.array_math import Array
from dse.testing import moe_layer_program as exchange_v
from dse.testing.functional.call_worker import CallWorker, KernelFunctions, LocalCopies
from dse.testing.functional.layer import LayerTensors, RoutedTokens, combine_experts, is_residual
from dse.testing.functional_simulator import run_program


def compute_layer(
    steps: Sequence[CallBlock | DieExchange],
    layers: Sequence[LayerTensors],
    die_split: DieSplit,
    itemsize: float,
    functions: KernelFunctions,
) -> Array:
    """Residual stream after the layer on each die of a group, shape (dies, tokens, hidden).

    Args:
        steps: of a unit that is a layer, in order.
        layers: of each copy of attention: the same layer, of tokens and caches of its own.
        die_split: how the group is divided.
        itemsize: bytes of an activation.
        functions: functions that compute on a die.
    """
    group = _Group(layers, die_split, itemsize, functions)
    for step in steps:
        if isinstance(step, CallBlock):
            group.run_block(step)
        else:
            group.run_exchange(step)
    group.add_to_residual()
    return np.stack(group.stream)


class _Die(CallWorker):
    """A die whose experts have tokens of others.

    Attributes:
        added: what experts on all dies leave for its tokens, where the exchange adds it up.
    """

    added: Array | None = None

    def _back(self, name: str) -> Array:
        return self.added if name == "experts_down" and self.added is not None else super()._back(name)

    def dispatched_copies(self) -> LocalCopies:
        """Refuse experts whose tokens no exchange has brought."""
        raise ValueError(f"die: tokens of part {self.part.name!r} are not where their experts are")


class _Group:
    """What dies have between two steps.

    Attributes:
        stream: the residual stream of each die: all tokens of its copy, or its share of them.
        workers: of the part that is done; empty between parts.
    """

    def __init__(
        self, layers: Sequence[LayerTensors], die_split: DieSplit, itemsize: float, functions: KernelFunctions
    ) -> None:
        self.layers, self.of, self.itemsize, self.on = layers, die_split, itemsize, functions
        self.stream = [layers[die // die_split.tp].x for die in range(die_split.group)]
        self.workers: list[CallWorker] = []
        self.left: list[Array] | None = None
        self.copies: exchange_v.TokenCopies | None = None
        self.gathered: RoutedTokens | None = None

    def run_block(self, block: CallBlock) -> None:
        """Run the calls of a block on all dies."""
        part = self.layers[0].find_part(block.calls[0].part)
        if part is None:
            return
        if not self.workers or self.workers[0].part is not part:
            self.add_to_residual()
            self.workers = [self._worker(part, block.calls, die) for die in range(self.of.group)]
        for worker in self.workers:
            for position in block.order:
                worker.run(block.calls[position])

    def _worker(self, part: Segment, calls: tuple[KernelCall, ...], die: int) -> CallWorker:
        routed = part.name.startswith("moe") and self.of.ep > 1
        layer = self.layers[die // self.of.tp]
        kind, place = (_Die, 0) if routed else (CallWorker, die % self.of.tp)
        return kind(layer, part, calls, place, self.on, self.stream[die])

    def add_to_residual(self) -> None:
        """What a part has left comes to the residual stream, as it is on each die."""
        if self.workers and self.left is None:
            self.left = [worker.residual() for worker in self.workers]
        if self.left is not None and (not self.workers or is_residual(self.workers[0].part)):
            self.stream = [x + more for x, more in zip(self.stream, self.left, strict=True)]
        self.workers, self.left = [], None

    def run_exchange(self, exchange: DieExchange) -> None:
        """Run an exchange between the dies."""
        if exchange.whole:
            self._gather(exchange) if exchange.pattern == "allgather" else self._scatter(exchange)
            return
        if exchange.pattern == "all_to_all":
            self._back(exchange) if exchange.back else self._there(exchange)
            return
        if exchange.pattern == "allgather":
            self.add_to_residual()
            self.stream = self._teams(exchange, self.stream, self.of.tp)
            return
        self.left = self._teams(exchange, [worker.residual() for worker in self.workers], self.of.tp)
        if exchange.pattern == "reduce_scatter":
            each = len(self.left[0])
            places = (die % self.of.tp for die in range(self.of.group))
            self.stream = [x[place * each : (place + 1) * each] for x, place in zip(self.stream, places, strict=True)]
        self.add_to_residual()

    def _teams(self, exchange: DieExchange, values: list[Array], tp: int) -> list[Array]:
        """A collective of each `tp` dies; each has a slice of the tokens before an allgather, or behind a scatter."""
        teams: list[Array] = []
        for first in range(0, self.of.group, tp):
            tensors, gathers = np.stack(values[first : first + tp]), exchange.pattern == "allgather"
            each = tensors[0].size // (1 if gathers else tp)
            whole = np.tile(tensors.reshape(tp, 1, -1), (1, tp, 1)) if gathers else tensors
            size = each * tp
            if size * self.itemsize != exchange.nbytes:
                raise ValueError(f"{exchange.name}: {exchange.nbytes} B, dies have {size * self.itemsize}")
            shape, mesh = GemmShape(size, 1, 1), CoreMesh(1, tp)
            program = rings.build_program(shape, mesh, "float64", pattern=exchange.pattern, topology="torus")
            placed = rings.scatter_operands(shape, mesh, whole.reshape(1, tp, size), pattern=exchange.pattern, topology="torus")
            out = rings.gather_result(shape, mesh, run_program(program, placed), pattern=exchange.pattern, topology="torus")[0]
            if exchange.pattern == "reduce_scatter":
                out = np.stack([slices[place * each : (place + 1) * each] for place, slices in enumerate(out)])
            teams += list(out.reshape(tp, -1, tensors.shape[-1]))
        return teams

    def _gather(self, exchange: DieExchange) -> None:
        """All tokens come to all dies, each of which has copies of those that go to its experts."""
        own = [worker.collect_inputs(worker.operators["router"])[0] for worker in self.workers]
        all_tokens = self._teams(exchange, own, self.of.group)
        each, routed = len(own[0]), [worker.routed_tokens for worker in self.workers]
        self.gathered = RoutedTokens(
            np.concatenate([tokens.token + die * each for die, tokens in enumerate(routed)]),
            np.concatenate([tokens.expert for tokens in routed]),
            np.concatenate([tokens.weight for tokens in routed]),
        )
        for die, worker in enumerate(self.workers):
            experts = self._experts_on(die)
            copies = [np.flatnonzero(self.gathered.expert == expert) for expert in range(experts.start, experts.stop)]
            ends = np.cumsum([0, *map(len, copies)])
            rows = all_tokens[die][self.gathered.token[np.concatenate(copies)]]
            worker.here = LocalCopies(rows, experts, [np.arange(*pair) for pair in pairwise(ends)])

    def _scatter(self, exchange: DieExchange) -> None:
        """Weighted results of the experts on all dies are added up, each die's tokens on it.

        Raises:
            ValueError: no tokens were gathered.
        """
        if self.gathered is None:
            raise ValueError(f"{exchange.name}: no tokens are gathered")
        tokens, partial_sums = sum(len(worker.x) for worker in self.workers), list[Array]()
        for die, worker in enumerate(self.workers):
            experts, order = self._experts_on(die), np.argsort(self.gathered.expert, kind="stable")
            copies = order[np.isin(self.gathered.expert[order], range(experts.start, experts.stop))]
            mine = RoutedTokens(*(values[copies] for values in self.gathered))
            partial_sums.append(combine_experts(worker.get("experts_down"), mine, tokens))
        for worker, added in zip(self.workers, self._teams(exchange, partial_sums, self.of.group), strict=True):
            assert isinstance(worker, _Die)
            worker.added = added

    def _experts_on(self, die: int) -> slice:
        """Range of the experts that one die has."""
        each = len(self.layers[0].weights["experts_up"]) // self.of.group
        return slice(die * each, (die + 1) * each)

    def _there(self, exchange: DieExchange) -> None:
        """Copies of tokens go to the dies of their experts."""
        dies, wide = self.of.group, self.layers[0].x.shape[1]
        experts = len(self.layers[0].weights["experts_up"])
        choices = np.stack([_choices(worker) for worker in self.workers])
        if choices[0].size * wide * self.itemsize != exchange.nbytes:
            raise ValueError(f"{exchange.name}: {exchange.nbytes} B, a die sends {choices[0].size * wide * self.itemsize}")
        self.copies = exchange_v.token_copies(choices, experts)
        packed = np.stack([_rows(worker) for worker in self.workers])
        slots = [Buffer("packed", packed.shape[1:], "float64")]
        slots += [Buffer(f"in{place}", (self.copies.rows(place), wide), "float64") for place in range(self.copies.each)]
        program = Program(1, dies, tuple(slots), ((exchange_v.dispatch_round(CoreMesh(1, dies), self.copies),),), "full")
        found_program, each = run_program(program, {"packed": packed[None]}), self.copies.each
        rows = [found_program[f"in{place}"][0] for place in range(each)]
        ends = np.cumsum([0, *(row.shape[1] for row in rows)])
        places = [np.arange(*pair) for pair in pairwise(ends)]
        for die, worker in enumerate(self.workers):
            worker.here = LocalCopies(np.concatenate([row[die] for row in rows]), slice(die * each, (die + 1) * each), places)

    def _back(self, exchange: DieExchange) -> None:
        """Return the results of experts to the dies of their tokens."""
        if self.copies is None:
            raise ValueError(f"{exchange.name}: no tokens are away")
        dies = self.of.group
        wide = self.layers[0].x.shape[1]
        tiles, slots = {}, [Buffer("returned", (self.copies.packed[0].size, wide), "float64")]
        for place in range(self.copies.each):
            columns = [worker.get("experts_down")[worker.here.places[place]] for worker in self.workers if worker.here]
            tiles[f"out{place}"] = np.stack(columns)[None]
            slots.append(Buffer(f"out{place}", columns[0].shape, "float64"))
        program = Program(1, dies, tuple(slots), ((exchange_v.combine_round(CoreMesh(1, dies), self.copies),),), "full")
        for worker, returned in zip(self.workers, run_program(program, tiles)["returned"][0], strict=True):
            worker.done["experts_down"] = returned


def _rows(worker: CallWorker) -> Array:
    """Copies of a die's tokens, in the order of experts."""
    (x,) = worker.collect_inputs(worker.operators["router"])
    return np.asarray(x[worker.routed_tokens.token])


def _choices(worker: CallWorker) -> Array:
    """Experts of each token of a die."""
    order = np.argsort(worker.routed_tokens.token, kind="stable")
    return worker.routed_tokens.expert[order].reshape(len(worker.x), -1)
