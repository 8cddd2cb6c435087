"""Columns of knob values from designs given one by one."""

from collections.abc import Mapping, Sequence

import numpy as np

from dse.space.knobs import ChoiceKnob, Columns, Value
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace


def columns_from_values(space: AnySpace, several: Sequence[Mapping[str, Value]]) -> Columns:
    """Columns of knob values from designs: numbers, codes of options, and NaN or -1 where inactive.

    Args:
        space: the space of the knobs; for several chips, a design without a chip is of the first one.
        several: designs, of each the knobs that count.
    """
    columns: Columns = {}
    for knob in space.knobs:
        cells = [values.get(knob.address) for values in several]
        if isinstance(knob, ChoiceKnob) and knob.words:
            codes = {None: 0 if knob.address == CHIP_KNOB else -1} | {value: code for code, value in enumerate(knob.values)}
            columns[knob.address] = np.array([codes[cell] for cell in cells], dtype=np.int16)
        else:
            columns[knob.address] = np.array(cells, dtype=float)
    return columns
