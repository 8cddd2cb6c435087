"""Initial state of the banks behind the memory channels of a mesh, for `machine.bank_simulator`."""

from typing import Any

import numpy as np

from dse.evaluators.machine import memory_system as hbm
from dse.evaluators.machine.bank_simulator import BankSimulatorState
from dse.evaluators.machine.dram_constants import REQUESTER
from dse.evaluators.machine.dram_simulator import RequestState, closed_channels
from dse.evaluators.machine.memory_channels import BLOCK_BYTES, ChannelBanks
from dse.evaluators.machine.requester_mesh import no_mesh
from dse.space.array_math import Array
from dse.space.dram import HASHES, ORDERS

QUEUE_ROOM = 512
"""Requests that a memory channel has taken and its pseudo-channels have not: those of DRAMSys in SoftHier, of which
[zhang2026] is measured (`RequestBufferSize`)."""

FIELDS = ("column", "group", "bank", "row")


def closed_banks(
    banks: ChannelBanks, channels: int, tasks: int, first: int, cycle: float, latency: float, blocks: tuple[Array, Array, Array]
) -> BankSimulatorState:
    """State of the banks with all rows closed.

    Args:
        banks: banks behind each memory channel.
        channels: memory channels.
        tasks: of the program.
        first: number of the first memory channel among what tasks are on.
        cycle: of routers. [s]
        latency: from a request at an idle channel to its first word. [s]
        blocks: address, piece and whether it is written, of each task.
    """
    memory, count = banks.channel_memory, banks.pseudo
    timing, queues, size, access = (
        hbm.clocked_timing(memory),
        hbm.queue_sizes(memory),
        int(memory.granularity),
        int(memory.access),
    )
    clock = banks.bandwidth * int(memory.timing.burst) / (count * access) * cycle
    path = hbm.path_clocks(memory) / float(memory.clock)  # which no channel of `dram_simulator` simulates
    ahead = np.array([max(latency - float(hbm.first_data_seconds(memory)[0]) + path, 0.0), path]) / cycle
    fields = [FIELDS.index(name) for name in reversed(ORDERS[memory.order])]
    extents = np.array([int(n) for n in (memory.row / memory.access, memory.groups, memory.banks, memory.rows)])
    hashed = HASHES.index(memory.hashed)
    masks = ((extents[2] - 1) * (hashed > 0), (extents[1] - 1) * (hashed > 0), (count - 1) * (hashed == 2))
    room = max(QUEUE_ROOM, 4 * -(-BLOCK_BYTES // access))
    places = channels * room
    who = np.zeros(1, REQUESTER)

    def make_zeros(*shape: int, kind: Any = np.int64) -> Array:
        return np.zeros(shape, kind)

    wanted_state = RequestState(
        make_zeros(places, kind=np.int32), make_zeros(places, 3, kind=np.int32), make_zeros(places, kind=np.bool_),
        make_zeros(places), make_zeros(places), make_zeros(places), make_zeros(places), make_zeros(places),
        make_zeros(places), make_zeros(places, kind=np.bool_), make_zeros(places), make_zeros(places),
        make_zeros(places, kind=np.int32), make_zeros(places, kind=np.int32), who, make_zeros(1, 2, 1), make_zeros(1, 2, 1),
        make_zeros(1), make_zeros(places, kind=np.int32), make_zeros(1), make_zeros(places, kind=np.bool_), 0,
    )  # fmt: skip
    state = closed_channels(channels * count, int(memory.groups), int(memory.banks), queues, timing)
    return BankSimulatorState(
        state, wanted_state, timing, queues, no_mesh(), count, clock, ahead, first, size, access, np.array(fields, np.int64),
        np.array(extents, np.int64), np.array(masks, np.int64), *blocks, make_zeros(tasks, kind=np.int32), make_zeros(tasks),
        make_zeros(places, kind=np.int32), np.arange(places, dtype=np.int32).reshape(channels, room),
        np.full(channels, room, np.int64), np.array([-1, 0], np.int64),
    )  # fmt: skip
