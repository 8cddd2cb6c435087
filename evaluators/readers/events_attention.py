"""The readers of attention on a mesh of tiles that play programs, events and cycles: the same ones are played once."""

from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from dse.evaluators.kernels.attention import merge
from dse.evaluators.kernels.attention.cost import PARTS
from dse.evaluators.kernels.attention.dataflow import steps
from dse.evaluators.kernels.attention.operands import rows
from dse.evaluators.kernels.attention.shape import Heads, Tiling, cut
from dse.evaluators.kernels.gemm.tiling import Mesh
from dse.evaluators.machine.channels import channels_used, near_memory
from dse.evaluators.machine.played_channels import chip_memory
from dse.evaluators.program.rounds import DTYPES, Load, Multiply, Send, Step, Store, Vector
from dse.evaluators.readers import players
from dse.evaluators.readers.closed_attention import Job, machine
from dse.evaluators.readers.job_attribution import Play, Player, without
from dse.evaluators.readers.timing import Timing, one_after_another
from dse.space.chip import Chip
from dse.space.network import faults

T = TypeVar("T", Heads, Tiling)

OPERANDS = ("q", "c", "k", "v")


class AttentionPlayer(Player):
    """A reader of attention."""

    def communication(self, job: Job, seconds: float) -> float:
        """Time that falls away where tiles exchange for nothing. [s]"""
        return seconds - self.played(job, len(PARTS) - PARTS.index("hbm"), self.play).seconds


@lru_cache(maxsize=4096)
def _played(job: Job, left: int, play: Play) -> Timing:
    """With the last parts only, `left` of them."""
    chip = job.chip
    fabric, engines = machine(chip, job.of)
    mesh = Mesh(int(chip.mesh.rows), int(chip.mesh.cols))
    dtype, channels = DTYPES[job.itemsize], int(channels_used(chip))
    shape, tiling = _whole(job.shape), _whole(job.tiling)
    told: dict[str, Any] = {"channels": channels, "pace": pace(chip, float(job.shape.piece)), "kv": job.kv}
    programs = [steps(job.of, shape, tiling, mesh, dtype, **told)]
    if cut(shape, tiling, mesh).parts > 1:
        programs.append(merge.steps(merge.merge(shape, tiling, mesh), mesh, dtype, channels=channels))
    if left < len(PARTS):
        fabric = fabric._replace(stage=0.0)
    gone = PARTS[1 : len(PARTS) - left]
    if gone:
        programs = [without(program, lambda step: _part(step) in gone) for program in programs]
    timings: list[Timing] = []
    for program in programs:
        part = near_memory(chip, program.rows)
        on: dict[str, Any] = {"engines": engines, "faults": faults(part), **chip_memory(part)}
        if on["banks"] and not timings:
            on["banks"] = on["banks"]._replace(rows=partial(rows, job.of, shape, tiling, mesh))
        timings.append(play(program, fabric, **on))
    return one_after_another(timings)


def pace(chip: Chip, piece: float) -> float:
    """Time of pieces at random places over that of one long block, as the channel model plays them."""
    if not piece or chip.hbm.banks is None:
        return 1.0
    from dse.evaluators.machine.hbm import scattered  # which compiles, or loads what was

    return scattered(chip.hbm.banks, piece)


def _whole(sizes: T) -> T:
    """With whole numbers where they are counts."""
    changes: dict[str, Any] = {
        spec.name: int(getattr(sizes, spec.name)) for spec in fields(sizes) if spec.type != "bool" and spec.type is not bool
    }
    return replace(sizes, **changes)


def _part(step: Step) -> str:
    """What a step is, a word of `PARTS`; nothing for what only gives a tile another name."""
    if isinstance(step, Multiply | Vector):
        return "matrix" if isinstance(step, Multiply) else "vector"
    if isinstance(step, Load | Store):
        return "hbm"
    if isinstance(step, Send) and step.source is step.target:
        return ""
    return "multicast" if step.slot.split(".")[-1] in OPERANDS else "reduction"


EVENTS, CYCLES = (AttentionPlayer(PARTS, _played, play) for play in (players.events, players.cycles))
