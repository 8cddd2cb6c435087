"""Queues of memory channels for events, compiled: busy until some time, but for pauses."""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import compiled_part, inlined_function


@compiled_part
def serve_block(at, arrival, nbytes, stored, served, pauses, memory):
    """Times at which a memory channel begins with a block and is through with it. [s]

    Rounds are played one after the other for all rows, and rows may be out of step: what late ones store is played before what
    early ones load. A request that is there before such stores is served in the first pause before one that ends after it came,
    and those behind are as much later as it is longer.

    Args:
        at, there, nbytes: the channel, when the request is there, and bytes of the block.
        stored: whether the block is stored; pauses before others are none of which is known.
        served: until when channels are busy, shape (channels,).
        pauses: when the last pauses of each channel begin and end, in their order, shape (channels, pauses, 2).
        memory: the channels.
    """
    count = pauses.shape[1]
    place = 0 if arrival < served[at] else count
    while place < count and pauses[at, place, 1] <= max(arrival, pauses[at, place, 0]):
        place += 1
    if place == count:
        begin = max(arrival, served[at])
        if stored and begin > served[at]:
            _forget_pause(pauses, at, count - 1, served[at], begin)
        served[at] = begin + nbytes * (memory.crowded if begin > arrival else memory.byte)
        return begin, served[at]
    first = pauses[at, place, 0]
    begin = max(arrival, first)
    left = nbytes * (memory.crowded if begin > arrival else memory.byte)
    through = begin + left
    if begin > first:  # what is left of it before the block is a pause of its own
        pauses[at, place, 0] = begin
        if place:
            _forget_pause(pauses, at, place - 1, first, begin)
    while left > 0 and place < count:
        taken = min(left, pauses[at, place, 1] - pauses[at, place, 0])
        pauses[at, place, 0] += taken
        left -= taken
        place += 1
    served[at] += left
    return begin, through


@inlined_function
def _forget_pause(pauses, at, place, first, last):
    """Write a pause at a place; those before it move up, and the first one is forgotten."""
    for other in range(place):
        pauses[at, other, 0], pauses[at, other, 1] = pauses[at, other + 1, 0], pauses[at, other + 1, 1]
    pauses[at, place, 0], pauses[at, place, 1] = first, last
