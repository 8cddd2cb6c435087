"""Engines side by side, strands that share them, and blocks from memory: against what is counted by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.memory_channels import MeshChannels, mesh_channels
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    LoadInstruction,
    Loop,
    MultiplyInstruction,
    Program,
    Round,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.chip import MatrixEngine, VectorEngine
from dse.testing.functional_simulator import run_program as played_by_numbers
from tests.agreement.test_events import CYCLES, DMA

ENGINES = TileEngines(
    1.0,
    MatrixEngine(dataflow="weight", rows=8, cols=8, depth=0, reload="hidden", fill=0.0, start=5.0),
    VectorEngine(lanes=16.0, special=4.0, start=3.0),
    1e6,
)
SLOTS = (Buffer("a", (16, 16)), Buffer("b", (16, 16)), Buffer("s", (16, 16)), Buffer("t", (16, 16)), Buffer("o", (16, 16)))
PRODUCT = float(ENGINES.matrix.start + ENGINES.product(16, 16, 16, 4))
INSTRUCTION = float(ENGINES.vector.start + ENGINES.instruction(256.0, 0.0, 0.0))
MEMORY = mesh_channels("south", 4, 4, 4, 100.0, 1.0)


def head(name: str, times: int) -> tuple[tuple[Buffer, ...], tuple[Loop, ...]]:
    """A product, a vector instruction on what came out, and a product of that: as attention does, over and over."""
    slots = tuple(slot._replace(name=name + slot.name) for slot in SLOTS)
    body = (
        Round((MultiplyInstruction(name + "a", name + "b", name + "s", combine="set"),)),
        Round((VectorInstruction("add", (name + "s", name + "b"), name + "t"),)),
        Round((MultiplyInstruction(name + "t", name + "b", name + "o"),)),
    )
    return slots, (Loop(body, times),)


def heads(count: int, times: int) -> SimulationResult:
    parts = [head(chr(ord("x") + i), times) for i in range(count)]
    program = Program(2, 3, tuple(slot for slots, _ in parts for slot in slots), tuple(strand for _, strand in parts))
    jumped, played = (simulate_events(program, CYCLES, engines=ENGINES, jump=jump) for jump in (True, False))
    assert jumped.seconds == pytest.approx(played.seconds, rel=1e-9)
    assert times < 20 or jumped.played < played.played
    return jumped


@pytest.mark.parametrize("times", [1, 2, 5, 40])
def test_one_strand_waits_for_itself(times: int) -> None:
    assert heads(1, times).seconds == pytest.approx(times * (2 * PRODUCT + INSTRUCTION))


@pytest.mark.parametrize("times", [5, 40, 400])
def test_two_strands_keep_the_engine_busy(times: int) -> None:
    """What one waits for, the other one hides: only the first product's result is waited for."""
    two = heads(2, times)
    assert two.seconds <= times * 4 * PRODUCT + 2 * (INSTRUCTION + PRODUCT)
    assert two.utilisation > 0.97 - 1 / times


def test_engines_work_side_by_side_or_one_after_the_other() -> None:
    slots, (loop,) = head("x", 1)
    apart = Program(1, 1, slots, ((loop.body[0],), (Round((VectorInstruction("add", ("xo", "xo"), "xt"),)),)))
    assert simulate_events(apart, CYCLES, engines=ENGINES).seconds == max(PRODUCT, INSTRUCTION)
    events = simulate_events(apart, CYCLES)
    assert events.seconds == events.engine_seconds
    assert events.vector_seconds == 0


@given(st.sampled_from(sorted(GEMM)), st.integers(1, 6), st.integers(8, 60))
@settings(max_examples=25, deadline=None)
def test_a_machine_with_engines_apart_is_no_slower(name: str, side: int, size: int) -> None:
    """The same products on an engine of the same speed, with messages beside them."""
    program = GEMM[name].build_program(
        GemmShape(size, size, size), CoreMesh(max(side, GEMM[name].MIN_SIDE), max(side, GEMM[name].MIN_SIDE))
    )
    slow = DMA._replace(launch=0.0, call=0.0, mac=1.0)
    engine = MatrixEngine(dataflow="output", rows=1, cols=1, depth=0, reload="hidden", fill=0.0, start=0.0)
    apart = simulate_events(program, slow, engines=TileEngines(1.0, engine, ENGINES.vector, 1e9)).seconds
    assert apart <= simulate_events(program, slow).seconds * (1 + 1e-9)


def loading(mesh: CoreMesh, times: int, depth: int, channel: np.ndarray) -> Program:
    row, col = np.indices((mesh.rows, mesh.cols))
    slots = (Buffer("k", (8, 8), depth=depth), Buffer("q", (8, 8)), Buffer("s", (8, 8)))
    body = (Round((LoadInstruction("k", "k", CoreIndex(row, col), channel),)), Round((MultiplyInstruction("q", "k", "s"),)))
    return Program(
        mesh.rows, mesh.cols, slots, ((Loop(body, times), Round((StoreInstruction("s", "s", CoreIndex(row, col), channel),))),)
    )


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_blocks_come_in_turn_and_go_back(rows: int, cols: int, times: int) -> None:
    rng = np.random.default_rng(rows * cols)
    k = rng.normal(size=(times, rows, cols, 8, 8)).astype(np.float32)
    q = rng.normal(size=(rows, cols, 8, 8)).astype(np.float32)
    program = loading(CoreMesh(rows, cols), times, 1, np.zeros((rows, cols), int))
    out = played_by_numbers(program, {"q": q}, {"k": k})["s"]
    assert np.allclose(out[0], np.einsum("rcij,brcjk->rcik", q, k), atol=1e-3)
    with pytest.raises(ValueError, match="no block left"):
        played_by_numbers(program, {"q": q}, {"k": k[1:]})


def test_a_lone_block_takes_the_way_there_the_latency_and_the_channel() -> None:
    program = Program(
        4,
        4,
        (Buffer("k", (8, 8)),),
        ((Round((LoadInstruction("k", "k", CoreIndex(np.array(1), np.array(2)), np.array(3)),)),),),
    )
    hops, ramp = 3.0, CYCLES.ramp  # channel 3 is below column 3
    expected = CYCLES.post + ramp + hops + MEMORY.latency + 256 * MEMORY.byte + hops + ramp
    assert simulate_events(program, CYCLES, memory=MEMORY).seconds == pytest.approx(expected)


def test_channels_are_shared_and_double_buffers_hide_the_latency() -> None:
    channel = np.tile(np.arange(4), (4, 1))
    program = {depth: loading(CoreMesh(4, 4), 50, depth, channel) for depth in (1, 2)}
    events = {depth: simulate_events(program, CYCLES, engines=ENGINES, memory=MEMORY) for depth, program in program.items()}
    least = 50 * 4 * 256 * MEMORY.byte  # every channel serves four cores
    assert events[1].seconds > least
    assert least <= events[2].seconds <= events[1].seconds
    assert events[2].seconds < 1.1 * least + 1000
    assert events[2].activity.memory_bytes == 51 * 16 * 256
    assert events[2].activity.hop_bytes == 51 * 256 * 4 * (0 + 1 + 2 + 3)
    assert count_activity(program[2]).memory_bytes == events[2].activity.memory_bytes
    slower = simulate_events(program[2], CYCLES, engines=ENGINES, memory=MEMORY, jump=False)
    assert slower.seconds == pytest.approx(events[2].seconds, rel=1e-9)


def test_whose_request_is_there_first_is_served_first() -> None:
    """The core at the channel has no way to go; it comes first, though it stands behind."""
    slots = (Buffer("k", (8, 8)), Buffer("q", (8, 8)), Buffer("s", (8, 8)))
    both = CoreIndex(np.zeros(2, int), np.arange(2))
    program = Program(1, 2, slots, ((Round((LoadInstruction("k", "k", both, np.zeros(2, int)),)),),))
    memory = MeshChannels(np.array([0]), np.array([1]), 100.0, 1.0, 1.0)
    ready = simulate_events(program, CYCLES, memory=memory).ready["k"]
    assert ready[0, 1] < ready[0, 0]


def test_a_program_that_loads_needs_channels() -> None:
    with pytest.raises(ValueError, match="memory channels"):
        simulate_events(loading(CoreMesh(2, 2), 1, 1, np.zeros((2, 2), int)), CYCLES)
