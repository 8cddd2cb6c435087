"""What a tile's memories hold and what their use costs, on random sizes: identities of room, latency and energy."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.residency import core_residency
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.evaluators.silicon.energy import sram_energy_per_byte as of_a_memory
from dse.evaluators.silicon.supply_voltage import nominal_clock
from dse.space.mapping import PARTITIONS
from tests.samples import asked

OF = asked("chip=npu64", "model=qwen3_4b")
CHIP, MAPPING, MODEL = OF.base.chip, OF.base.mapping, OF.workload.cases[0].model
PARTS = transformer_segments(MODEL, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))


@given(
    st.sampled_from(PARTITIONS), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 4, 9]), st.integers(1, 2000),
    st.integers(1, 10**6), st.floats(1e6, 1e9), st.floats(0, 1),
)  # fmt: skip
def test_a_tile_s_memory_is_shared_and_full_before_anything_is_away(
    partition: str, tp: int, pp: int, tokens: int, cached: int, sram: float, share: float
) -> None:
    plan = replace(MAPPING.decode, partition=partition, tp=tp, pp=pp)
    mapping = replace(MAPPING, sram_kv_share=share)
    held = core_residency(PARTS, MODEL, plan, mapping, sram, tokens=float(tokens), cached=float(cached))
    assert held.sram <= max(sram, held.activations) * (1 + 1e-9)
    wanted = held.activations + held.kv + held.weights
    assert held.sram == pytest.approx(max(min(sram, wanted), held.activations))
    assert held.sram + held.hbm == pytest.approx(wanted)


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(0, 1e-6))
def test_a_read_in_two_parts_waits_for_the_first_word_twice(first: float, second: float, latency: float) -> None:
    memory = tile_core_machine(replace(CHIP, hbm=replace(CHIP.hbm, latency=latency))).memory
    assert memory is not None
    (first_read, byte), (other, _), (both, _) = (
        memory.read(MemoryRequest(nbytes, 4096.0)) for nbytes in (first, second, first + second)
    )
    assert first_read + other == pytest.approx(both + latency)
    assert memory.read(MemoryRequest(first + 1, 4096.0))[0] == pytest.approx(first_read + byte)
    assert memory.read(MemoryRequest(0.0, 4096.0))[0] == 0


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e-9))
def test_a_byte_that_moves_is_read_at_one_end_and_written_at_the_other(sent: float, loaded: float, access: float) -> None:
    """Of what comes from main memory one end is that."""
    free = dict.fromkeys(("mac", "element", "hop", "shared"), 0.0)
    chip = replace(
        CHIP,
        technology=replace(CHIP.technology, access=access, **free),
        dram=replace(CHIP.dram, energy_per_byte=0.0),
        clock=nominal_clock(CHIP),
    )
    byte = of_a_memory(access, CHIP.tile.sram)
    assert dynamic_energy(Activity(sent_bytes=sent, memory_bytes=loaded), chip) == pytest.approx(byte * (2 * sent + loaded))
