"""How fast kernels on a mesh of cores are: closed forms, played, computed."""

import subprocess
import sys
from typing import Any

import numpy as np

from dse.evaluators import evaluate
from dse.evaluators.accounting.forward_passes import pass_through_regions
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.registry import kernel_module
from dse.evaluators.layouts import regions
from dse.evaluators.machine.machine import mesh_program_machine
from dse.evaluators.machine.mesh_fabric import MeshFabric, mesh_fabric, with_vector_reduction
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from dse.testing.functional_simulator import run_program as compute
from tests.samples import asked
from tests.speed.clock import cpu

DESIGNS = 10_000

ONE = StepCounts("decode", 1.0, 1.0, 4096.0, 4096.0)
"""A token of a request."""


def wafer() -> Any:
    """The shipped wafer with LLaMA3-8B at a context of 4096."""
    return asked("chip=wse2", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=4096", "workload.output=1")


def closed_forms() -> list[tuple[str, str, str]]:
    """Of single kernels, the slowest and the fastest, and of a decode step, all over designs of random meshes."""
    rng = np.random.default_rng(0)
    rows = np.ceil(rng.random(DESIGNS) * 640) + 100
    size, mesh = np.ceil(rng.random(DESIGNS) * 8192), CoreMesh(rows, rows)
    asked_for = wafer()
    fabric = mesh_fabric(asked_for.base.chip)
    rates = {}
    for kinds, shape in ((GEMM, GemmShape(size, size, size)), (GEMV, GemmShape(1.0, size, size))):
        for name, kernel in kinds.items():

            def price_once(kernel: Any = kernel, shape: GemmShape = shape) -> Any:
                return kernel.cost(shape, mesh, fabric)

            if name != "meshgemm_v":  # which takes another kernel's name
                price_once()
                rates[name] = DESIGNS / cpu(price_once, 5)
    base = f"{DESIGNS / cpu(lambda: [np.maximum(size * 2.0, rows * 3.0) for _ in range(50)], 5) * 50:,.0f} rooflines/s"
    lines = []
    for name in (min(rates, key=lambda name: rates[name]), max(rates, key=lambda name: rates[name])):
        lines.append((f"closed form of a kernel on a mesh, {name}", f"{rates[name]:,.0f} kernels/s", base))
    design = replace_leaves(asked_for.base, {"mapping.decode.rows": rows})
    model = asked_for.workload.cases[0].model

    def step() -> Any:
        plan, chip = design.mapping.decode, design.chip
        place = regions.make_region(plan, chip.mesh.rows, chip.mesh.cols, model.layers)
        blocks = regions.region_blocks(model, ONE, place, design.mapping, 1.0)
        return pass_through_regions(
            blocks, model, place, design.mapping.simulated_layers, mesh_program_machine(chip), READERS["analytical"]
        )

    step()
    return [*lines, ("closed form of a decode step, LLaMA3-8B on a wafer", f"{DESIGNS / cpu(step, 5):,.0f} designs/s", base)]


def whole_model() -> tuple[str, str, str]:
    """All kernels of a model on a wafer once, prompts and decode: designs of one process have them in common."""
    words = ("workload.batch=[1]", "workload.prompt=2048", "workload.output=8")
    question = asked("chip=wse2", "model=llama3_8b", *words)
    seconds = cpu(lambda: evaluate(stack_designs([question.base]), question.workload, fidelity="events"))
    return (
        "events: LLaMA-3-8B whole, 2,048 + 8 tokens on a WSE-2",
        f"{seconds:.1f} s CPU",
        "its breakdown takes twice as long more",
    )


def played() -> list[tuple[str, str, str]]:
    """The events reader; its baseline plays the same rounds one by one."""
    design = wafer().base
    fabric = mesh_fabric(design.chip)
    lines = []
    for what, program in (
        (
            "MeshGEMM 2048^3 on 180x180",
            GEMM["meshgemm"].build_program(GemmShape(2048, 2048, 2048), CoreMesh(180, 180), "float16"),
        ),
        (
            "GEMV 16K, 2-tree, on 660x660",
            GEMV["ktree"].build_program(GemmShape(1, 16384, 16384), CoreMesh(660, 660), "float16"),
        ),
    ):
        simulate_events(program, fabric)
        seconds = cpu(lambda program=program: simulate_events(program, fabric), 3)  # type: ignore[misc]
        all_rounds = cpu(lambda program=program: simulate_events(program, fabric, jump=False))  # type: ignore[misc]
        lines.append((f"events: {what}", f"{seconds:.2f} s CPU", f"{all_rounds:.2f} s without jumps"))
    seconds, memory = (float(x) for x in subprocess.run(
        [sys.executable, "-m", "tests.speed.mesh"], capture_output=True, text=True, check=True).stdout.split())  # fmt: skip
    lines.append(("events: MeshGEMM 8192^3 on 720x720", f"{seconds:.2f} s CPU", f"{memory:,.0f} MB peak"))
    lines.append(whole_model())
    tiles = asked("chip=tile32", "workload=collective").base.chip
    for name in TEAMS:
        row = TEAMS[name].build_program(
            GemmShape(2**19, 1, 1), CoreMesh(32, 32), "float16", pattern="multicast", rows=32, cols=32
        )
        network = with_vector_reduction(tiles)
        simulate_events(row, network)
        seconds = cpu(lambda row=row, network=network: simulate_events(row, network), 10)  # type: ignore[misc]
        lines.append((f"events: row multicast of 1 MiB on 32x32 tiles, {name}", f"{1e3 * seconds:.2f} ms CPU", ""))
    layer = decode_layer(fabric)

    def once() -> None:
        for program in layer:
            simulate_events(program, fabric)

    once()
    seconds = cpu(once, 3)
    lines.append(("events: a decode layer of LLaMA3-8B on 660x660", f"{seconds:.2f} s CPU", f"{len(layer)} kernels"))
    return lines


def largest(fabric: MeshFabric) -> tuple[float, float]:
    """Seconds of an 8K GEMM on 720x720 cores, and the peak memory of this process. [MB]"""
    import resource

    simulate_events(GEMM["meshgemm"].build_program(GemmShape(64, 64, 64), CoreMesh(8, 8), "float16"), fabric)
    seconds = cpu(
        lambda: simulate_events(
            GEMM["meshgemm"].build_program(GemmShape(8192, 8192, 8192), CoreMesh(720, 720), "float16"), fabric
        )
    )
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decode_layer(fabric: MeshFabric) -> list[Any]:
    """The programs of one layer, every kernel of it."""
    asked_for = wafer()
    mapping = asked_for.base.mapping
    place = regions.Region(CoreMesh(660, 660), 1, 1, all_layers=1, chips=1, chip_layers=1)
    blocks = regions.region_blocks(asked_for.workload.cases[0].model, ONE, place, mapping, 1.0)
    programs = []
    for kernel in (call.kernel for block in blocks for call in block.calls):
        if kernel is not None and kernel.part in ("attention", "ffn"):
            whole = GemmShape(*(int(np.ceil(size)) for size in (kernel.shape.m, kernel.shape.k, kernel.shape.n)))
            mesh = CoreMesh(int(kernel.mesh.rows), int(kernel.mesh.cols))
            programs.append(
                kernel_module(kernel.kind, kernel.algorithm).build_program(whole, mesh, "float16", **kernel.options)
            )
    return programs


def computed() -> list[tuple[str, str, str]]:
    """The numeric reader."""
    shape, mesh = GemmShape(1024, 1024, 1024), CoreMesh(16, 16)
    a = np.random.default_rng(0).normal(size=(1024, 1024)).astype("float32")
    kernel = GEMM["meshgemm"]
    tiles, program = kernel.scatter_operands(shape, mesh, a, a), kernel.build_program(shape, mesh, "float16")
    seconds, plain = cpu(lambda: compute(program, tiles)), cpu(lambda: a @ a)
    return [("numeric: MeshGEMM 1024^3 on 16x16", f"{seconds:.2f} s CPU", f"{plain:.2f} s numpy.matmul")]


if __name__ == "__main__":
    print(*largest(mesh_fabric(wafer().base.chip)))
