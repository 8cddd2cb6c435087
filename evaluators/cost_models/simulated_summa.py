"""Simulated cost of products from memory on a mesh of tiles, by events or cycles; equal jobs run once."""

from functools import lru_cache

from dse.evaluators.cost_models import simulators as players
from dse.evaluators.cost_models.analytical_summa import TIME_PARTS, SummaJob, has_dequantize
from dse.evaluators.cost_models.simulated_job import JobSimulator, ProgramSimulator, remove_instructions
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling, build_program
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.compute_engines import tile_engines
from dse.evaluators.machine.memory_channels import channels_used, near_memory
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.simulated_channels import simulated_memory
from dse.evaluators.program.kernel_ir import DTYPES, Instruction, MultiplyInstruction, VectorInstruction
from dse.space.noc_router import parse_faults


class SummaSimulator(JobSimulator):
    """Simulator of SUMMA jobs at one fidelity."""

    def time_by_resource(self, job: SummaJob) -> dict[str, float]:
        """Time of a SUMMA job by resource, with vectors if it has any. [s]"""
        resources = JobSimulator.time_by_resource(self, job)
        return resources if has_dequantize(job) else {name: seconds for name, seconds in resources.items() if name != "vector"}


def _parts(job: SummaJob, left: int, play: ProgramSimulator) -> SimulationResult:
    """With the last parts only, `left` of them; what has no vectors is the same with them and without."""
    return _played(job, left if has_dequantize(job) or left > TIME_PARTS[::-1].index("vector") + 1 else 1, play)


@lru_cache(maxsize=1024)
def _played(job: SummaJob, left: int, play: ProgramSimulator) -> SimulationResult:
    gone, dtype, copies = TIME_PARTS[: len(TIME_PARTS) - left], DTYPES[job.itemsize], int(job.copies)
    shape, part = GemmShape(int(job.shape.m), int(job.shape.k), int(job.shape.n)), SummaTiling(*map(int, job.part))
    mesh, channels = CoreMesh(int(job.mesh.rows), int(job.mesh.cols)), int(channels_used(job.chip))
    program = build_program(shape, part, mesh, dtype, channels=channels, copies=copies, weights=job.weights)
    chip = near_memory(job.chip, program.rows)
    program = remove_instructions(program, lambda step: _part(step) in gone)
    return play(program, tile_fabric(chip), engines=tile_engines(chip), **simulated_memory(chip), faults=parse_faults(chip))


def _part(step: Instruction) -> str:
    if isinstance(step, MultiplyInstruction | VectorInstruction):
        return "matrix" if isinstance(step, MultiplyInstruction) else "vector"
    return "multicast" if type(step).__name__ == "MulticastInstruction" else "hbm"


EVENTS, CYCLES = (
    SummaSimulator(TIME_PARTS, _parts, play) for play in (players.run_event_simulator, players.run_cycle_simulator)
)
