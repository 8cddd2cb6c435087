"""Caches that change cores, summed link by link and played: alone, and beside what pipelines send from stage to stage."""

import numpy as np
import pytest

from dse.evaluators.cost_models.cycle_simulator import simulate_cycles as cycles
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.layouts.kv_transfer import FleetLayout, PipelineFleet, pipeline_messages, transfer_cost
from dse.evaluators.layouts.simulated_kv_transfer import SimulatedPipelines, simulated_transfer_cost
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Loop, MultiplyInstruction, Program, Round, SendInstruction
from dse.space.array_math import Array
from dse.space.chip import ROUTINGS
from dse.space.mapping import ARRANGEMENTS
from dse.testing.functional_simulator import run_program as numeric
from tests.samples import asked

TOKENS, POSITION, ACTIVATIONS = 16, 2048.0, 5120.0


def sends(slot: str, messages: Array, nbytes: float) -> tuple[Buffer, SendInstruction]:
    """Messages of so many bytes each, all at once."""
    rows = int(nbytes // 2)
    cores = CoreIndex(messages["row"], messages["col"]), CoreIndex(messages["to_row"], messages["to_col"])
    return Buffer(slot, (rows, 1), "float16", depth=2), SendInstruction(
        slot, *cores, np.zeros(len(messages)), np.full(len(messages), rows)
    )


class Pipelines:
    """A chip with one pipeline for each phase, and what these send, for some tokens at a time."""

    def __init__(self, routing: str, arrangement: str, tp: int, pp: int) -> None:
        chip = asked("chip=npu64", f"chip.noc.routing={routing}", "model=qwen3_4b").base.chip
        self.fabric, self.engines = tile_fabric(chip), tile_engines(chip)
        fleet = PipelineFleet(tp, pp, 1, tuple(range(pp)), POSITION, ACTIVATIONS)
        self.layout = FleetLayout(8, 8, arrangement, fleet, fleet)
        (prefilled,), (decoded,), (cached,) = pipeline_messages(self.layout.shape, TOKENS).messages
        self.activations = np.concatenate([prefilled, decoded])
        self.kv, self.moved = sends("kv", cached, TOKENS * POSITION)
        self.x, self.passed = sends("x", self.activations, TOKENS * ACTIVATIONS / tp)

    def sending(self, nbytes: float) -> float:
        """Of so many bytes in each message of activations, the longest. [s]"""
        activations, fabric = self.activations, self.fabric
        hops = float((abs(activations["row"] - activations["to_row"]) + abs(activations["col"] - activations["to_col"])).max())
        return (3 * (2 * fabric.ramp + fabric.hop * hops) if fabric.locked else 0.0) + nbytes * fabric.pace / fabric.word_bytes

    def price(self, rate: float) -> float:
        """Of the caches of some tokens, where both pipelines do tokens at a rate."""
        return TOKENS * transfer_cost(self.layout, self.fabric, TOKENS, rate, rate).per_token

    def played(self, slots: tuple[Buffer, ...], *strands: tuple[Round | Loop, ...]) -> SimulationResult:
        """Some strands of rounds."""
        return simulate_events(Program(8, 8, slots, strands), self.fabric, engines=self.engines)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("tp", "pp"), [(1, 4), (2, 4), (4, 8), (2, 16)])
def test_a_cache_takes_as_long_as_its_busiest_link(routing: str, arrangement: str, tp: int, pp: int) -> None:
    chip = Pipelines(routing, arrangement, tp, pp)
    assert chip.played((chip.kv,), (Round((chip.moved,)),)).seconds == pytest.approx(chip.price(0.0), rel=0.005)
    burst = cycles(Program(8, 8, (chip.kv, chip.x), ((Round((chip.moved, chip.passed)),),)), chip.fabric, engines=chip.engines)
    # all at once, those that wait for one link keep others from being used; others come after the caches
    assert 0.75 <= burst.ready["kv"].max() / chip.price(1e30) <= 1.3
    assert burst.seconds >= chip.price(1e30) * 0.9  # handshakes are of each token there


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(("tp", "pp"), [(1, 4), (2, 4), (4, 8), (2, 16)])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_caches_beside_pipelines_that_compute_and_send_in_turn(routing: str, tp: int, pp: int, share: float) -> None:
    """Each core computes for so long that its messages hold a link for a share of the time; caches go all the while."""
    chip, turns = Pipelines(routing, "pp_first", tp, pp), 24
    rows, sending = chip.x.shape[0], TOKENS * chip.sending(ACTIVATIONS / tp)
    # as deep a product as takes that long
    wanted = sending * (1 / share - 1)
    depth = int(64 * wanted / chip.engines.product(rows, 64, 1, 2))
    slots = (chip.kv, chip.x, Buffer("a", (rows, depth), "float16"), Buffer("b", (depth, 1), "float16"))
    computing = (Round((MultiplyInstruction("a", "b", "x", combine="set"),)), Round((chip.passed,)))
    period = chip.played(slots, (Loop(computing, 40),)).seconds / 40
    caches = (Loop((Round((chip.moved,)),), turns),)
    alone = chip.played(slots, caches).seconds
    beside = chip.played(slots, (Loop(computing, int(3 * alone / period) + 10),), caches).ready["kv"].max()
    priced = turns * chip.price(TOKENS / period)
    assert alone == pytest.approx(turns * chip.price(0.0), rel=0.15)
    assert 0.75 <= beside / priced <= 1.7
    assert beside >= alone


def drawn(rng: np.random.Generator) -> tuple[FleetLayout, float]:
    """Pipelines of both phases on 8 x 8 cores, and for which share of the time caches would hold a link."""
    tp, pp = ((1, 4), (2, 4), (4, 4), (2, 8), (4, 2), (1, 8))[rng.integers(6)]
    prefills, decodes, layers = int(rng.integers(1, 4)), int(rng.integers(1, 3)), pp * int(rng.choice([2, 8]))
    wider = tp * int(rng.integers(1, 3)) if (prefills + 2 * decodes) * tp * pp <= 64 else tp
    prefills = min(prefills, (64 - wider * pp * decodes) // (tp * pp))
    of_layer = tuple(layer * pp // layers for layer in range(layers))
    fleets = (
        PipelineFleet(tp, pp, prefills, of_layer, POSITION / tp, ACTIVATIONS),
        PipelineFleet(wider, pp, decodes, of_layer, POSITION / wider, ACTIVATIONS),
    )
    return FleetLayout(8, 8, str(rng.choice(ARRANGEMENTS)), *fleets), float(rng.choice([0.05, 0.2])) * prefills


@pytest.mark.sampled
@pytest.mark.parametrize(("routing", "most"), [("locked", 0.2), ("wormhole", 0.15)])
def test_caches_take_what_links_of_all_pipelines_say_in_the_median(routing: str, most: float) -> None:
    fabric, rng, gaps = Pipelines(routing, "pp_first", 1, 4).fabric, np.random.default_rng(5), list[float]()
    for _ in range(24):
        layout, share = drawn(rng)
        rate = share / transfer_cost(layout, fabric, TOKENS, 1e-9, 1e-9).per_token
        closed, heard = (
            transfer_cost(layout, fabric, TOKENS, rate, rate),
            simulated_transfer_cost(layout, fabric, TOKENS, rate, rate, simulate_events),
        )
        gaps.append(abs(closed.per_token / heard.per_token - 1))
        assert heard.prefill >= 1 - 1e-9
        assert heard.decode >= 1 - 1e-9
        assert heard.hops == closed.hops
    assert np.median(gaps) < 0.05
    assert np.quantile(gaps, 0.9) < most


@pytest.mark.parametrize("seed", range(4))
def test_caches_and_activations_come_to_the_cores_that_use_them(seed: int) -> None:
    layout, _ = drawn(np.random.default_rng(seed))
    traffic = SimulatedPipelines.at_rates(layout, Pipelines("locked", "pp_first", 1, 4).fabric, 1, 1.0, 1.0)
    sources, targets = traffic.places

    def wrong(send: SendInstruction) -> SendInstruction:
        return SendInstruction(
            send.slot, send.source, CoreIndex(send.target.row, 7 - send.target.col), send.start, send.stop, send.at, send.into
        )

    def arrives(changed: bool) -> bool:
        kv, got, sends = traffic.caches([(0, 0)])
        tiles = {"kv": np.random.default_rng(1).integers(-99, 99, (8, 8, *kv.shape), np.int8)}
        send = wrong(sends[0]) if changed else sends[0]
        received = numeric(Program(8, 8, (kv, got), ((Round((send,)),),)), tiles)["got"]
        prefill, decode = layout.prefill, layout.decode
        pairs = set(zip(prefill.layers, decode.layers, strict=True))
        ends = [
            (sources[0, a, core * prefill.tp // decode.tp], targets[0, b, core]) for a, b in pairs for core in range(decode.tp)
        ]
        return all((received[tuple(target)] == tiles["kv"][tuple(place)]).all() for place, target in ends)

    assert arrives(changed=False)
    assert not arrives(changed=True)
    x, y, send = traffic.pass_messages()
    tiles = {"x": np.random.default_rng(2).integers(-99, 99, (8, 8, *x.shape), np.int8)}
    received = numeric(Program(8, 8, (x, y), ((Round((send,)),),)), tiles)["y"]
    for fleet, places, tokens in zip((layout.prefill, layout.decode), traffic.places, traffic.tokens, strict=True):
        size = int(np.ceil(tokens * fleet.activations / fleet.tp))
        place, other_place = places[:, :-1].reshape(-1, 2).T, places[:, 1:].reshape(-1, 2).T
        assert (received[tuple(other_place)][:, :size] == tiles["x"][tuple(place)][:, :size]).all()
