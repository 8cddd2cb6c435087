"""Chakra traces of mesh programs: one rank for each core, with work, messages, loads and barriers.

Chakra has messages between two ranks, and collectives, but no multicast or sum on the way. Here a multicast is a message from
the root to each member, and a sum is one from each member to the root with the additions there. A receiver's buffer is free
before its receive is posted.
"""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from dse.evaluators.cost_models.program_trace import ProgramRun, count_messages
from dse.evaluators.cost_models.simulation_timing import engine_seconds
from dse.evaluators.program.activity_counts import buffer_bytes, count_elements, count_macs, iterate_instructions
from dse.evaluators.program.kernel_ir import (
    FUNCTIONS,
    LoadInstruction,
    MulticastInstruction,
    MultiplyInstruction,
    ReduceInstruction,
    Round,
    SendInstruction,
    StoreInstruction,
    VectorInstruction,
    buffers_read,
    buffers_written,
    is_in_place,
    iterate_rounds,
)
from dse.exports.chakra import COLLECTIVES, TraceNode, write_groups, write_rank_files
from dse.exports.export_files import refuse_many

Needs = list[int]


def write_chakra_program(run: ProgramRun, folder: Path, most: int) -> dict[str, Any]:
    """Write the trace of a program, a file for each core; returns totals.

    Args:
        run: program and machine.
        folder: of the files, which exists.
        most: nodes that all files may have together.

    Raises:
        DesignError: there would be more.
    """
    cores = run.program.rows * run.program.cols
    refuse_many(2 * count_messages(run.program) + _count_work(run) * cores, most, "nodes")
    trace = ProgramNodes(run)
    for strand, parts in enumerate(run.program.strands):
        for turn in iterate_rounds(parts):
            trace.add_round(turn, strand)
    about = {"program": run.name, "mesh": f"{run.program.rows} x {run.program.cols} cores, rank = row * cols + col"}
    write_rank_files(folder, run.name, trace.nodes, about)
    if trace.groups:
        write_groups(folder, run.name, trace.groups)
    nodes = [node for rank in trace.nodes for node in rank]
    return {"program": run.name, "ranks": cores, **node_totals(nodes)}


def node_totals(nodes: list[TraceNode]) -> dict[str, Any]:
    """Totals of the nodes of all ranks: counts by type, operations, bytes of messages and of memory."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.kind] = counts.get(node.kind, 0) + 1
    bytes_by_type = {
        kind: sum(node.attributes.get("comm_size", 0) for node in nodes if node.kind == kind)
        for kind in ("COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE")
    }
    memory = sum(node.attributes.get("tensor_size", 0) for node in nodes if node.kind.startswith("MEM_"))
    return {
        "nodes": len(nodes),
        **counts,
        "operations": sum(node.attributes.get("num_ops", 0) for node in nodes),
        "sent_bytes": bytes_by_type["COMM_SEND_NODE"],
        "received_bytes": bytes_by_type["COMM_RECV_NODE"],
        "collective_bytes": bytes_by_type["COMM_COLL_NODE"],
        "memory_bytes": memory,
    }


def _count_work(run: ProgramRun) -> int:
    """Products and vector instructions of a core. [-]"""
    return sum(
        times for step, times in iterate_instructions(run.program) if isinstance(step, MultiplyInstruction | VectorInstruction)
    )


class ProgramNodes:
    """Nodes of all ranks of a program, as they are added round by round.

    Attributes:
        nodes: by rank.
        groups: ranks of each group that waits for its members, by name.
    """

    def __init__(self, run: ProgramRun) -> None:
        program, self.machine = run.program, run.machine
        self.rows, self.cols = program.rows, program.cols
        self.cores = self.rows * self.cols
        self.nodes: list[list[TraceNode]] = [[] for _ in range(self.cores)]
        self.groups: dict[str, list[int]] = {}
        self._slots = self.machine.slots
        self._ready: dict[str, list[Needs]] = {name: [[] for _ in range(self.cores)] for name in self._slots}
        self._read = {
            name: [deque([Needs() for _ in range(slot.depth)]) for _ in range(self.cores)] for name, slot in self._slots.items()
        }
        self._tails: dict[tuple[int, type, int], int] = {}
        self._fence: list[Needs] = [[] for _ in range(self.cores)]
        self._open: list[dict[int, None]] = [{} for _ in range(self.cores)]
        self._tags: dict[tuple[int, int], int] = {}

    def add_round(self, turn: Round, strand: int) -> None:
        """Add the nodes of one round of a strand; all of its instructions read the state before it."""
        reads = {name for step in turn.steps for name in buffers_read(step)}
        writes = {name for step in turn.steps for name in buffers_written(step)}
        ready = {name: [list(needs) for needs in self._ready[name]] for name in reads | writes}
        free = {name: [list(ages[-1]) for ages in self._read[name]] for name in writes}
        for step in turn.steps:
            if isinstance(step, MultiplyInstruction | VectorInstruction):
                self._compute(step, strand, ready, free)
            elif isinstance(step, LoadInstruction | StoreInstruction):
                self._transfer(step, ready, free)
            elif isinstance(step, SendInstruction):
                self._send(step, ready, free)
            else:
                self._group(step, ready, free)
        if turn.wait != "slots":
            self._synchronise(turn.wait)

    def _add(self, rank: int, name: str, kind: str, needs: Needs, seconds: float = 0.0, **attributes: Any) -> int:
        """Add a node to a rank; returns its number."""
        number = len(self.nodes[rank]) + 1
        needs = sorted({*needs, *self._fence[rank]})
        self.nodes[rank].append(TraceNode(number, name, kind, needs, seconds, attributes))
        for need in needs:
            self._open[rank].pop(need, None)
        self._open[rank][number] = None
        return number

    def _written(self, name: str, rank: int, writers: Needs, *, parts: bool = False) -> None:
        """Note new contents of a buffer: older versions age by one."""
        self._ready[name][rank] = [*self._ready[name][rank], *writers] if parts else list(writers)
        if not parts:
            self._read[name][rank].pop()
            self._read[name][rank].appendleft(Needs())
        self._read[name][rank][0] += writers

    def _was_read(self, name: str, rank: int, readers: Needs) -> None:
        self._read[name][rank][0] += readers

    def _compute(
        self,
        step: MultiplyInstruction | VectorInstruction,
        strand: int,
        ready: dict[str, list[Needs]],
        free: dict[str, list[Needs]],
    ) -> None:
        seconds, slots = engine_seconds(step, self.machine), self._slots
        if isinstance(step, MultiplyInstruction):
            operations, inputs, name = 2 * count_macs(step, slots), [step.a, step.b], "product"
            if step.combine == "sum":
                inputs.append(step.out)
        else:
            function = FUNCTIONS[step.function]
            operations = round(count_elements(step, slots) * (function.operations + function.specials))
            inputs, name = list(step.inputs), step.function
        moved = int(sum(buffer_bytes(slots[buffer]) for buffer in {*inputs, step.out}))
        for rank in range(self.cores):
            engine = (strand, type(step), rank)
            needs = [need for buffer in inputs for need in ready[buffer][rank]] + free[step.out][rank]
            needs += [self._tails[engine]] if engine in self._tails else []
            node = self._add(rank, name, "COMP_NODE", needs, seconds, num_ops=operations, tensor_size=moved)
            self._tails[engine] = node
            for buffer in inputs:
                self._was_read(buffer, rank, [node])
            self._written(step.out, rank, [node])

    def _transfer(
        self, step: LoadInstruction | StoreInstruction, ready: dict[str, list[Needs]], free: dict[str, list[Needs]]
    ) -> None:
        nbytes = int(buffer_bytes(self._slots[step.slot]))
        loading = isinstance(step, LoadInstruction)
        word, kind = ("load", "MEM_LOAD_NODE") if loading else ("store", "MEM_STORE_NODE")
        for rank in self._ranks(step.cores.row, step.cores.col, step.cores.shape):
            needs = list((free if loading else ready)[step.slot][rank])
            if isinstance(step, LoadInstruction) and step.rows:
                needs += ready[step.rows][rank]
            node = self._add(rank, f"{word} {step.stream}", kind, needs, tensor_size=nbytes)
            if loading:
                self._written(step.slot, rank, [node])
            else:
                self._was_read(step.slot, rank, [node])

    def _send(self, step: SendInstruction, ready: dict[str, list[Needs]], free: dict[str, list[Needs]]) -> None:
        into, slot = step.into or step.slot, self._slots[step.slot]
        shape = np.broadcast_shapes(step.source.shape, step.target.shape, np.shape(step.start))
        sources = self._ranks(step.source.row, step.source.col, shape)
        targets = self._ranks(step.target.row, step.target.col, shape)
        sizes = np.broadcast_to((step.stop - step.start) * slot.row_bytes, shape).ravel().tolist()
        values = np.broadcast_to((step.stop - step.start) * (slot.row_bytes / slot.itemsize), shape).ravel().tolist()
        parts = is_in_place(step, slot)
        arrived: dict[int, Needs] = {}
        for source, target, nbytes, count in zip(sources, targets, sizes, values, strict=True):
            over = [] if parts else free[into][target]
            came = self._message(step.slot, source, target, nbytes, ready[step.slot][source], over)
            if step.combine != "set":
                came = self._combine(target, count, [*came, *ready[into][target]])
            arrived.setdefault(target, []).extend(came)
        for target, writers in arrived.items():
            self._written(into, target, writers, parts=parts)

    def _group(
        self, step: MulticastInstruction | ReduceInstruction, ready: dict[str, list[Needs]], free: dict[str, list[Needs]]
    ) -> None:
        slot, members = self._slots[step.slot], step.path.shape[-1]
        groups = np.array(self._ranks(step.path.row, step.path.col, step.path.shape)).reshape(-1, members).tolist()
        rows = np.broadcast_to(step.stop - step.start, step.path.shape[:-1]).ravel()
        for ranks, height in zip(groups, rows.tolist(), strict=True):
            root, nbytes = ranks[0], height * slot.row_bytes
            if isinstance(step, MulticastInstruction):
                for rank in ranks:
                    came = self._message(step.slot, root, rank, nbytes, ready[step.slot][root], free[step.into][rank])
                    self._written(step.into, rank, came)
                continue
            came = [*ready[step.slot][root], *free[step.into][root]]
            for rank in ranks[1:]:
                came += self._message(step.slot, rank, root, nbytes, ready[step.slot][rank], free[step.into][root])
            if members > 1:
                came = self._combine(root, (members - 1) * nbytes / slot.itemsize, came)
            self._was_read(step.slot, root, came)
            self._written(step.into, root, came)

    def _message(self, slot: str, source: int, target: int, nbytes: float, needs: Needs, over: Needs) -> Needs:
        """Add a message; returns the nodes that are done when it has arrived.

        A message to the core itself takes no node.
        """
        if source == target:
            return [*needs, *over]
        tag = self._tags.get((source, target), 0)
        self._tags[source, target] = tag + 1
        attributes = {"comm_size": int(nbytes), "comm_src": source, "comm_dst": target, "comm_tag": tag}
        sent = self._add(source, f"send {slot}", "COMM_SEND_NODE", needs, **attributes)
        self._was_read(slot, source, [sent])
        return [self._add(target, f"receive {slot}", "COMM_RECV_NODE", over, **attributes)]

    def _combine(self, rank: int, values: float, needs: Needs) -> Needs:
        fabric = self.machine.fabric
        seconds = float(fabric.call + values * fabric.combine) if fabric.combine else 0.0
        return [self._add(rank, "combine", "COMP_NODE", needs, seconds, num_ops=round(values), tensor_size=0)]

    def _synchronise(self, wait: str) -> None:
        """Make everything later wait for all so far: on a core, on its row and column, or everywhere."""
        if wait == "core":
            for rank in range(self.cores):
                self._fence[rank] = list(self._open[rank])
            return
        names = {"line": ("row", "column"), "mesh": ("mesh",)}[wait]
        before = [list(open_nodes) for open_nodes in self._open]
        for rank in range(self.cores):
            row, col = divmod(rank, self.cols)
            barriers = []
            for name in names:
                place = {"row": f"row {row}", "column": f"column {col}", "mesh": "mesh"}[name]
                if rank not in self.groups.setdefault(place, []):
                    self.groups[place].append(rank)
                barriers.append(
                    self._add(
                        rank, f"barrier {place}", "COMM_COLL_NODE", before[rank],
                        comm_type=COLLECTIVES["barrier"], comm_size=0, pg_name=place,
                    )
                )  # fmt: skip
            self._fence[rank] = barriers

    def _ranks(self, row: Any, col: Any, shape: tuple[int, ...]) -> list[int]:
        ranks: list[int] = np.broadcast_to(row * self.cols + col, shape).ravel().astype(int).tolist()
        return ranks
