"""Simulated cost of block loops on a mesh of tiles, by events or cycles; equal jobs run once."""

from dataclasses import replace
from functools import lru_cache

from dse.evaluators.cost_models import simulators as players
from dse.evaluators.cost_models.analytical_block_loop import TIME_PARTS, BlockLoopJob, blocks_per_wave
from dse.evaluators.cost_models.simulated_job import JobSimulator, ProgramSimulator, remove_instructions
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector.block_loop_kernels import build_program
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import channels_used, near_memory
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.simulated_channels import simulated_memory
from dse.evaluators.program.kernel_ir import LoadInstruction, StoreInstruction, VectorInstruction
from dse.space.noc_router import parse_faults


@lru_cache(maxsize=1024)
def _played(job: BlockLoopJob, left: int, play: ProgramSimulator) -> SimulationResult:
    """With the last parts only, `left` of them: without loads and stores, and without vector instructions."""
    slots = tuple(slot._replace(shape=tuple(map(int, slot.shape))) for slot in job.walk.slots)
    mesh, walk = CoreMesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols)), replace(job.walk, slots=slots)
    program = build_program(walk, int(job.items), blocks_per_wave(job), mesh, channels=int(channels_used(job.chip)))
    chip = near_memory(job.chip, program.rows)
    if left < len(TIME_PARTS):
        gone = (
            (LoadInstruction, StoreInstruction)
            if left == len(TIME_PARTS) - 1
            else (LoadInstruction, StoreInstruction, VectorInstruction)
        )
        program = remove_instructions(program, lambda step: isinstance(step, gone))
    return play(program, tile_fabric(chip), engines=tile_engines(chip), **simulated_memory(chip), faults=parse_faults(chip))


EVENTS, CYCLES = (
    JobSimulator(TIME_PARTS, _played, play) for play in (players.run_event_simulator, players.run_cycle_simulator)
)
