"""Constants of a library's collectives between dies of a node.

Their meaning for time is in ``evaluators/kernels/library/node_collectives.py``. Shares are of one direction of all
links of a die.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import part_field, quantity_field, record_class


@record_class
class SwitchAllreduce:
    """Fitted constants of allreduces that the switch reduces, for more than four dies."""

    start: Number = quantity_field("s", "start of an allreduce, its channels to the switch included")
    share: Number = quantity_field(
        "1", "share of the links' bandwidth that vectors on their way to the switch and back reach", high=1.0, positive=True
    )


@record_class
class RingCollectives:
    """Fitted constants of ring collectives under three protocols, of which the fastest is used."""

    start: Number = quantity_field("s", "start of a collective and its end")
    step: Number = quantity_field("s", "of a step of the ring")
    low: Number = quantity_field(
        "1", "share of the links' bandwidth where words carry their flags, for the first bytes", high=1.0, positive=True
    )
    middle_start: Number = quantity_field("s", "more to start with, where lines carry their flags")
    middle: Number = quantity_field("1", "share of the links' bandwidth where lines carry their flags", high=1.0, positive=True)
    bulk_start: Number = quantity_field("s", "more to start with, where chunks are signalled")
    bulk: Number = quantity_field("1", "share of the links' bandwidth where chunks are signalled", high=1.0, positive=True)
    switched: Any = part_field("allreduces in the switch, where they are faster; absent: rings alone", SwitchAllreduce)


@record_class
class AllToAll:
    """Exchanges of each with all, pair by pair."""

    start: Number = quantity_field("s", "start of an exchange and its end")
    lane: Number = quantity_field(
        "B/s", "of words that carry their flags, from one die to another, up to 16 KiB", positive=True
    )
    buffered: Number = quantity_field("s", "least that chunks take through buffers, above 16 KiB for each peer")
    low: Number = quantity_field("1", "share of the links' bandwidth for the first chunks", high=1.0, positive=True)
    bulk_start: Number = quantity_field("s", "more to start with, where all lanes are full")
    bulk: Number = quantity_field("1", "share of the links' bandwidth where all lanes are full", high=1.0, positive=True)


@record_class
class OneShotAllreduce:
    """Fitted constants of an inference engine's one-shot allreduce; long vectors use rings instead."""

    start: Number = quantity_field("s", "start of a kernel and its end, between two barriers")
    peer: Number = quantity_field("s", "for each die that takes part, of a vector that is not short")
    reach: Number = quantity_field("B", "of a vector at which two thirds of that are there", positive=True)
    second: Number = quantity_field("s", "of the barrier between two halves")
    one: Number = quantity_field(
        "1", "share of the links' bandwidth at which a die reads the vectors of all others", high=1.0, positive=True
    )
    two: Number = quantity_field(
        "1", "share of it at which dies sum a slice each, and read the sums of all others", high=1.0, positive=True
    )
    floor: Number = quantity_field("s", "least time of one that the host starts by itself")
    call: Number = quantity_field("s", "more of one that the host starts, whose vector is copied before")
