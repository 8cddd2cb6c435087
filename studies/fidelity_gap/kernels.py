"""Every registered kernel on a sub-mesh of a chip that has it, as a program with the machine that it is played on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dse.build import question
from dse.compose import compose
from evaluators import cycles, events
from evaluators.closed_attention import Job, machine
from evaluators.closed_mesh import fabric
from evaluators.kernels.attention import ATTENTION
from evaluators.kernels.attention.dataflow import steps as attention
from evaluators.kernels.attention.shape import Heads, Tiling
from evaluators.kernels.collective import EXCHANGES, TEAMS
from evaluators.kernels.gemm import GEMM
from evaluators.kernels.gemm.tiling import Mesh, Shape
from evaluators.kernels.gemv import GEMV
from evaluators.kernels.kv import KV
from evaluators.kernels.move import MOVE
from evaluators.kernels.partition import PARTITION
from evaluators.kernels.vector import VECTOR
from evaluators.machine.channels import Channels, channels_used, chip_channels
from evaluators.machine.engine import Engines, engines
from evaluators.machine.fabric import Fabric, summing, tile_fabric
from evaluators.rounds import Program
from space.mapping import PLACEMENTS
from space.workload import ALONG, PATTERNS
from space.workload import EXCHANGES as EXCHANGED

MESH = Mesh(8, 8)


class Played(NamedTuple):
    """A kernel as a program, and its machine."""

    family: str
    name: str
    chip: str
    program: Program
    fabric: Fabric
    engines: Engines | None = None
    memory: Channels | None = None

    @property
    def seconds(self) -> tuple[float, float]:
        """By events, and by cycles."""
        on = {"engines": self.engines, "memory": self.memory}
        return events.play(self.program, self.fabric, **on).seconds, cycles.play(self.program, self.fabric, **on).seconds


def kernels() -> Iterator[Played]:
    """All of them; products on a wafer's cores and on NPU cores, collectives and attention on tiles."""
    yield from on_cores()
    yield from divided()
    yield from on_tiles()
    yield from dataflows()


def on_cores() -> Iterator[Played]:
    """Kernels of a wafer's cores, tiles of 16 x 16 values."""
    on = fabric(_chip("wse2", "workload=gemm"))
    square = Shape(128, 128, 128)
    for name, of in GEMM.items():
        yield Played("gemm", name, "wse2", of.steps(square, MESH, "float16"), on)
    for name, of in GEMV.items():
        yield Played("gemv", name, "wse2", of.steps(Shape(1, 256, 256), MESH, "float16"), on)
    for name, of in KV.items():
        yield Played("kv", name, "wse2", of.steps(Shape(1, 256, 1), MESH, "float16"), on)
    options: dict[str, dict[str, Any]] = {"reshuffle": {"into": Mesh(4, 4)}, "elementwise": {"function": "gate"}}
    for name, of in (MOVE | VECTOR).items():
        more = {"allreduce": "ktree"} if name in ("norm", "softmax") else options.get(name, {})
        yield Played("move" if name in MOVE else "vector", name, "wse2", of.steps(square, MESH, "float16", **more), on)


def divided() -> Iterator[Played]:
    """Products divided over 16 NPU cores, whose messages lock their way, or not."""
    chip = _chip("npu64")
    for routing, locked in (("", 1.0), (", wormhole", 0.0)):
        on = tile_fabric(chip)._replace(locked=locked)
        for name, of in PARTITION.items():
            for placement in PLACEMENTS:
                program = of.steps(Shape(256, 1024, 1024), placement, 16, "float16")
                yield Played("partition", f"{name}, {placement}{routing}", "npu64", program, on, engines(chip))


def on_tiles() -> Iterator[Played]:
    """Collectives of 8 KiB a tile."""
    on, shape = summing(_chip("tile32", "workload=collective")), Shape(4096, 1, 1)
    for name, of in TEAMS.items():
        for pattern in PATTERNS:
            for along in ALONG:
                program = of.steps(shape, MESH, "float16", pattern=pattern, along=along, rows=8, cols=8, root=0)
                yield Played("collective", f"{name}, {along} {pattern}", "tile32", program, on)
    for name in ("rings", "direct"):
        for pattern in EXCHANGED:
            program = EXCHANGES[name].steps(Shape(512, 1, 1), MESH, "float16", pattern=pattern)
            yield Played("collective", f"{name}, {pattern}", "tile32", program, on)


def dataflows() -> Iterator[Played]:
    """Attention of four heads over 1,024 tokens by groups of all tiles, and by groups of a quarter of them."""
    chip = _chip("tile32", "workload=attention", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
    shape = Heads(batch=1, heads=4, kv_heads=4, queries=1024, keys=1024, qk=128, v=128)
    for side in (8, 4):
        for name, of in ATTENTION.items():
            if side == 4 and not of.grouped:
                continue
            job = Job(of, shape, Tiling(side if of.grouped else 1, side if of.grouped else 1, 128, 128), chip)
            on, by = machine(chip, of)
            count, hbm = int(channels_used(chip)), chip_channels(chip)
            program = attention(of, job.shape, job.tiling, MESH, channels=count)
            yield Played("attention", f"{name}, groups of {side} x {side}", "tile32", program, on, by, hbm)


def _chip(name: str, *overrides: str) -> Any:
    return question(compose([f"chip={name}", *overrides]), Path()).base.chip
