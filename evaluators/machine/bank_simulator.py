"""Compiled simulator of the banks behind a mesh's memory channels, burst by burst.

It runs next to the routers: blocks in flight share banks, queues and refresh.

A block is asked for as bursts of one request each, in the order of their addresses, which go to the pseudo-channels behind the
memory channel as `evaluators.machine.memory_system.map_addresses` says; each of these is a channel of
`evaluators.machine.dram_simulator`. What has been asked for waits for its controller in the order in which it came.

A burst is written after its last word has come over the mesh. Writes are posted: the controller answers when its buffer has all
of the burst, and the answer, which crosses the mesh without a link, frees the core's slot. The program ends when the data are
in their banks, and when all answers have come.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import inlined_function
from dse.evaluators.machine.dram_constants import NEVER, ClockedTiming, QueueSizes
from dse.evaluators.machine.dram_simulator import ChannelState, RequestState, advance_channel
from dse.evaluators.machine.event_heap import push_event
from dse.evaluators.machine.requester_mesh import RequesterMesh
from dse.space.array_math import Array

ROUNDING = 1e-6
"""Of a clock, by which products and quotients of clocks may be less than what they stand for."""


class BankSimulatorState(NamedTuple):
    """State of the banks behind all memory channels of a mesh.

    Attributes:
        channels, asked, timing, queues, ways: as `dram_simulator` has them; `asked` has places of requests, which are used
            again.
        behind: pseudo-channels of a memory channel.
        clock: of the memory, in cycles of routers.
        latency: of reads, cycles from data to its first word at the channel's router, beside what banks take; of writes, from
            the controller to the answer at that router; shape (2,).
        first: number of the first memory channel among what tasks are on.
        size, access: bytes of a stretch of a pseudo-channel, and of a request.
        order, extents: fields of an address, low to high, places of `bank_simulator_state.FIELDS`; how many values each has.
        masks: of the row's bits that go into the bank, the group and the channel.
        address, piece: of each task's block: its first byte, and bytes that lie side by side, 0 for all of them.
        write: whether it is written.
        left, until: of each task, requests that have no data, or that the controller has not taken; when the last has. [clock]
        task: of each request.
        free, room: places of requests of each memory channel, and how many are free.
        now: until when channels have been simulated, and requests that are on the way; shape (2,). [clock]
    """

    channels: ChannelState
    asked: RequestState
    timing: ClockedTiming
    queues: QueueSizes
    ways: RequesterMesh
    behind: int
    clock: float
    latency: Array
    first: int
    size: int
    access: int
    order: Array
    extents: Array
    masks: Array
    address: Array
    piece: Array
    write: Array
    left: Array
    until: Array
    task: Array
    free: Array
    room: Array
    now: Array


@inlined_function
def _requests(banks, task, nbytes):
    """Requests that a block consists of."""
    address, size = banks.address[task], banks.piece[task]
    if size > 0:
        return -(-nbytes // size) * -(-size // banks.access)
    return (address + nbytes - 1) // banks.access - address // banks.access + 1


@inlined_function
def _request(banks, index, task, at, clock):
    """A request for a burst at an address goes to its pseudo-channel."""
    block, row, group, bank = at // banks.size, 0, 0, 0
    number, rest, column = block % banks.behind, (block // banks.behind * banks.size + at % banks.size) // banks.access, 0
    for k in range(4):
        field = banks.order[k]
        value = rest % banks.extents[field]
        rest //= banks.extents[field]
        if field == 0:
            column = value
        elif field == 1:
            group = value
        elif field == 2:
            bank = value
        else:
            row = value
    group ^= row // (banks.masks[0] + 1) & banks.masks[1]
    bank ^= row & banks.masks[0]
    number ^= row & banks.masks[2]
    banks.room[index] -= 1
    r, i = np.int64(banks.free[index, banks.room[index]]), index * banks.behind + number
    banks.task[r] = task
    state, c = banks.asked, banks.channels.state[i]
    state.place[r, 0], state.place[r, 1], state.place[r, 2] = group * banks.extents[2] + bank, row, column
    state.write[r], state.offered[r], state.late[r], state.held[r] = banks.write[task], clock, False, 0
    if c.coming < 0:
        c.coming = r
    else:
        state.follow[c.latest] = r
    c.latest = r
    c.left += 1
    c.awake = min(c.awake, clock)


@inlined_function
def _asked_for(banks, index, task, nbytes, time):
    """Request one block at a time if its channel has room; returns whether it had.

    Pieces that lie anywhere are at places that their numbers say, mixed by a multiplication of Knuth's.
    """
    count = _requests(banks, task, nbytes)
    if banks.room[index] < count:
        return False
    clock = max(np.int64(np.ceil(time * banks.clock)), banks.now[0] + 1)
    address, size = banks.address[task], banks.piece[task]
    banks.left[task] = count
    banks.now[1] += count
    each = max(-(-size // banks.access), 1)
    end = banks.extents[0] * banks.extents[1] * banks.extents[2] * banks.extents[3] * banks.access * banks.behind
    for k in range(count):
        at = address // banks.access + k
        if size > 0:
            number = address // size + k // each
            at = (number * 2654435761 & 4294967295) % (end // (each * banks.access)) * each + k % each
        _request(banks, index, task, at * banks.access, clock)
    return True


@inlined_function
def advance_banks(banks, floor, tasks, cycle):
    """Issue requests of waiting blocks where there is room, and advance all channels to a router cycle.

    A block that is read is done when it has all of its data. One that is written is when the controller has taken all of it,
    which the core is told; its channel is at work until its data are in their bank.
    """
    end, moved = np.int64(np.floor(cycle * banks.clock + ROUNDING)), True
    state = banks.asked
    while moved:
        for index in range(len(banks.room)):
            queue = floor.queue[banks.first + index]
            while queue[0] >= 0 and _asked_for(banks, index, queue[0], np.int64(tasks.busy[queue[0]]), tasks.ready[queue[0]]):
                queue[0] = tasks.queued[queue[0]]
        moved = False
        for i in range(len(banks.channels.state)):
            c, index = banks.channels.state[i], i // banks.behind
            while c.awake <= end:
                clock, coming, left = c.awake, c.coming, c.left
                c.awake = advance_channel(banks.channels, i, state, banks.timing, banks.queues, banks.ways, clock)
                issued = state.count[0]
                for k in range(issued + (c.left < left and state.write[coming])):
                    r = np.int64(state.issued[k] if k < issued else coming)
                    if k < issued:
                        moved = True
                        banks.free[index, banks.room[index]] = r
                        banks.room[index] += 1
                        banks.now[1] -= 1
                        floor.free[banks.first + index] = max(floor.free[banks.first + index], c.data_end / banks.clock)
                        if state.write[r]:
                            continue
                    task = np.int64(banks.task[r])
                    banks.left[task] -= 1
                    banks.until[task] = max(banks.until[task], state.finished[r])
                    if banks.left[task] == 0:
                        done = banks.until[task] / banks.clock + banks.latency[np.int64(banks.write[task])]
                        if not banks.write[task]:  # its last word leaves with its last data
                            done -= tasks.after[task]
                        push_event(floor, max(done, clock / banks.clock), task << 2)
                state.count[0] = 0
        banks.now[0] = max(banks.now[0], end)


@inlined_function
def next_bank_event(banks):
    """Router cycle of the next event in the banks; negative if nothing is requested."""
    if banks.now[1] == 0:
        return -1.0
    clock = NEVER
    for i in range(len(banks.channels.state)):
        clock = min(clock, banks.channels.state[i].awake)
    return clock / banks.clock
