"""Programs of single kernels, with the machine on which simulators run them."""

from typing import Any

from dse.evaluators.accounting.kernel_workloads.mesh_product import product_machine
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models import fastest_algorithm as rivals
from dse.evaluators.cost_models.jobs import find_job_simulator
from dse.evaluators.cost_models.program_trace import NO_RESULT, ProgramRun
from dse.evaluators.cost_models.simulated_kernels import build_kernel_program
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.machine.machine import HardwareModel, tile_network_machine
from dse.evaluators.program.kernel_ir import Program
from dse.evaluators.workloads.kernels import kernel_workload
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.software import ATTENTION, COLLECTIVE, PRODUCT, SUMMA, software_of
from dse.space.workload import WorkloadCase

PROGRAM_SOFTWARE = (PRODUCT, SUMMA, COLLECTIVE, ATTENTION)
"""Software whose cases are programs of a mesh of cores."""


def case_programs(design: Design, case: WorkloadCase) -> tuple[ProgramRun, ...]:
    """Programs of one case of one design, in the order in which they run.

    Raises:
        DesignError: the case is no kernel on a mesh of cores.
    """
    software = software_of(design.mapping)
    if software not in PROGRAM_SOFTWARE:
        raise DesignError(
            f"mapping: {software!r} has no programs of a mesh of cores; "
            "use a kernel on a mesh, as chip=wse2 workload=gemm or chip=tile32 workload=attention"
        )
    prepared = kernel_workload(design).prepare_case(design, (case,))
    if software == PRODUCT:
        return (_kernel_run(prepared, product_machine(design)),)
    if software == COLLECTIVE:
        return (_kernel_run(prepared[0], tile_network_machine(design.chip)),)
    return _job_runs(prepared, "attention" if software == ATTENTION else "summa")


def _kernel_run(kernel: MeshKernel, machine: HardwareModel) -> ProgramRun:
    """Program of a kernel; one with candidates has the algorithm that the analytical model chooses."""
    (kernel,) = rivals.kernels_by_choice(kernel, machine, closed.kernel_cost)
    assert machine.fabric is not None
    assert machine.engines is None or isinstance(machine.engines, TileEngines)
    name = f"{kernel.kind}_{kernel.algorithm}"
    return ProgramRun(name, build_kernel_program(kernel), machine.fabric, machine.engines, faults=kernel.faults)


def _job_runs(job: Any, name: str) -> tuple[ProgramRun, ...]:
    """Programs of a job, collected from its simulator."""
    runs: list[ProgramRun] = []

    def collect(program: Program, fabric: Any, **hardware: Any) -> SimulationResult:
        runs.append(ProgramRun(name if not runs else f"{name}_{len(runs)}", program, fabric, **hardware))
        return NO_RESULT

    job = getattr(job, "job", job)
    simulator = find_job_simulator("cycles", job)
    simulator.played(job, len(simulator.parts), collect)
    return tuple(runs)
