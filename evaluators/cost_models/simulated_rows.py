"""Simulated cost of row kernels on a mesh of tiles, by events or cycles; equal jobs run once."""

from functools import lru_cache

from dse.evaluators.cost_models import simulators as players
from dse.evaluators.cost_models.analytical_rows import TIME_PARTS, RowJob
from dse.evaluators.cost_models.simulated_job import JobSimulator, ProgramSimulator, remove_instructions
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.kernels.vector.row_kernels import RowBlock, build_program
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import channels_used, near_memory
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.simulated_channels import simulated_memory
from dse.evaluators.program.kernel_ir import DTYPES, LoadInstruction, StoreInstruction
from dse.space.noc_router import parse_faults


@lru_cache(maxsize=1024)
def _played(job: RowJob, left: int, play: ProgramSimulator) -> SimulationResult:
    """With the last parts only, `left` of them: with or without loads and stores."""
    rows, block, mesh = (
        int(job.rows),
        RowBlock(*map(int, job.block)),
        CoreMesh(int(job.chip.mesh.rows), int(job.chip.mesh.cols)),
    )
    program = build_program(job.recipe, rows, block, mesh, DTYPES[job.itemsize], channels=int(channels_used(job.chip)))
    chip = near_memory(job.chip, program.rows)
    if left < len(TIME_PARTS):
        program = remove_instructions(program, lambda step: isinstance(step, LoadInstruction | StoreInstruction))
    return play(program, tile_fabric(chip), engines=tile_engines(chip), **simulated_memory(chip), faults=parse_faults(chip))


EVENTS, CYCLES = (
    JobSimulator(TIME_PARTS, _played, play) for play in (players.run_event_simulator, players.run_cycle_simulator)
)
