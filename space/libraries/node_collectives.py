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

    start: Number = quantity_field("s", "start of an allreduce, with its channels to the switch")
    share: Number = quantity_field(
        "1", "share of the links' bandwidth for vectors to the switch and back", high=1.0, positive=True
    )


@record_class
class RingCollectives:
    """Fitted constants of ring collectives under three protocols, of which the fastest is used."""

    start: Number = quantity_field("s", "start and end of a collective")
    step: Number = quantity_field("s", "time of a step of the ring")
    low: Number = quantity_field(
        "1", "share of the links' bandwidth if words carry flags, for the first bytes", high=1.0, positive=True
    )
    middle_start: Number = quantity_field("s", "additional start if lines carry flags")
    middle: Number = quantity_field("1", "share of the links' bandwidth if lines carry flags", high=1.0, positive=True)
    bulk_start: Number = quantity_field("s", "additional start if chunks are signalled")
    bulk: Number = quantity_field("1", "share of the links' bandwidth if chunks are signalled", high=1.0, positive=True)
    switched: Any = part_field("allreduces in the switch, where they are faster; only rings if absent", SwitchAllreduce)


@record_class
class AllToAll:
    """Fitted constants of all-to-all exchanges between pairs of dies."""

    start: Number = quantity_field("s", "start and end of an exchange")
    lane: Number = quantity_field("B/s", "rate of words with flags from one die to another, up to 16 KiB", positive=True)
    buffered: Number = quantity_field("s", "least time of chunks through buffers, above 16 KiB per peer")
    low: Number = quantity_field("1", "share of the links' bandwidth for the first chunks", high=1.0, positive=True)
    bulk_start: Number = quantity_field("s", "additional start if all lanes are full")
    bulk: Number = quantity_field("1", "share of the links' bandwidth if all lanes are full", high=1.0, positive=True)


@record_class
class OneShotAllreduce:
    """Fitted constants of an inference engine's one-shot allreduce; long vectors use rings instead."""

    start: Number = quantity_field("s", "start and end of a kernel, between two barriers")
    peer: Number = quantity_field("s", "time per participating die, for a vector that is not short")
    reach: Number = quantity_field("B", "bytes of a vector at which two thirds of that time apply", positive=True)
    second: Number = quantity_field("s", "time of the barrier between two halves")
    one: Number = quantity_field(
        "1", "share of the links' bandwidth for reading the vectors of all other dies", high=1.0, positive=True
    )
    two: Number = quantity_field(
        "1", "share of the links' bandwidth if dies sum a slice each and read the sums of all others", high=1.0, positive=True
    )
    floor: Number = quantity_field("s", "least time of an allreduce that the host starts alone")
    call: Number = quantity_field("s", "additional time of an allreduce that the host starts, whose vector is copied first")
