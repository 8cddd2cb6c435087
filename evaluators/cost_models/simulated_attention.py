"""Simulated cost of attention on a mesh of tiles, by events or cycles; equal jobs run once."""

from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from dse.evaluators.cost_models import simulators as players
from dse.evaluators.cost_models.analytical_attention import AttentionJob, job_machine
from dse.evaluators.cost_models.simulated_job import JobSimulator, ProgramSimulator, remove_instructions
from dse.evaluators.cost_models.simulation_timing import SimulationResult, add_results
from dse.evaluators.kernels.attention import split_kv_merge as merge
from dse.evaluators.kernels.attention.attention_cost import TIME_PARTS
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, block_counts
from dse.evaluators.kernels.attention.dataflow import attention_program
from dse.evaluators.kernels.attention.operand_blocks import block_rows
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.machine.memory_channels import channels_used, near_memory
from dse.evaluators.machine.simulated_channels import simulated_memory
from dse.evaluators.program.kernel_ir import (
    DTYPES,
    Instruction,
    LoadInstruction,
    MultiplyInstruction,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
)
from dse.space.chip import Chip
from dse.space.main_memory import main_memory
from dse.space.noc_router import parse_faults

T = TypeVar("T", AttentionShape, AttentionTiling)

OPERANDS = ("q", "c", "k", "v")


class AttentionSimulator(JobSimulator):
    """Simulator of attention jobs at one fidelity."""

    def communication_seconds(self, job: AttentionJob, seconds: float) -> float:
        """Time saved if tiles exchanged data in no time. [s]"""
        return seconds - self.played(job, len(TIME_PARTS) - TIME_PARTS.index("hbm"), self.play).seconds


@lru_cache(maxsize=4096)
def _played(job: AttentionJob, left: int, play: ProgramSimulator) -> SimulationResult:
    """With the last parts only, `left` of them."""
    chip = job.chip
    fabric, engines = job_machine(chip, job.of)
    mesh = CoreMesh(int(chip.mesh.rows), int(chip.mesh.cols))
    dtype, channels = DTYPES[job.itemsize], int(channels_used(chip))
    shape, tiling = _whole(job.shape), _whole(job.tiling)
    settings: dict[str, Any] = {
        "channels": channels,
        "pace": simulate_random_slowdown(chip, float(job.shape.piece)),
        "kv": job.kv,
    }
    programs = [attention_program(job.of, shape, tiling, mesh, dtype, **settings)]
    if block_counts(shape, tiling, mesh).parts > 1:
        programs.append(merge.merge_program(merge.plan_merge(shape, tiling, mesh), mesh, dtype, channels=channels))
    if left < len(TIME_PARTS):
        fabric = fabric._replace(stage=0.0)
    gone = TIME_PARTS[1 : len(TIME_PARTS) - left]
    if gone:
        programs = [remove_instructions(program, lambda step: _part(step) in gone) for program in programs]
    timings: list[SimulationResult] = []
    for program in programs:
        part = near_memory(chip, program.rows)
        hardware: dict[str, Any] = {"engines": engines, "faults": parse_faults(part), **simulated_memory(part)}
        if hardware["banks"] and not timings:
            hardware["banks"] = hardware["banks"]._replace(rows=partial(block_rows, job.of, shape, tiling, mesh))
        timings.append(play(program, fabric, **hardware))
    return add_results(timings)


def simulate_random_slowdown(chip: Chip, piece: float) -> float:
    """Time of random accesses of `piece` bytes over that of one long block, simulated. [-]"""
    banks = main_memory(chip).banks
    if not piece or banks is None:
        return 1.0
    from dse.evaluators.machine.memory_system import random_access_slowdown  # which compiles, or loads what was

    return random_access_slowdown(banks, piece)


def _whole(sizes: T) -> T:
    """With whole numbers where they are counts."""
    changes: dict[str, Any] = {
        spec.name: int(getattr(sizes, spec.name)) for spec in fields(sizes) if spec.type != "bool" and spec.type is not bool
    }
    return replace(sizes, **changes)


def _part(step: Instruction) -> str:
    """What a step is, an option of `TIME_PARTS`; nothing for what only gives a tile another name."""
    if isinstance(step, MultiplyInstruction | VectorInstruction):
        return "matrix" if isinstance(step, MultiplyInstruction) else "vector"
    if isinstance(step, LoadInstruction | StoreInstruction):
        return "hbm"
    if isinstance(step, SendInstruction) and step.source is step.target:
        return ""
    return "multicast" if step.slot.split(".")[-1] in OPERANDS else "reduction"


EVENTS, CYCLES = (
    AttentionSimulator(TIME_PARTS, _played, play) for play in (players.run_event_simulator, players.run_cycle_simulator)
)
