"""The readers of attention on a mesh of tiles that play programs, events and cycles: the same ones are played once."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

from evaluators import cycles, events
from evaluators.closed_attention import Job, machine
from evaluators.kernels.attention.cost import PARTS
from evaluators.kernels.attention.dataflow import steps
from evaluators.kernels.attention.shape import Heads, Tiling
from evaluators.kernels.cost import Cost
from evaluators.kernels.gemm.tiling import Mesh
from evaluators.machine.channels import channels_used, chip_channels
from evaluators.played import Timing
from evaluators.rounds import DTYPES, Load, Loop, Multiply, Program, Round, Send, Step, Store, Vector
from space.network import faults

T = TypeVar("T", Heads, Tiling)

OPERANDS = ("q", "c", "k", "v")


@dataclass(frozen=True, slots=True)
class Player:
    """A reader that plays programs."""

    play: Callable[..., Timing]

    def price(self, job: Job) -> Cost:
        """Time and activity of a job whose leaves are numbers."""
        timing = _played(job, len(PARTS), self.play)
        return Cost(timing.seconds, timing.activity)

    def split(self, job: Job) -> dict[str, float]:
        """The time by what it goes into, words of `PARTS`: what falls away when the program is played without that, in turn."""
        times = [_played(job, left, self.play).seconds for left in range(len(PARTS), 0, -1)]
        return dict(zip(PARTS, (*(a - b for a, b in pairwise(times)), times[-1]), strict=True))

    def communication(self, job: Job, seconds: float) -> float:
        """Time that falls away where tiles exchange for nothing. [s]"""
        return seconds - _played(job, PARTS.index("hbm"), self.play).seconds


EVENTS, CYCLES = Player(events.play), Player(cycles.play)


@lru_cache(maxsize=4096)
def _played(job: Job, left: int, play: Callable[..., Timing]) -> Timing:
    """With the last parts only, `left` of them."""
    chip = job.chip
    fabric, engines = machine(chip, job.of)
    mesh = Mesh(int(chip.mesh.rows), int(chip.mesh.cols))
    dtype, channels = DTYPES[job.itemsize], int(channels_used(chip))
    program = steps(job.of, _whole(job.shape), _whole(job.tiling), mesh, dtype, channels=channels)
    if left < len(PARTS):
        fabric = fabric._replace(stage=0.0)
    gone = PARTS[1 : len(PARTS) - left]
    if gone:
        program = without(program, lambda step: _part(step) in gone)
    return play(program, fabric, engines=engines, memory=chip_channels(chip), faults=faults(chip))


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


def without(program: Program, gone: Callable[[Step], bool]) -> Program:
    """A program less some steps."""
    known: dict[int, Round] = {}

    def left(turn: Round) -> Round:
        if id(turn) not in known:
            known[id(turn)] = replace(turn, steps=tuple(step for step in turn.steps if not gone(step)))
        return known[id(turn)]

    def body(turns: tuple[Round, ...]) -> tuple[Round, ...]:
        return tuple(turn for turn in map(left, turns) if turn.steps)

    strands = []
    for strand in program.strands:
        parts: list[Round | Loop] = []
        for part in strand:
            parts += [replace(part, body=body(part.body))] if isinstance(part, Loop) else body((part,))
        strands.append(tuple(parts))
    return replace(program, strands=tuple(strands))
