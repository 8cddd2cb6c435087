"""Activity of a program, counted from its instructions."""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import (
    Buffer,
    Instruction,
    LoadInstruction,
    Loop,
    MulticastInstruction,
    MultiplyInstruction,
    Program,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
)
from dse.evaluators.program.routes import hop_distance, multicast_tree


def count_activity(program: Program) -> Activity:
    """Activity of a program, counted from its instructions.

    Links that bytes from and to memory cross are not included, since they depend on the places of channels.
    """
    slots = {slot.name: slot for slot in program.slots}
    macs = vector = sent = hops = memory = spread = 0.0
    for step, times in iterate_instructions(program):
        if isinstance(step, MultiplyInstruction):
            macs += times * program.rows * program.cols * count_macs(step, slots)
        elif isinstance(step, VectorInstruction):
            vector += times * program.rows * program.cols * count_elements(step, slots)
        elif isinstance(step, LoadInstruction | StoreInstruction):
            memory += times * prod(step.cores.shape) * buffer_bytes(slots[step.slot])
        else:
            nbytes = (step.stop - step.start) * slots[step.slot].row_bytes
            moved, crossed, came = _moved(step, program)
            sent += times * float(np.sum(nbytes * moved))
            hops += times * float(np.sum(nbytes * crossed))
            spread += times * float(np.sum(nbytes * (came - moved)))
    return Activity(macs, sent, hops, vector, memory, spread_bytes=spread)


def iterate_instructions(program: Program) -> Iterator[tuple[Instruction, int]]:
    """Every instruction of every round with its repetitions; repeated rounds come once."""
    rounds: dict[int, tuple[Round, int]] = {}
    for strand in program.strands:
        for part in strand:
            body, times = (part.body, part.times) if isinstance(part, Loop) else ((part,), 1)
            for turn in body:
                rounds[id(turn)] = turn, times + (rounds[id(turn)][1] if id(turn) in rounds else 0)
    return ((step, times) for turn, times in rounds.values() for step in turn.steps)


def buffer_bytes(slot: Buffer) -> Any:
    """Bytes of one version of a buffer. [B]"""
    return slot.shape[0] * slot.row_bytes


def count_macs(step: MultiplyInstruction, slots: dict[str, Buffer]) -> int:
    """Multiply-adds of one core in an instruction. [-]"""
    return prod(_sizes(step, slots).values())


def count_vector_instructions(step: MultiplyInstruction, slots: dict[str, Buffer]) -> int:
    """Vector instructions of one core for a product on its vector engine. [-]

    Results are made in vectors along their longest axis, one value at a time.
    """
    inputs, _, out = step.subscripts.partition("->")
    a, b = inputs.split(",")
    sizes = _sizes(step, slots)
    return prod(sizes.values()) // max(sizes[letter] for letter in out if not (letter in a and letter in b))


def matrix_products(step: MultiplyInstruction, slots: dict[str, Buffer]) -> tuple[int, int, int, int]:
    """Number of matrix products of an instruction, and their sizes m, k and n. [-]"""
    inputs, _, out = step.subscripts.partition("->")
    a, b = inputs.split(",")
    sizes = _sizes(step, slots)

    def count_values(wanted: tuple[bool, bool, bool]) -> int:
        return prod(size for letter, size in sizes.items() if (letter in a, letter in b, letter in out) == wanted)

    return (
        count_values((True, True, True)),
        count_values((True, False, True)),
        count_values((True, True, False)),
        count_values((False, True, True)),
    )


def count_elements(step: VectorInstruction, slots: dict[str, Buffer]) -> int:
    """Elements of one core that a vector instruction reads: those of its largest buffer. [-]"""
    return int(max(prod(slots[name].shape) for name in (*step.inputs, step.out)))


def _sizes(step: MultiplyInstruction, slots: dict[str, Buffer]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for letters, name in zip(step.subscripts.partition("->")[0].split(","), (step.a, step.b), strict=True):
        sizes.update(zip(letters, slots[name].shape, strict=True))
    return sizes


def _moved(step: SendInstruction | MulticastInstruction | ReduceInstruction, program: Program) -> tuple[Any, Any, Any]:
    """Of each pair or group: messages that leave a core, links that they cross, and messages that come to one."""
    if isinstance(step, SendInstruction):
        hops = hop_distance(step.source, step.target, program)
        messages = (hops > 0).astype(float)
        return messages, hops, messages
    members, single_message = step.path.shape[-1], float(step.path.shape[-1] > 1)
    # each link of the tree is crossed once: the network copies where the path forks, partial results are added on the way
    sent = single_message if isinstance(step, MulticastInstruction) else members - 1.0
    came = single_message if isinstance(step, ReduceInstruction) and step.via == "router" else members - 1.0
    return np.full(step.path.shape[:-1], sent), multicast_tree(step, program), came
