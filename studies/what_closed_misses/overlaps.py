"""Operators that overlap, simulated as one program on 8 x 8 tiles.

Their time is compared with the rule that the longer one hides the other.

Timelines of all fidelities take the larger of two times where a prefetch or an exchange runs beside an operator. Here both
are strands of one program: they share links, memory channels and banks, by events and cycle by cycle.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.cost_models.analytical_attention import AttentionJob, job_machine
from dse.evaluators.cost_models.simulators import PLAYERS
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling
from dse.evaluators.kernels.attention.dataflow import attention_program
from dse.evaluators.kernels.collective import EXCHANGES
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.memory_channels import channels_used, read_ahead_seconds_per_byte
from dse.evaluators.machine.simulated_channels import simulated_memory
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, LoadInstruction, Program, Round
from dse.space.chip import Chip
from dse.studies.fidelity_gap.kernels import merge_programs, preset

SIDE = 8
"""Tiles of a side of the mesh."""

BLOCKS = {"large": 8192, "small": 1024}
"""Values of 2 bytes of a block that is prefetched, by the name of the pieces that messages come in."""

PIECES = {"large": 1, "small": 16}
"""Exchanges one after the other that tokens are divided over, likewise."""

AHEAD = 0.25
"""Share of local memories that a prefetch fills at most."""

CHIP = ("chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")

MACHINES = {
    "links of 128 B": (),
    "links of 32 B": ("chip.noc.word_bytes=32B",),
    "4 channels": ("chip.hbm.channels=4",),
}
"""Variants of the chip, by what differs from the preset."""


class Overlap(NamedTuple):
    """Two operators that run at the same time on one machine.

    Attributes:
        machine: which variant of the chip.
        what: the operators, as text.
        pieces: whether a prefetch or an exchange comes in large pieces or small ones.
        fidelity: events or cycles.
        first, second: time of each by itself. [s]
        together: time of both as one program. [s]
        without_links, without_banks: times of both together over the longer one, with links 256 times as fast, or one rate
            of memory instead of banks. [-]
    """

    machine: str
    what: str
    pieces: str
    fidelity: str
    first: float
    second: float
    together: float
    without_links: float
    without_banks: float

    @property
    def excess(self) -> float:
        """Time of both together over the longer one, less 1: what the rule of the longer one misses."""
        return self.together / max(self.first, self.second) - 1


def simulate_overlaps(fidelities: tuple[str, ...] = ("events", "cycles"), side: int = SIDE) -> Iterator[Overlap]:
    """Every pair of operators on every machine."""
    for machine, words in MACHINES.items():
        chip = preset("tile32", *CHIP, *words, f"chip.mesh.rows={side}", f"chip.mesh.cols={side}")
        for what, pieces, first, second in operator_pairs(chip):
            for fidelity in fidelities:
                yield _simulate((machine, what, pieces, fidelity), chip, first, second)


def operator_pairs(chip: Chip) -> Iterator[tuple[str, str, Program, Program]]:
    """Operators of a layer with what may run beside them, as long by itself as the first leaves time for."""
    for name, program in (("attention of a prompt", _attention(chip)), ("product", _product(chip))):
        seconds = program_seconds(program, chip, "events")
        busy = _loaded_bytes(program) * float(read_ahead_seconds_per_byte(chip))
        room = AHEAD * float(chip.tile.sram * chip.mesh.rows * chip.mesh.cols)
        spare = min(max(seconds - busy, 0.0) / float(read_ahead_seconds_per_byte(chip)), room)
        for pieces in BLOCKS:
            yield f"prefetch beside {name}", pieces, program, _prefetch(chip, spare, BLOCKS[pieces])
            yield f"exchange beside {name}", pieces, program, _exchange(chip, seconds, PIECES[pieces])


def _simulate(kind: tuple[str, str, str, str], chip: Chip, first: Program, second: Program) -> Overlap:
    fidelity = kind[-1]
    both = merge_programs(first, second)
    alone = program_seconds(first, chip, fidelity), program_seconds(second, chip, fidelity)
    ratios = []
    for changes in ({"links": 256.0}, {"banks": False}):
        parts = [program_seconds(program, chip, fidelity, **changes) for program in (first, second, both)]
        ratios.append(parts[2] / max(parts[:2]))
    return Overlap(*kind, *alone, program_seconds(both, chip, fidelity), *ratios)


def program_seconds(program: Program, chip: Chip, fidelity: str, links: float = 1.0, banks: bool = True) -> float:
    """Time of a program on a chip of tiles, with links so many times as wide, with or without banks. [s]"""
    fabric, engines = job_machine(chip, ATTENTION["flat_hw"])
    hardware: dict[str, Any] = simulated_memory(chip)
    if not banks:
        hardware["banks"] = None
    play: Callable[..., Any] = PLAYERS[fidelity]
    return float(play(program, fabric._replace(word_bytes=fabric.word_bytes * links), engines=engines, **hardware).seconds)


def _attention(chip: Chip) -> Program:
    """Attention of 8 heads over a prompt of 512 tokens, by groups of all tiles."""
    shape = AttentionShape(batch=1, heads=8, kv_heads=8, queries=512, keys=512, qk=128, v=128)
    mesh = CoreMesh(int(chip.mesh.rows), int(chip.mesh.cols))
    job = AttentionJob(ATTENTION["flat_hw"], shape, AttentionTiling(mesh.rows, mesh.cols, 64, 64), chip)
    return attention_program(job.of, shape, job.tiling, mesh, "float16", channels=int(channels_used(chip)))


def _product(chip: Chip) -> Program:
    """Product of 512 rows with a matrix of 2048 x 2048, by SUMMA from memory."""
    mesh, channels = CoreMesh(int(chip.mesh.rows), int(chip.mesh.cols)), int(channels_used(chip))
    tiling = SummaTiling(m=64, k=128, n=64, rows=mesh.rows)
    return summa_diagonal.build_program(GemmShape(512, 2048, 2048), tiling, mesh, "float16", channels=channels)


def _prefetch(chip: Chip, nbytes: float, block: int) -> Program:
    """Weights that come into all tiles, block after block, each from the channel of its column."""
    rows, cols, channels = int(chip.mesh.rows), int(chip.mesh.cols), int(channels_used(chip))
    blocks = max(round(nbytes / (2 * block * rows * cols)), 1)
    row, col = np.meshgrid(np.arange(rows), np.arange(cols), indexing="ij")
    load = LoadInstruction("prefetch", "ahead", CoreIndex(row, col), col * channels // cols)
    return Program(rows, cols, (Buffer("ahead", (block,), "float16", 2),), ((Round((load,)),) * blocks,))


def _exchange(chip: Chip, seconds: float, pieces: int) -> Program:
    """An exchange of tokens among all tiles that takes about as long as the operator beside it."""
    mesh, values = CoreMesh(int(chip.mesh.rows), int(chip.mesh.cols)), 64

    def build(values: int) -> Program:
        once = EXCHANGES["direct"].build_program(GemmShape(values, 1, 1), mesh, "float16", pattern="all_to_all")
        return replace(once, strands=tuple(strand * pieces for strand in once.strands))

    while (program := build(values)) and program_seconds(program, chip, "events") < seconds:
        values = 5 * values // 4
    return program


def _loaded_bytes(program: Program) -> float:
    """Bytes that a program loads from memory. [B]"""
    sizes = {slot.name: float(slot.shape[0] * slot.row_bytes) for slot in program.slots}
    total = 0.0
    for strand in program.strands:
        for part in strand:
            turns, times = (part.body, part.times) if hasattr(part, "times") else ((part,), 1)
            for turn in turns:
                for step in turn.steps:
                    if isinstance(step, LoadInstruction):
                        total += times * sizes[step.slot] * int(np.prod(step.cores.shape))
    return total
