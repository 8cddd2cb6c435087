"""What blocks of a program cost their memory channels, as bytes of a long read: what `events` has of banks on a mesh."""

from dse.evaluators.program.counts import tile_bytes
from dse.evaluators.program.rounds import Load, Store
from dse.evaluators.readers.timing import Machine


def as_long(step: Load | Store, on: Machine) -> float:
    """Bytes of a long read that keep a channel busy as long as a block of a step, by played tables where banks are known."""
    nbytes = float(tile_bytes(on.slots[step.slot]))
    if isinstance(step, Load) and (step.rows or on.banks is None):
        return nbytes * step.pace
    if on.banks is None:
        return nbytes
    from dse.evaluators.machine import bank_state  # which compiles, or loads what was

    return nbytes * bank_state.block(on.banks.memory, on.banks.count, nbytes, write=isinstance(step, Store))
