"""The numeric reader: plays a program on NumPy tiles, one a core, which move only by its steps.

It knows nothing of time. That what was timed is what was computed is proved here, kernel by kernel.
"""

import numpy as np

from evaluators.rounds import Program, Round
from space.elementwise import Array

Tiles = dict[str, Array]
"""By slot: shape (rows, cols, *slot.shape)."""


def play(program: Program, tiles: Tiles) -> Tiles:
    """The tiles after the program.

    Strands take turns, one round each; a correct program does not depend on how they interleave.

    Args:
        program: what every core does.
        tiles: the tiles before it, by slot; not changed.

    Raises:
        ValueError: a slot is missing or has another shape, or is sent and received at once without a second version.
    """
    held = {slot.name: tiles[slot.name].astype(slot.dtype, copy=True) for slot in program.slots}
    depth = {slot.name: slot.depth for slot in program.slots}
    for slot in program.slots:
        wanted = (program.rows, program.cols, *slot.shape)
        if held[slot.name].shape != wanted:
            raise ValueError(f"slot {slot.name!r}: tiles of shape {held[slot.name].shape}, expected {wanted}")
    longest = max((len(strand) for strand in program.strands), default=0)
    for turn in range(longest):
        for strand in program.strands:
            if turn < len(strand):
                _play_round(strand[turn], held, depth)
    return held


def _play_round(turn: Round, held: Tiles, depth: dict[str, int]) -> None:
    before = {send.slot: held[send.slot].copy() for send in turn.steps}
    for name in before:
        if depth[name] < 2:
            raise ValueError(f"slot {name!r} is sent and received in one round: needs depth 2, has {depth[name]}")
    for send in turn.steps:
        tiles = held[send.slot]
        pairs = np.broadcast(send.source.row, send.source.col, send.target.row, send.target.col, send.start, send.stop)
        for source_row, source_col, row, col, start, stop in pairs:
            arriving = before[send.slot][source_row, source_col, start:stop]
            if send.combine == "sum":
                tiles[row, col, start:stop] += arriving
            else:
                tiles[row, col, start:stop] = arriving
