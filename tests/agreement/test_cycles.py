"""Routers cycle by cycle: what is known of single packets, conservation, seeds, saturation, and how near events come."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.partition import PARTITION
from dse.evaluators.machine import mesh_link_loads as links
from dse.evaluators.machine import router_state as routers_
from dse.evaluators.machine import traffic_flows as flows
from dse.evaluators.machine import traffic_measurement as traffic
from dse.evaluators.machine import traffic_sources as sources
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.fault_routing import FaultRoutes, NoRouteError, fault_routes
from dse.evaluators.machine.mesh_fabric import mesh_fabric as fabric
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.traffic_measurement import SATURATED, STABLE, measure_traffic
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, MulticastInstruction, Program, ReduceInstruction, Round
from dse.space.chip import Router
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.mapping import PLACEMENTS
from dse.space.noc_router import MeshFaults, router_cycles
from dse.space.workload import NocTrafficCase
from dse.studies.fidelity_gap.kernels import KernelProgram, dataflows, on_cores, on_tiles, preset
from tests.agreement.test_events import CYCLES, DMA, CoreMesh, core, sends
from tests.samples import asked

ON = DMA._replace(cycle=1.0, vcs=4, depth=8)
PLAIN = Router(
    vcs=4,
    vc_depth=8,
    route_cycles=1,
    vc_alloc=1,
    switch_alloc=1,
    switch_traversal=1,
    link=1,
    credit=1,
    speculative=False,
    flit_x=1,
    flit_y=1,
)
routers = st.builds(
    lambda vcs, depth, route, link, credit, fast: replace(
        PLAIN, vcs=vcs, vc_depth=depth, route_cycles=route, link=link, credit=credit, speculative=fast
    ),
    st.integers(1, 5), st.integers(1, 9), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.booleans(),
)  # fmt: skip
places = st.tuples(st.integers(0, 6), st.integers(0, 6))


def load(pattern: str = "uniform", rate: float = 0.1, flits: int = 1, **changes: Any) -> NocTrafficCase:
    return replace(NocTrafficCase("", pattern, (), 0, rate, flits, 500, 500, 1), **changes)


@given(places, places, st.integers(1, 64), st.sampled_from(["router", "core", "relay"]), st.integers(1, 6))
@settings(max_examples=60)
def test_a_lone_message_takes_what_events_say(source: Any, target: Any, words: int, via: str, hop: int) -> None:
    fabric, program = ON._replace(hop=float(hop), ramp=6.0), sends(CoreMesh(7, 7), (source, target, words), via=via)
    assert cycles.simulate_cycles(program, fabric).seconds == pytest.approx(events.simulate_events(program, fabric).seconds)


@given(routers, st.integers(2, 5), st.integers(1, 5), st.integers(1, 7), st.floats(0.01, 0.9), st.sampled_from(["xy", "yx"]))
@settings(max_examples=25, deadline=None)
def test_flits_and_credits_are_conserved(router: Router, rows: int, cols: int, flits: int, rate: float, order: str) -> None:
    net = traffic.make_traffic_routers(router, rows, cols, order)
    source = sources.make_sources(net, rate / flits, flits, np.zeros((rows * cols, 0)), 1)
    now = sources.run_traffic(net, source, 0, 300, sources.RUNNING, 0)
    waiting = int(net.channel["count"].sum())
    assert net.sums[routers_.SENT] - net.sums[routers_.ARRIVED] == waiting + _flying(net, source)
    source.due[:] = 1 << 40
    sources.run_traffic(net, source, now, now + 20_000, sources.DRAINING, 1 << 39)
    assert net.sums[routers_.SENT] == net.sums[routers_.ARRIVED] == source.tally[sources.MADE] * flits
    sources.run_traffic(net, source, now + 20_000, now + 20_100, sources.WARMING, 0)
    assert (net.out["credits"] == router.vc_depth).all()
    assert not net.out["used"].any()
    assert (net.port["unused"] == (1 << router.vcs) - 1).all()
    assert not any(words.any() for words in (net.asking, net.turning))


def _flying(net: Any, source: Any) -> int:
    """Flits between routers; those that have just come to cores are in no list."""
    slots = np.arange(len(net.slot))
    return int((net.slot["comings"] - slots * net.at_once + net.slot["leavings"] - slots * net.at_most).sum())


@pytest.mark.parametrize(
    "router", [PLAIN, replace(PLAIN, route_cycles=0, speculative=True), replace(PLAIN, link=2)], ids=["A", "B", "long"]
)
@pytest.mark.parametrize("flits", [1, 5])
def test_packets_that_meet_nobody_take_the_stages_of_their_routers(router: Router, flits: int) -> None:
    router = replace(router, vc_depth=16)
    traffic = measure_traffic(router, 6, 5, "xy", load("bit_complement", 0.002, flits))
    assert traffic.latency == pytest.approx(traffic.hops * router_cycles(router).hop + 1 + router.link + flits - 1, rel=0.01)


@pytest.mark.parametrize("k", [4, 8, 16])
def test_patterns_are_the_standard_ones(k: int) -> None:
    """Node y k + x; the middle is (k/2 - 1, k/2 - 1), and with four spots the next ones too [dally2004]."""
    spot = (k // 2 - 1) * (k + 1)
    for y in range(k):
        for x in range(k):
            expected = {
                "transpose": [x * k + y],
                "bit_complement": [k * k - 1 - (y * k + x)],
                "tornado": [(y + k // 2 - 1) % k * k + (x + k // 2 - 1) % k],
            }
            for pattern, nodes in expected.items():
                assert flows.traffic_targets(load(pattern), k, k)[y * k + x].tolist() == nodes
            for middle, spots in ((1, [spot]), (4, [spot, spot + 1, spot + k, spot + k + 1])):
                assert flows.traffic_targets(load("hotspot", middle=middle), k, k).tolist() == [spots]


@pytest.mark.parametrize(("words", "line"), [
    (["chip=mesh8", "workload=traffic", "chip.router.vcs=17"], r"chip\.router\.vcs: at most 16 virtual channels .* got 17"),
    (["chip=mesh8", "workload=traffic", "chip.router.vc_depth=16385"], r"chip\.router\.vc_depth: at most .* got 16385"),
    (["chip=tile32", "workload=gemm", "workload.shapes=[64x64x64]", "chip.noc.vcs=17"],
     r"chip\.noc\.vcs: at most 16 virtual channels .* got 17"),
])  # fmt: skip
def test_more_than_routers_are_laid_out_for_is_refused(words: list[str], line: str) -> None:
    def played() -> None:
        question = asked(*words)
        evaluate(stack_designs([question.base]), question.workload, fidelity="cycles")

    with pytest.raises(DesignError, match=line):
        played()


def test_a_run_is_a_function_of_its_seed() -> None:
    first_run, again, other = (measure_traffic(PLAIN, 4, 4, "xy", load(rate=0.3, seed=seed)) for seed in (1, 1, 2))
    assert first_run == again
    assert first_run.latency != other.latency
    assert first_run.latency == pytest.approx(other.latency, rel=0.1)


def test_a_network_accepts_what_its_busiest_link_carries_and_says_when_it_is_full() -> None:
    assert measure_traffic(PLAIN, 4, 4, "xy", load("bit_complement", 0.3)).verdict == STABLE
    for router, bound in ((PLAIN, 0.5), (replace(PLAIN, flit_x=2), 0.25)):
        traffic = measure_traffic(router, 4, 4, "xy", load("bit_complement", 0.9))
        assert traffic.verdict == SATURATED
        assert 0.7 * bound < traffic.accepted <= bound


@given(st.integers(1, 6), st.integers(2, 6), st.sampled_from(["xy", "yx"]), st.data())
def test_what_uniform_traffic_asks_of_links_is_the_sum_over_all_pairs(rows: int, cols: int, order: str, data: Any) -> None:
    nodes = rows * cols
    sends = np.array(data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes))).reshape(rows, cols) * 1.0
    sends.flat[0] = 1.0
    at, to = (axis.ravel() for axis in np.meshgrid(np.flatnonzero(sends), np.flatnonzero(sends)))
    assert links.uniform_link_loads(sends, sends, order) * sends.sum() == pytest.approx(
        links.pair_link_loads(at, to, (rows, cols), order)
    )
    apart = np.abs(at // cols - to // cols) + np.abs(at % cols - to % cols)
    assert links.hop_histogram(sends, sends).tolist() == np.bincount(apart, minlength=rows + cols - 1).tolist()


def test_a_large_mesh_needs_no_array_of_its_nodes_squared() -> None:
    tracemalloc.start()
    traffic_flows = flows.traffic_flows(load(), 200, 200, "xy", MeshFaults(), None)
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert traffic_flows.loads.max() == pytest.approx(200 / 4)


def test_an_idle_line_is_not_saturated_because_it_is_long() -> None:
    traffic = measure_traffic(PLAIN, 1, 400, "xy", load(rate=5e-4, packets=200))
    assert traffic.latency > 500
    assert traffic.verdict == STABLE


def test_what_a_full_network_accepts_is_what_it_goes_on_to_accept() -> None:
    once, longer = (measure_traffic(PLAIN, 8, 8, "xy", load("tornado", 0.32, period=period)) for period in (500, 20_000))
    assert once.verdict == longer.verdict == SATURATED
    assert once.accepted == pytest.approx(longer.accepted, rel=0.04)


def test_cycles_in_which_nothing_moves_are_jumped_over_and_too_many_flits_refused() -> None:
    traffic = measure_traffic(PLAIN, 3, 3, "xy", load(rate=1e-6, flits=50, packets=100))
    assert traffic.cycles > 1e9
    with pytest.raises(DesignError, match=r"workload\.packets: .* flit hops, at most"):
        measure_traffic(PLAIN, 3, 3, "xy", load(rate=1e-6, flits=10**7))


def test_packets_of_one_channel_are_not_pipelined() -> None:
    """With one channel, packets of one flit saturate below those of five: a port turns round between packets."""
    short, long = (measure_traffic(replace(PLAIN, vcs=1), 8, 8, "xy", load(rate=0.4, flits=flits)).accepted for flits in (1, 5))
    assert short < 0.75 * long


def test_closed_and_cycles_agree_on_an_empty_network_and_refuse_what_makes_no_sense() -> None:
    given = ("chip=mesh8", "workload=traffic", "workload.traffic=[tornado]", "workload.rates=[0.01]", "workload.packets=500")
    at = {}
    for fidelity in ("analytical", "cycles"):
        question = asked(*given)
        evaluation = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity)
        at[fidelity] = float(evaluation.columns["packet_latency"][0])
        assert explain(question.base, question.workload.cases[0], fidelity=fidelity).seconds > 0
    assert at["cycles"] == pytest.approx(at["analytical"], rel=0.02)
    assert (
        explain_infeasibility(asked(*given[:2], "workload.traffic=[transpose]", "chip.mesh.rows=4").base, question.workload)
        is None
    )
    odd = asked(*given[:2], "workload.traffic=[transpose]", "chip.mesh.rows=4")
    assert "chip.mesh" in str(explain_infeasibility(odd.base, odd.workload))
    for field, wrong in (
        ("workload.traffic", "workload.traffic=[tornadoo]"),
        ("workload.rates", "workload.rates=[1.5]"),
        ("workload.flits", "workload.flits=[0]"),
        ("chip.router.vc_depth", "chip.router.vc_depth=0"),
        ("chip.router.vcs", "chip.router.vcs=100"),
        ("chip.router.switch_alloc", "chip.router.vc_alloc=2 cycle"),
    ):
        more = ("chip=mesh8_fast",) if "alloc" in wrong else ()
        with pytest.raises(DesignError, match=field):
            asked(*(more or given[:1]), "workload=traffic", wrong)


def _faulty(rows: int, cols: int, data: Any) -> MeshFaults:
    nodes = rows * cols
    links = [(a, b) for a in range(nodes) for b in (a + 1, a + cols) if b < nodes and (b == a + cols or b % cols)]
    return MeshFaults(
        tuple(data.draw(st.lists(st.sampled_from(links), max_size=4, unique=True))),
        tuple(data.draw(st.lists(st.integers(0, nodes - 1), max_size=2, unique=True))),
    )


@pytest.mark.slow
@given(st.integers(2, 5), st.integers(2, 5), st.integers(1, 4), st.sampled_from(["xy", "yx"]), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_packets_go_round_what_is_broken_or_the_error_says_where_they_cannot(
    rows: int, cols: int, vcs: int, order: str, trees: bool, data: Any
) -> None:
    """Where nothing is on their way they go as on a whole mesh, and links never wait for one another in a circle."""
    broken = _faulty(rows, cols, data)
    works = [node for node in range(rows * cols) if node not in broken.routers]
    if not _connected(rows, cols, broken, works):
        with pytest.raises(DesignError, match=r"chip\.faults: no (route from router|router works)"):
            fault_routes(rows, cols, broken)
        return
    routes = fault_routes(rows, cols, broken, order, vcs=vcs, trees=trees)
    waits: dict[Any, set[Any]] = {}
    for source in works:
        for target in works:
            trail = routes.find_route(source, target)
            assert routes.far[source, target] == len(trail) - 1
            assert len(set(trail)) == len(trail)
            assert set(trail) <= set(works)
            assert not {tuple(sorted(link)) for link in pairwise(trail)} & set(broken.links)
            straight = _straight(source, target, cols, order)
            if (
                vcs > 1
                and set(straight) <= set(works)
                and not {tuple(sorted(p)) for p in pairwise(straight)} & set(broken.links)
            ):
                assert trail == straight
            assert routes.around[source, target] == (trail != straight)
            kinds = [(*link, bool(routes.apart and routes.around[link[0], target])) for link in pairwise(trail)]
            _follow(waits, kinds)
    at = data.draw(st.lists(st.sampled_from(works), min_size=1, unique=True))
    for adds in (False, True):
        with suppress(NoRouteError):
            _a_tree(routes, broken, at, adds, waits)
    set(TopologicalSorter(waits).static_order())  # raises where there is a circle


def _straight(source: int, target: int, cols: int, order: str) -> list[int]:
    (r, c), (to_r, to_c) = divmod(source, cols), divmod(target, cols)
    trail = [source]
    for axis in order:
        while (c != to_c) if axis == "x" else (r != to_r):
            c, r = (c + (1 if to_c > c else -1), r) if axis == "x" else (c, r + (1 if to_r > r else -1))
            trail.append(r * cols + c)
    return trail


def _follow(waits: dict[Any, set[Any]], links: list[Any]) -> None:
    for first_link, after in pairwise(links):
        waits.setdefault(first_link, set()).add(after)


def _a_tree(routes: FaultRoutes, broken: MeshFaults, at: list[int], adds: bool, waits: dict[Any, set[Any]]) -> None:
    """All members are reached once, over links that work."""
    apart = bool(routes.apart and routes.goes_round(at[0], at[1:], adds))
    before: dict[int, Any] = {}
    for router, port in routes.find_tree(at[0], at[1:], adds):
        next_router = router + {0: 1, 1: -1, 2: routes.cols, 3: -routes.cols}[port]
        assert next_router not in before
        assert next_router != at[0]
        assert tuple(sorted((router, next_router))) not in broken.links
        before[next_router] = (next_router, router, apart) if adds else (router, next_router, apart)
    assert {at[0], *before} >= set(at)
    for next_router, link in before.items():
        router = link[1] if adds else link[0]
        if router in before:
            _follow(waits, [link, before[router]] if adds else [before[router], link])
        assert router == at[0] or router in before
        assert next_router not in broken.routers


@pytest.mark.sampled
@given(st.integers(2, 6), st.integers(2, 6), routers, st.integers(1, 7), st.sampled_from(["xy", "yx"]), st.data())
@settings(max_examples=15, deadline=None)
def test_a_full_mesh_with_faults_never_stands_still(
    rows: int, cols: int, router: Router, flits: int, order: str, data: Any
) -> None:
    """Sources offer all they can, then nothing more: all that was made arrives."""
    broken = _faulty(rows, cols, data)
    works = [node for node in range(rows * cols) if node not in broken.routers]
    if not _connected(rows, cols, broken, works):
        return
    net = traffic.make_traffic_routers(router, rows, cols, order, fault_routes(rows, cols, broken, order, vcs=int(router.vcs)))
    to, sends = flows.working_targets(np.zeros((1, 0), np.int32), rows * cols, broken)
    source = sources.make_sources(net, 0.99 / flits, flits, to, 1)
    source.due[~sends] = 1 << 60
    now = sources.run_traffic(net, source, 0, 2000, sources.RUNNING, 0)
    source.due[:] = 1 << 40
    sources.run_traffic(net, source, now, now + 100_000, sources.DRAINING, 1 << 39)
    assert net.sums[routers_.SENT] == net.sums[routers_.ARRIVED] == source.tally[sources.MADE] * flits


def test_a_broken_link_costs_no_more_than_half_of_a_mesh() -> None:
    """Half of the pairs that crossed it could not go by one other link without its carrying as much again."""
    whole, cut = (
        measure_traffic(PLAIN, 8, 8, "xy", load(rate=0.5, flits=5), broken)
        for broken in (MeshFaults(), MeshFaults(links=((27, 28),)))
    )
    assert cut.verdict == SATURATED
    assert cut.accepted > 0.5 * whole.accepted


def _connected(rows: int, cols: int, broken: MeshFaults, works: list[int]) -> bool:
    seen = set(works[:1])
    for _ in works:
        for node in list(seen):
            for other, inside in ((node + 1, (node + 1) % cols), (node - 1, node % cols), (node + cols, 1), (node - cols, 1)):
                link = (min(node, other), max(node, other))
                if inside and other in works and link not in broken.links:
                    seen.add(other)
    return bool(works) and seen == set(works)


def test_traffic_with_faults_is_slower_and_arrives() -> None:
    chip, given = "chip=mesh8", ("workload=traffic", "workload.rates=[0.05]", "fidelity=cycles", "workload.packets=1000")
    latency = {}
    for faults in ("none", "27-28+35-36", "27+20-28"):
        asked_for = asked(chip, *given, f"chip.faults={faults}")
        evaluation = evaluate(stack_designs([asked_for.base]), asked_for.workload, fidelity="cycles")
        assert evaluation.columns["traffic_status"][0] == STABLE
        assert evaluation.columns["accepted_throughput"][0] == pytest.approx(0.05, rel=0.1)
        latency[faults] = float(evaluation.columns["packet_latency"][0])
        closed = evaluate(stack_designs([asked_for.base]), asked_for.workload, fidelity="analytical")
        assert closed.columns["packet_latency"][0] == pytest.approx(latency[faults], rel=0.1)
    assert latency["none"] < min(latency["27-28+35-36"], latency["27+20-28"])
    for wrong in ("3-5", "7-8", "64", "east"):
        with pytest.raises(DesignError, match=r"chip\.faults"):
            asked(chip, *given, f"chip.faults={wrong}")
    cut = asked(chip, *given, "chip.faults=0-1+0-8")
    with pytest.raises(DesignError, match=r"no route from router .* to router 0 \(0, 0\)"):
        evaluate(stack_designs([cut.base]), cut.workload, fidelity="cycles")


def test_messages_and_trees_of_a_program_go_round_a_broken_link() -> None:
    """In the middle of a line of three rows there are two more links to go; trees reach all, and sums are of all."""
    fabric, cut = ON._replace(hop=2.0, ramp=3.0), MeshFaults(links=((3, 4),))
    program = sends(CoreMesh(3, 3), ((1, 0), (1, 2), 5))
    before, after = (cycles.simulate_cycles(program, fabric, faults=broken) for broken in (MeshFaults(), cut))
    assert after.seconds == before.seconds + 2 * 2.0
    assert after.activity == before.activity._replace(hop_bytes=2 * before.activity.hop_bytes)  # four links instead of two
    locked = fabric._replace(locked=1.0, vcs=1)
    whole, around = (cycles.simulate_cycles(program, locked, faults=broken).seconds for broken in (MeshFaults(), cut))
    assert around == whole + 3 * 2 * 2.0  # a request, a grant, and words
    path = CoreIndex(np.array([[1, 1, 1]]), np.array([[0, 1, 2]]))
    slots, start, stop = (Buffer("x", (64, 1)), Buffer("y", (64, 1))), np.array([0]), np.array([9])
    for step in (
        MulticastInstruction("x", path, start, stop, "y"),
        ReduceInstruction("x", path, start, stop, "y", via="router"),
    ):
        program = Program(3, 3, slots, ((Round((step,)),),))
        before, after = (cycles.simulate_cycles(program, fabric, faults=broken) for broken in (MeshFaults(), cut))
        assert after.seconds == before.seconds + 2 * 2.0
        # four links instead of two, or five where members have ways of their own
        assert after.activity.hop_bytes in (2 * before.activity.hop_bytes, 2.5 * before.activity.hop_bytes)


def test_kernels_play_with_a_broken_link_and_other_readers_refuse_it() -> None:
    for place, played in enumerate(some()):
        rows, cols = played.program.rows, played.program.cols
        middle = rows // 2 * cols + cols // 2
        cut = MeshFaults(links=((0, 1), (middle - 1, middle)))
        if place % 3 == 0 and min(rows, cols) > 1:  # a line has no other way
            cycles.simulate_cycles(played.program, played.fabric, engines=played.engines, memory=played.memory, faults=cut)
    words = ("chip=wse2", "workload=gemv", "workload.shapes=[1x24x24]", "mapping.rows=4")
    near, far, core_ = (asked(*words, f"chip.faults={faults}") for faults in ("1-2+1-1134", "4-5", "1135"))
    seconds = [
        evaluate(stack_designs([question.base]), question.workload, fidelity="cycles").columns["latency"][0]
        for question in (near, far)
    ]
    assert seconds[0] > seconds[1]
    assert seconds[1] == evaluate(stack_designs([asked(*words).base]), far.workload, fidelity="cycles").columns["latency"][0]
    assert explain_infeasibility(near.base, near.workload) is None
    with pytest.raises(DesignError, match=r"chip\.faults: core \(1, 2\) is broken, .* all of 4 x 4 cores"):
        evaluate(stack_designs([core_.base]), core_.workload, fidelity="cycles")
    for fidelity in ("analytical", "events"):
        with pytest.raises(
            DesignError,
            match=rf"chip\.faults: fidelity={fidelity} cannot route around faults; use fidelity=cycles or chip\.faults=none",
        ):
            evaluate(stack_designs([near.base]), near.workload, fidelity=fidelity)
        with pytest.raises(DesignError, match=rf"chip\.faults: fidelity={fidelity} cannot route"):
            explain(near.base, near.workload.cases[0], fidelity=fidelity)
    with pytest.raises(DesignError, match=r"chip\.faults: fidelity=events cannot route around faults"):
        events.simulate_events(sends(CoreMesh(2, 2), ((0, 0), (1, 1), 4)), ON, faults=MeshFaults(routers=(1,)))
    with pytest.raises(DesignError, match=r"chip\.faults: fidelity=cycles@2 cannot route"):
        evaluate(stack_designs([near.base]), near.workload, fidelity="cycles@2")


def some() -> Iterator[KernelProgram]:
    """Every kernel but products divided over NPU cores, of one random size."""
    rng = np.random.default_rng(5)
    for family in (on_cores, on_tiles, dataflows):
        yield from family(rng)


def test_events_are_near_cycles_and_equal_where_nothing_is_contended() -> None:
    gaps = {}
    for played in some():
        by_events, by_cycles = played.seconds
        gaps[played.family, played.name] = by_events / by_cycles - 1 if by_cycles else 0.0
        if played.family == "collective" and played.name.split(",")[0] in ("hardware", "tree", "sequential"):
            assert by_events == pytest.approx(by_cycles, rel=1e-2), played.name
    assert np.median(np.abs(list(gaps.values()))) < 0.02
    attention = [abs(gap) for (family, _), gap in gaps.items() if family == "attention"]
    assert max(attention) < 0.1


@given(st.integers(2, 6), st.integers(2, 6), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=15, deadline=None)
def test_loads_from_shared_memory_wait_alike_in_both_readers(rows: int, cols: int, k: int, n: int) -> None:
    """A core that waits for a value serves others meanwhile."""
    program = GEMV["ladder"].build_program(GemmShape(1, k, n), CoreMesh(rows, cols), "float16")
    loads = replace(program, strands=(program.strands[0][:1],))
    given_fabric = fabric(preset("wse2", "workload=gemv"))
    assert events.simulate_events(loads, given_fabric).seconds == pytest.approx(
        cycles.simulate_cycles(loads, given_fabric).seconds, rel=0.01
    )


def test_locked_channels_cost_placements_that_share_them() -> None:
    """A ring of neighbours keeps its channels apart; interleaved, messages cross one another's."""
    npu, shape = preset("npu64"), GemmShape(256, 1024, 1024)
    seconds = {
        placement: cycles.simulate_cycles(
            PARTITION["mn"].build_program(shape, placement, 16, "float16"), tile_fabric(npu), engines=tile_engines(npu)
        ).seconds
        for placement in ("linear_interleave", "ring")
    }
    assert seconds["linear_interleave"] > 1.5 * seconds["ring"]
    locked = CYCLES._replace(cycle=1.0, vcs=1, depth=8, locked=1.0)
    lone = cycles.simulate_cycles(sends(CoreMesh(1, 3), ((0, 0), (0, 2), 40)), locked).seconds
    assert lone == 40 + 3 * (2 * 2 + 2)
    against = cycles.simulate_cycles(sends(CoreMesh(1, 3), ((0, 0), (0, 2), 40), ((0, 2), (0, 0), 40)), locked).seconds
    assert against == 2 * lone


@pytest.mark.parametrize("play", [cycles.simulate_cycles, events.simulate_events])
def test_neighbours_exchange_both_ways_at_once_where_routes_lock(play: Callable[..., SimulationResult]) -> None:
    """Their grants pass no router between; a route that does holds the way back of each of its channels."""
    locked = CYCLES._replace(cycle=1.0, vcs=1, depth=8, locked=1.0)
    messages, back, far = ((0, 0), (0, 1), 40), ((0, 1), (0, 0), 40), ((0, 2), (0, 0), 40)
    near, long = 40 + 3 * (2 * 2 + 1), 40 + 3 * (2 * 2 + 2)
    assert play(sends(CoreMesh(1, 3), messages), locked).seconds == near
    assert play(sends(CoreMesh(1, 3), messages, back), locked).seconds == near
    assert play(sends(CoreMesh(1, 3), messages, far), locked).seconds == near + long


def test_a_message_that_waits_for_a_channel_keeps_no_other() -> None:
    """On a line, from 0 to 3 waits for 2 to 3; from 1 to 2 goes at once, though it asks after it, and 0 to 3 after both."""
    locked = CYCLES._replace(cycle=1.0, vcs=1, depth=8, locked=1.0)
    near, far = (words + 3 * (2 * 2 + hops) for words, hops in ((40, 1), (40, 3)))

    def seconds(*messages: tuple[tuple[int, int], tuple[int, int], int]) -> float:
        return cycles.simulate_cycles(sends(CoreMesh(1, 4), *messages), locked).seconds

    ahead, across = ((0, 2), (0, 3), 40), ((0, 0), (0, 3), 40)
    assert seconds(ahead, across) == near + far
    assert seconds(ahead, across, ((0, 1), (0, 2), 40)) == near + far
    assert seconds(across, ahead, ((0, 1), (0, 2), 40)) == far + near
    assert seconds(across, ahead, ((0, 1), (0, 2), 400)) == far + near + 360


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", ["k", "mn"])
@pytest.mark.parametrize("cores", [4, 8, 9, 16])
def test_messages_that_take_turns_take_what_the_closed_form_says_or_longer(name: str, placement: str, cores: int) -> None:
    """Rings that share no channel, and those along a line, are as the formula has them; others get out of step."""
    chip = asked("chip=npu64", "model=qwen3_4b").base.chip
    shape, fabric, engines = GemmShape(16 * cores, 8 * cores, 8 * cores * cores), tile_fabric(chip), tile_engines(chip)
    closed, _ = PARTITION[name].cost(shape, placement, cores, fabric, engines, 2)
    played = cycles.simulate_cycles(
        PARTITION[name].build_program(shape, placement, cores, "float16"), fabric, engines=engines
    ).seconds
    assert played > closed * (1 - 0.03)
    alike = placement == "linear_seq" or cores == 4 or (placement in ("ring", "mesh") and cores % 2 == 0)
    assert played < closed * (1.03 if alike else 1.6)


def crossing(vcs: int) -> float:
    """Two multicasts whose trees fork where the other one's do, from both sides."""
    slots = (Buffer("x", (64, 1)), Buffer("y", (64, 1)), Buffer("z", (64, 1)))
    start, stop = np.array([0]), np.array([64])
    paths = [CoreIndex(np.array([[0, 1, 1]]), np.array([[root, near, far]])) for root, near, far in ((0, 1, 2), (3, 2, 1))]
    steps = tuple(MulticastInstruction("x", path, start, stop, into) for path, into in zip(paths, "yz", strict=True))
    fabric = ON._replace(vcs=vcs, depth=2)
    return cycles.simulate_cycles(Program(2, 4, slots, ((Round(steps),),)), fabric).seconds


def test_a_deadlock_is_named_and_more_channels_resolve_it() -> None:
    with pytest.raises(DesignError, match=r"deadlock: channel 0 from the .* of router \(\d, \d\) waits for channel 0"):
        crossing(1)
    assert crossing(2) > 0


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3), max_size=10))
def test_a_circle_is_found_where_there_is_one(waits: dict[int, list[int]]) -> None:
    cycle = cycles.find_cycle(waits)
    assert all(ahead in waits[link] for link, ahead in pairwise(cycle))
    if cycle:
        assert cycle[0] == cycle[-1]
    else:
        assert set(TopologicalSorter(waits).static_order()) >= set(waits)


def test_a_circle_may_be_as_long_as_a_mesh_has_channels() -> None:
    ring = {channel: [(channel + 1) % 20_000] for channel in range(20_000)}
    assert len(cycles.find_cycle(ring)) == 20_001


@given(st.integers(2, 4), st.integers(2, 4), st.data())
@settings(max_examples=30, deadline=None)
def test_routers_copy_and_add_what_events_say(rows: int, cols: int, data: Any) -> None:
    """One tree at a time: any members, any root, any length."""
    at = data.draw(st.lists(st.integers(0, rows * cols - 1), min_size=2, unique=True))
    words = data.draw(st.integers(1, 40))
    path = CoreIndex(np.array([at]) // cols, np.array([at]) % cols)
    slots, start, stop = (Buffer("x", (64, 1)), Buffer("y", (64, 1))), np.array([0]), np.array([words])
    for step in (
        MulticastInstruction("x", path, start, stop, "y"),
        ReduceInstruction("x", path, start, stop, "y", via="router"),
    ):
        program = Program(rows, cols, slots, ((Round((step,)),),))
        assert cycles.simulate_cycles(program, ON).seconds == pytest.approx(events.simulate_events(program, ON).seconds), step


def test_what_routers_cannot_be_is_refused_by_name() -> None:
    program = sends(CoreMesh(2, 2), ((0, 0), (1, 1), 4))
    for field, given_fabric in (
        ("chip.noc.hop_cycles", ON._replace(hop=1.5)),
        ("chip.noc.word_cycles", ON._replace(word=0.5)),
        ("chip.noc.ramp_cycles", ON._replace(hop=9.0, ramp=1.0)),
    ):
        with pytest.raises(DesignError, match=field):
            cycles.simulate_cycles(program, given_fabric)
    with pytest.raises(DesignError, match=r"chip\.noc\.topology"):
        cycles.simulate_cycles(replace(program, topology="torus"), ON)
    assert core(0, 0).shape == (1,)
