"""Blocks of tiles burst by burst beside routers: their places, their times, and what interleaving costs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.cost_models.block_addresses import BlockAddresses
from dse.evaluators.cost_models.simulation_timing import SimulatedMachine
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling
from dse.evaluators.kernels.attention.operand_blocks import block_rows, scatter_qkv
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine import memory_system as hbm
from dse.evaluators.machine.bank_simulator import BankSimulatorState
from dse.evaluators.machine.bank_simulator_state import closed_banks
from dse.evaluators.machine.memory_channels import ChannelBanks, banks_of_channel, mesh_channels
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.program.kernel_ir import (
    Buffer,
    CoreIndex,
    LoadInstruction,
    Loop,
    Program,
    Round,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.array_math import Array
from dse.space.design import stack_designs
from dse.space.dram import capacity_bytes, peak_bandwidth
from dse.space.dram import pseudo_channel_count as pseudo_channels
from dse.space.fields import replace_leaves
from dse.studies.fidelity_gap.kernels import preset
from tests.evaluators.test_laid import drawn
from tests.samples import asked

ON = tile_fabric(preset("tile32"))

LATENCY = 2e-7


def program(mesh: CoreMesh, nbytes: int, times: int, *, depth: int = 2, store: bool = False) -> Program:
    """Every core loads blocks, or stores them, from or to the channel of its column."""
    row, col = np.indices((mesh.rows, mesh.cols)).reshape(2, -1)
    step = (StoreInstruction if store else LoadInstruction)("x", "x", CoreIndex(row, col), col)
    return Program(mesh.rows, mesh.cols, (Buffer("x", (nbytes,), "int8", depth),), ((Loop((Round((step,)),), times),),))


def behind_one(rng: np.random.Generator, count: int) -> ChannelBanks:
    leaves = replace_leaves(drawn(rng), {"controller.path": float(rng.choice([0.0, 2e-8]))})
    return banks_of_channel(leaves, float(count * peak_bandwidth(leaves) / pseudo_channels(leaves)))


def played(monkeypatch: pytest.MonkeyPatch, program: Program, banks: ChannelBanks) -> tuple[float, BankSimulatorState]:
    """By cycles, and the banks as they are left."""
    states: list[BankSimulatorState] = []
    start = closed_banks

    def kept(*given: Any) -> BankSimulatorState:
        states.append(start(*given))
        return states[-1]

    monkeypatch.setattr(cycles, "closed_banks", kept)
    at = mesh_channels("south", program.cols, program.rows, program.cols, LATENCY, banks.bandwidth)
    return cycles.simulate_cycles(program, ON, memory=at, banks=banks).seconds, states[0]


def addresses(program: Program, banks: ChannelBanks) -> list[Array]:
    """First bytes of all requests, channel by channel."""
    at = mesh_channels("south", program.cols, program.rows, program.cols, LATENCY, banks.bandwidth)
    machine = SimulatedMachine(ON, None, at, {slot.name: slot for slot in program.slots}, banks=banks)
    lie, access, addresses = BlockAddresses(program, machine), int(banks.memory.access), [np.zeros(0, np.int64)] * program.cols
    (loop,) = program.strands[0]
    assert isinstance(loop, Loop)
    step = loop.body[0].steps[0]
    assert isinstance(step, LoadInstruction | StoreInstruction)
    for _ in range(loop.times):
        for burst in lie.list_bursts(step):
            for core, first in enumerate(burst.address.tolist()):
                bursts = np.arange(first // access, (first + burst.nbytes - 1) // access + 1) * access
                addresses[core % program.cols] = np.append(addresses[core % program.cols], bursts)
    return addresses


@pytest.mark.parametrize("seed", range(6))
def test_every_burst_goes_where_its_address_lies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled as the memory says it of addresses anywhere, of loads and of stores."""
    rng = np.random.default_rng(seed)
    banks, stored = behind_one(rng, int(rng.integers(1, 4))), bool(seed % 2)
    row = rng.integers(0, int(capacity_bytes(banks.channel_memory)) - 4096, (1, 2))
    banks = banks._replace(rows=lambda: {"to x" if stored else "x": ("rows of a byte", row)})
    given_program = program(CoreMesh(1, 2), int(rng.integers(1, 4097)), 1, store=stored)
    _, left = played(monkeypatch, given_program, banks)
    for bursts, used in zip(addresses(given_program, banks), left.asked.place.reshape(2, -1, 3), strict=True):
        _, at = hbm.map_addresses(banks.channel_memory, bursts)
        assert used[::-1][: len(bursts)].tolist() == at.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_what_cores_load_or_store_is_theirs_and_all_of_it_is_moved(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    banks, stored, times = behind_one(rng, int(rng.integers(1, 4))), bool(seed % 2), int(rng.integers(1, 5))
    given_program = program(CoreMesh(2, 2), int(rng.integers(1, 200)) * 64, times, store=stored)
    _, left = played(monkeypatch, given_program, banks)
    state = left.channels.state.reshape(2, -1)
    for bursts, counts in zip(addresses(given_program, banks), state, strict=True):
        assert len(bursts) * int(banks.memory.access) == 2 * times * given_program.slots[0].shape[0]
        assert len(np.unique(bursts)) == len(bursts)
        number, _ = hbm.map_addresses(banks.channel_memory, bursts)
        assert counts["writes" if stored else "reads"].tolist() == np.bincount(number, minlength=banks.pseudo).tolist()
        assert not counts["reads" if stored else "writes"].any()


@pytest.mark.parametrize("seed", range(4))
def test_one_stream_takes_what_the_memory_takes_by_itself(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile that asks for blocks ahead against the same addresses offered to the memory at once."""
    rng = np.random.default_rng(seed)
    banks = behind_one(rng, 1)
    given_program = program(CoreMesh(1, 1), 1 << 14, 40, depth=8)
    seconds, left = played(monkeypatch, given_program, banks)
    alone = hbm.simulate_memory(banks.channel_memory, addresses(given_program, banks)[0], int(banks.memory.access), False)
    assert seconds == pytest.approx(alone.seconds + LATENCY, rel=0.04)
    assert int(left.channels.state["activates"].sum()) == pytest.approx(
        (1 - alone.row_hits) * len(addresses(given_program, banks)[0]), rel=0.05, abs=4
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_burst_that_meets_nobody_differs_between_readers_by_what_its_banks_take(seed: int) -> None:
    """Against a rate: the memory by itself takes rows, bank groups and turns beside it, as offered the same requests."""
    rng = np.random.default_rng(seed)
    banks = behind_one(rng, int(rng.integers(1, 4)))
    at = mesh_channels("south", 1, 1, 1, LATENCY, banks.bandwidth)
    given_program = program(CoreMesh(1, 1), int(rng.integers(1, 4097)), 1)
    by_events, by_cycles = (
        play(given_program, ON, memory=at, banks=banks).seconds for play in (events.simulate_events, cycles.simulate_cycles)
    )
    bursts, access = addresses(given_program, banks)[0], int(banks.memory.access)
    path = float(banks.memory.controller.path)
    alone = (
        hbm.simulate_memory(banks.channel_memory, bursts, access, False).seconds
        + path
        - float(hbm.first_data_seconds(banks.channel_memory)[0])
    )
    rounded = 2 * ON.cycle + 2 / float(banks.memory.clock)
    assert by_cycles - by_events == pytest.approx(alone - given_program.slots[0].shape[0] / banks.bandwidth, abs=rounded)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_ends_in_its_bank_and_its_slot_is_free_when_the_controller_answers(seed: int) -> None:
    """One burst of a core, after its last word has come, as the memory takes it by itself; then a product of the slot again."""
    rng = np.random.default_rng(seed)
    banks, rows = behind_one(rng, int(rng.integers(1, 4))), int(rng.integers(1, 5))
    banks = banks._replace(memory=replace_leaves(banks.memory, {"refresh": "all"}))  # the first one is after all of this
    at, free = (mesh_channels("south", 1, rows, 1, LATENCY * word, banks.bandwidth / word) for word in (1.0, 1e-9))
    slots, access = (Buffer("x", (int(rng.integers(1, 4097)),), "int8", 1),), int(banks.memory.access)
    turn = Round(
        (
            VectorInstruction("add", ("x", "x"), "x"),
            StoreInstruction("x", "x", CoreIndex(np.zeros(1), np.zeros(1)), np.zeros(1, int)),
        )
    )
    once, twice = (Program(rows, 1, slots, ((Loop((turn,), times),),)) for times in (1, 2))
    seconds = cycles.simulate_cycles(once, ON, memory=free).seconds
    work, again = (
        float(cycles.simulate_cycles(program, ON, memory=at, banks=banks).ready["x"][0, 0]) for program in (once, twice)
    )
    bursts = np.arange(-(-slots[0].shape[0] // access)) * access
    alone, rounded = (
        hbm.simulate_memory(banks.channel_memory, bursts, access, True),
        2 * ON.cycle + 2 / float(banks.memory.clock),
    )
    answered = float(alone.end_response.max()) + ON.ramp + (rows - 1) * ON.hop
    assert cycles.simulate_cycles(once, ON, memory=at, banks=banks).seconds == pytest.approx(
        seconds + max(alone.seconds, answered), abs=rounded
    )
    assert again == pytest.approx(seconds + answered + work, abs=rounded)
    paced = [cycles.simulate_cycles(once, ON, memory=at._replace(latency=word)).seconds for word in (0.0, LATENCY)]
    assert paced[0] == paced[1]  # of a read


@pytest.mark.parametrize("seed", range(3))
def test_a_lone_store_crosses_as_many_links_as_events_have(seed: int) -> None:
    """A memory channel is at its router: no way between a core and its router is at that end."""
    rng = np.random.default_rng(seed)
    rows, nbytes = int(rng.integers(1, 5)), int(rng.integers(1, 4097))
    at = mesh_channels("south", 1, rows, 1, LATENCY, 64e9)
    step = StoreInstruction("x", "x", CoreIndex(np.zeros(1), np.zeros(1)), np.zeros(1, int))
    program = Program(rows, 1, (Buffer("x", (nbytes,), "int8", 1),), ((Loop((Round((step,)),), 1),),))
    by_events, by_cycles = (play(program, ON, memory=at).seconds for play in (events.simulate_events, cycles.simulate_cycles))
    assert 0 <= by_cycles - by_events <= 2.01 * ON.cycle  # a router's stages before its link


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_rows_are_those_that_tiles_get_as_data(data: Any) -> None:
    """Where blocks begin against the blocks of keys and values that the numeric reader gives to each tile."""

    def pick(*values: int) -> int:
        return int(data.draw(st.sampled_from(values)))

    dataflow = ATTENTION[data.draw(st.sampled_from(sorted(ATTENTION)))]
    side = pick(1, 2) if dataflow.grouped else 1
    shape = AttentionShape(pick(1, 2), pick(2, 4), pick(1, 2), pick(4, 8), pick(8, 12, 16), 4, 4)
    tiling, mesh = AttentionTiling(side, side, pick(2, 4), pick(2, 4)), CoreMesh(2, 4)
    rng = np.random.default_rng(pick(*range(9)))
    k, v = (rng.random((shape.batch, shape.kv_heads, shape.keys, 4)) + 1 for _ in range(2))
    operands = scatter_qkv(np.zeros((shape.batch, shape.heads, shape.queries, 4)), k, v, dataflow, shape, tiling, mesh)
    tensors = {"keys": k.reshape(-1, 4), "values": v.reshape(-1, 4)}
    begins = block_rows(dataflow, shape, tiling, mesh)
    assert {name for name, _ in begins.values()} == {"keys", "values"}
    for stream, (tensor, row) in begins.items():
        blocks = operands[stream].reshape(*row.shape, *operands[stream].shape[-2:])
        real = blocks[..., 0, 0] > 0
        assert (blocks[..., 0, :][real] == tensors[tensor][row[real]]).all()


@pytest.mark.parametrize(("dim", "least"), [(64, 1.3), (128, 1.01)])
def test_interleaving_costs_what_blocks_and_tiles_make_of_it(dim: int, least: float) -> None:
    """Keys of 32 tiles a channel: blocks that lie in one bank group each wait for it."""
    latencies = []
    for order in ("row_bank_column_group", "row_group_bank_column"):
        question = asked(
            "chip=tile32", "chip.mesh.cols=1", "chip.hbm.channels=1", f"chip.hbm.banks.order={order}", "workload=attention",
            "workload.batch=2", "workload.heads=2", "workload.keys=[512]", f"workload.qk={dim}", "mapping.dataflow=flash2",
            "mapping.queries=128", "mapping.keys=128",
        )  # fmt: skip
        outcome = evaluate(stack_designs([question.base]), question.workload, fidelity="cycles")
        latencies.append(float(outcome.columns["latency"][0]))
    assert latencies[1] > least * latencies[0]
