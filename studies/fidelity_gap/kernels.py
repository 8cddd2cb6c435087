"""All registered kernels with random sizes, as programs with their machines."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.cost_models import cycle_simulator as cycles
from dse.evaluators.cost_models import event_simulator as events
from dse.evaluators.cost_models.analytical_attention import AttentionJob, job_machine
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling
from dse.evaluators.kernels.attention.dataflow import attention_program as attention
from dse.evaluators.kernels.collective import EXCHANGES, TEAMS
from dse.evaluators.kernels.data_movement import MOVE
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.kv import KV
from dse.evaluators.kernels.partition import PARTITION
from dse.evaluators.kernels.vector import VECTOR
from dse.evaluators.machine.compute_engines import TileEngines, tile_engines
from dse.evaluators.machine.memory_channels import MeshChannels, channels_used, near_memory
from dse.evaluators.machine.mesh_fabric import MeshFabric, tile_fabric, with_vector_reduction
from dse.evaluators.machine.mesh_fabric import mesh_fabric as fabric
from dse.evaluators.machine.simulated_channels import simulated_channels
from dse.evaluators.program.kernel_ir import DEQUANTIZE_FUNCTIONS, Loop, Program, Round
from dse.space.mapping import PARTITIONS, PLACEMENTS
from dse.space.workload import DIE_EXCHANGES as EXCHANGED
from dse.space.workload import GROUP_AXES, TILE_PATTERNS

SIDES = (3, 8)
"""Cores on a side of a mesh, at least and at most."""

TILE = 20
"""Values on a side of a core's tile, at most."""

DIVIDED = 512
"""Values on a side of a product that is divided over NPU cores, at most; evenly by their logarithms."""

LINES = ("ktree", "pipeline", "ladder")
"""Ways to sum along a line of cores."""

AGAIN = "again "
"""In front of names of slots of a second program."""

Random = np.random.Generator


class KernelProgram(NamedTuple):
    """A kernel as a program, and its machine; `size` is the text of its sizes."""

    family: str
    name: str
    chip: str
    size: str
    program: Program
    fabric: MeshFabric
    engines: TileEngines | None = None
    memory: MeshChannels | None = None

    @property
    def seconds(self) -> tuple[float, float]:
        """Time of the kernel by events, and by cycles. [s]"""
        hardware = {"engines": self.engines, "memory": self.memory}
        return events.simulate_events(self.program, self.fabric, **hardware).seconds, cycles.simulate_cycles(
            self.program, self.fabric, **hardware
        ).seconds


def kernels(rng: Random, count: int) -> Iterator[KernelProgram]:
    """All kernels with some random sizes each: of wafers, NPUs and tiles."""
    for _ in range(count):
        yield from on_cores(rng)
        yield from divided_products(rng)
        yield from on_tiles(rng)
        yield from side_by_side(rng)
        yield from dataflows(rng)


def on_cores(rng: Random) -> Iterator[KernelProgram]:
    """Kernels of a wafer's cores with random sizes."""
    given_fabric = fabric(preset("wse2", "workload=gemm"))
    for family, registry in (("gemm", GEMM), ("gemv", GEMV), ("kv", KV), ("move", MOVE), ("vector", VECTOR)):
        for name, algorithm in registry.items():
            mesh = _mesh(rng)
            m, k, n = (int(rng.integers(1, TILE * max(mesh.rows, mesh.cols) + 1)) for _ in range(3))
            options: dict[str, Any] = {"into": _mesh(rng, mesh)} if name == "reshuffle" else {}
            options |= {"function": "gate"} if name == "elementwise" else {}
            options |= {"operations": float(rng.choice(list(DEQUANTIZE_FUNCTIONS)))} if name == "expand" else {}
            options |= {"allreduce": str(rng.choice(LINES))} if name in ("norm", "softmax", "choice") else {}
            shape = GemmShape(1 if family in ("gemv", "kv") else m, k, n)
            yield KernelProgram(
                family,
                name,
                "wse2",
                _said(shape, mesh),
                algorithm.build_program(shape, mesh, "float16", **options),
                given_fabric,
            )


def divided_products(rng: Random) -> Iterator[KernelProgram]:
    """Products divided over 2 to 16 NPU cores, with locked routes or wormhole routing."""
    npu = preset("npu64")
    for routing, locked in (("", 1.0), (", wormhole", 0.0)):
        fabric = tile_fabric(npu)._replace(locked=locked)
        for name in PARTITIONS:
            partition = PARTITION[name]
            for placement in PLACEMENTS:
                cores = int(rng.integers(2, 17))
                m, k, n = (int(side) for side in np.exp(rng.uniform(0, np.log(DIVIDED), 3)))
                shape = GemmShape(m, max(k, cores), n)
                program, label = partition.steps(shape, placement, cores, "float16"), f"{name}, {placement}{routing}"
                size = f"{m} x {shape.k} x {n} on {cores} cores"
                yield KernelProgram("partition", label, "npu64", size, program, fabric, tile_engines(npu))


def on_tiles(rng: Random) -> Iterator[KernelProgram]:
    """Collectives on tiles, among all tiles or groups."""
    given_preset = with_vector_reduction(preset("tile32", "workload=collective"))
    for name, team in TEAMS.items():
        for pattern in TILE_PATTERNS:
            yield KernelProgram(
                "collective", f"{name}, {pattern}", "tile32", *_team(team, pattern, _mesh(rng), rng), given_preset
            )
    for name in ("rings", "direct"):
        for pattern in EXCHANGED:
            size, program = _exchange(EXCHANGES[name], pattern, _mesh(rng), rng)
            yield KernelProgram("collective", f"{name}, {pattern}", "tile32", size, program, given_preset)


def side_by_side(rng: Random) -> Iterator[KernelProgram]:
    """An exchange among all tiles at the same time as a software collective, over the same links."""
    given_preset = with_vector_reduction(preset("tile32", "workload=collective"))
    for exchange in EXCHANGED:
        for name in ("tree", "sequential"):
            mesh = _mesh(rng)
            size, program = _exchange(EXCHANGES["direct"], exchange, mesh, rng)
            others, other = _team(TEAMS[name], "allreduce", mesh, rng)
            label = f"direct {exchange} beside {name} allreduce"
            yield KernelProgram(
                "two at once", label, "tile32", f"{size}; {others}", merge_programs(program, other), given_preset
            )


def dataflows(rng: Random) -> Iterator[KernelProgram]:
    """Attention dataflows on groups of tiles with random sizes."""
    for name, dataflow in ATTENTION.items():
        mesh = CoreMesh(*(int(rng.choice((4, 6, 8))) for _ in range(2)))
        chip = preset(
            "tile32", "workload=attention", f"chip.mesh.rows={mesh.rows}", f"chip.mesh.cols={mesh.cols}",
            f"chip.hbm.channels={mesh.cols}",
        )  # fmt: skip
        heads, queries = int(rng.integers(1, 5)), int(rng.integers(1, 1025))
        width = int(rng.choice((64, 128)))
        shape = AttentionShape(
            batch=1, heads=heads, kv_heads=heads, queries=queries, keys=int(rng.integers(queries, 1025)), qk=width, v=width
        )
        rows, cols = (
            int(rng.choice([side for side in (1, 2, 4, 6, 8) if whole % side == 0])) for whole in (mesh.rows, mesh.cols)
        )
        job = AttentionJob(
            dataflow, shape, AttentionTiling(rows if dataflow.grouped else 1, cols if dataflow.grouped else 1, 128, 128), chip
        )
        machine, by = job_machine(chip, dataflow)
        program = attention(dataflow, job.shape, job.tiling, mesh, channels=int(channels_used(chip)))
        size = f"{heads} heads, {queries} x {shape.keys} x {width} on {mesh.rows} x {mesh.cols}, groups of {rows} x {cols}"
        yield KernelProgram(
            "attention", name, "tile32", size, program, machine, by, simulated_channels(near_memory(chip, program.rows))
        )


def merge_programs(program: Program, other: Program) -> Program:
    """Two programs on the same cores at once, each with buffers of its own."""
    slots = tuple(slot._replace(name=AGAIN + slot.name) for slot in other.slots)
    strands = tuple(tuple(_again(part) for part in strand) for strand in other.strands)
    return replace(program, slots=(*program.slots, *slots), strands=(*program.strands, *strands))


def preset(name: str, *overrides: str) -> Any:
    """Chip record of a preset name with overrides."""
    return build_question(compose([f"chip={name}", *overrides]), Path()).base.chip


def _again(part: Round | Loop) -> Round | Loop:
    """A part of a program on the other slots."""
    if isinstance(part, Loop):
        return replace(part, body=tuple(cast(Round, _again(turn)) for turn in part.body))
    return replace(part, steps=tuple(_renamed(step) for step in part.steps))


def _renamed(step: Any) -> Any:
    names = {name: AGAIN + getattr(step, name) for name in ("slot", "into", "a", "b", "out") if getattr(step, name, "")}
    return replace(step, **names)


def _team(team_kind: Any, pattern: str, mesh: CoreMesh, rng: Random) -> tuple[str, Program]:
    """A collective of groups that divide a mesh: its size, and the program."""
    rows, cols = (
        int(rng.choice([side for side in range(2, whole + 1) if whole % side == 0])) for whole in (mesh.rows, mesh.cols)
    )
    values, along = _values(rng), str(rng.choice(GROUP_AXES))
    program = team_kind.build_program(
        GemmShape(values, 1, 1), mesh, "float16", pattern=pattern, along=along, rows=rows, cols=cols, root=0
    )
    return f"{values} values on {mesh.rows} x {mesh.cols}, {along} of {rows} x {cols}", program


def _exchange(exchange: Any, pattern: str, mesh: CoreMesh, rng: Random) -> tuple[str, Program]:
    """An exchange among all of a mesh: its size, and the program."""
    values = _values(rng)
    return f"{values} values on {mesh.rows} x {mesh.cols}", exchange.build_program(
        GemmShape(values, 1, 1), mesh, "float16", pattern=pattern
    )


def _said(shape: GemmShape, mesh: CoreMesh) -> str:
    return f"{shape.m} x {shape.k} x {shape.n} on {mesh.rows} x {mesh.cols}"


def _values(rng: Random) -> int:
    """Of a tile."""
    return int(np.exp(rng.uniform(np.log(16), np.log(4096))))


def _mesh(rng: Random, within: CoreMesh | None = None) -> CoreMesh:
    """A random mesh of a few cores, or one that fits inside another mesh."""
    most = (SIDES[1], SIDES[1]) if within is None else (within.rows, within.cols)
    return CoreMesh(*(int(rng.integers(SIDES[0], side + 1)) for side in most))
