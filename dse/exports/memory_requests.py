"""Memory requests of a kernel or a stream, at their places in banks, for traces of memory simulators."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.kernel_workloads.memory_stream import stream_requests
from dse.evaluators.cost_models.program_trace import MemoryBlocks, ProgramRun, count_messages, trace_program
from dse.evaluators.machine.memory_system import map_addresses
from dse.evaluators.program.activity_counts import count_activity
from dse.exports.export_files import refuse_many
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.dram import MemorySystem, capacity_bytes, pseudo_channel_count
from dse.space.errors import DesignError
from dse.space.main_memory import main_memory
from dse.space.workload import MemoryStreamCase


class RequestTrace(NamedTuple):
    """Requests of one burst each to a memory, in the order in which they are made.

    Attributes:
        name: short text, for file names.
        memory: banks that the requests go to.
        cycle: earliest cycle of the memory's clock.
        channel, group, bank, row, column: place of the burst; a column is one burst.
        write: whether it is written.
        nbytes: bytes that the program moves; those of bursts may be more. [B]
    """

    name: str
    memory: MemorySystem
    cycle: Array
    channel: Array
    group: Array
    bank: Array
    row: Array
    column: Array
    write: Array
    nbytes: float

    def totals(self) -> dict[str, Any]:
        """Requests, reads and writes, and bytes of bursts and of the program, as exports state them. [B]"""
        bursts = len(self.cycle)
        return {
            "program": self.name,
            "requests": bursts,
            "reads": int(bursts - self.write.sum()),
            "writes": int(self.write.sum()),
            "burst_bytes": bursts * float(self.memory.access),
            "program_bytes": self.nbytes,
        }


def stream_trace(design: Design, case: MemoryStreamCase, most: int) -> RequestTrace:
    """Requests of a memory stream, those of all requesters in the order of their arrival.

    Raises:
        DesignError: there are too many.
    """
    memory = main_memory(design.chip).banks
    assert memory is not None  # refused where a question is parsed
    bursts = -(-case.request // int(memory.access))
    refuse_many(int(case.requests * pseudo_channel_count(memory)) * bursts, most, "memory requests")
    requests = stream_requests(design, case)
    cycles = np.floor(requests.arrival * float(memory.clock) + 1e-9).astype(np.int64)
    order = np.argsort(cycles, kind="stable")
    nbytes = np.full(len(order), case.request)
    return _trace("stream", memory, cycles[order], requests.address[order], nbytes, requests.write[order])


def program_traces(run: ProgramRun, most: int) -> Iterator[RequestTrace]:
    """Requests of the loads and stores of a program, one trace for each memory channel that has some.

    Raises:
        DesignError: the program has no banks behind its channels, or too many requests.
    """
    if run.banks is None or run.memory is None:
        raise DesignError(
            f"export-program --to: {run.name} loads nothing from memory whose banks are known; "
            "use a kernel from main memory, as chip=tile32 workload=attention, or workload=stream"
        )
    access = int(run.banks.memory.access)
    refuse_many(count_messages(run.program), most, "messages of cores")
    refuse_many(int(count_activity(run.program).memory_bytes) // access, most, "memory requests")
    blocks = trace_program(run).blocks
    memory = run.banks.channel_memory
    clock = float(memory.clock) * float(run.fabric.cycle)
    for channel in np.unique(blocks.channel).astype(int).tolist():
        part = MemoryBlocks(*(column[blocks.channel == channel] for column in blocks))
        address, nbytes, owner = _pieces(part)
        cycles = np.ceil(part.start[owner] * clock - 1e-9).astype(np.int64)
        yield _trace(f"{run.name}.channel{channel}", memory, cycles, address, nbytes, part.write[owner])


def _pieces(blocks: MemoryBlocks) -> tuple[Array, Array, Array]:
    """Contiguous pieces of blocks: addresses, bytes, and the block that each belongs to.

    Pieces of a block that lie apart have no addresses in a program: they follow one another here.
    """
    return blocks.address.astype(np.int64), blocks.nbytes.astype(np.int64), np.arange(len(blocks.start))


def _trace(name: str, memory: MemorySystem, cycles: Array, address: Array, nbytes: Array, write: Array) -> RequestTrace:
    """Requests in bursts of the memory's size."""
    access = int(memory.access)
    first, last = address // access, -(-(address + nbytes) // access)
    count = (last - first).astype(np.int64)
    owner = np.repeat(np.arange(len(count)), count)
    burst = (first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)) * access
    if len(burst) and burst.max() >= capacity_bytes(memory):
        raise DesignError(
            f"chip.dram: {name} needs addresses up to {burst.max():,} B, but the memory has {capacity_bytes(memory):,.0f} B"
        )
    channel, place = map_addresses(memory, burst)
    group, bank = np.divmod(place[:, 0], int(memory.banks))
    return RequestTrace(
        name,
        memory,
        cycles[owner],
        channel,
        group,
        bank,
        place[:, 1],
        place[:, 2],
        write[owner].astype(bool),
        float(nbytes.sum()),
    )


def pack_address(trace: RequestTrace, order: tuple[str, ...]) -> Array:
    """Byte addresses whose bits are fields in some order, the highest first, above those of a burst. [B]

    Args:
        trace: requests.
        order: names of fields: channel, group, bank, row, column.

    Raises:
        DesignError: a field has no power of two of values.
    """
    memory = trace.memory
    sizes = {
        "channel": int(pseudo_channel_count(memory)), "group": int(memory.groups), "bank": int(memory.banks),
        "row": int(memory.rows), "column": int(memory.row / memory.access),
    }  # fmt: skip
    address = np.zeros(len(trace.cycle), np.int64)
    for name in order:
        if sizes[name] & (sizes[name] - 1):
            raise DesignError(f"chip.dram: addresses of this simulator have bits, but there are {sizes[name]} {name}s; use 2^n")
        address = address * sizes[name] + getattr(trace, name)
    return np.asarray(address * int(memory.access))
