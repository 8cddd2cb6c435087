"""BookSim 2: packets of a mesh program with times and dependencies, and its routers.

BookSim 2 itself injects synthetic traffic only. File injection is an extension by others, whose lines have a cycle, a source, a
target and a number of flits. Neither has dependencies: these are in tables of this project beside the trace.
"""

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from dse.evaluators.cost_models.cycle_simulator import router_of_hop
from dse.evaluators.cost_models.program_trace import NetworkPackets, ProgramRun, ProgramTrace, count_messages, trace_program
from dse.evaluators.machine.traffic_flows import traffic_targets
from dse.exports.export_files import TraceSchema, refuse_many, write_lines, write_rows
from dse.space.array_math import Array
from dse.space.chip import Chip, Router
from dse.space.errors import DesignError
from dse.space.workload import NocTrafficCase

CONFIG_SCHEMA = TraceSchema(
    "BookSim 2 configuration", "github.com/booksim/booksim2", "0105eb4 (reference runs: 28f4329)", "src/booksim_config.cpp"
)
TRACE_SCHEMA = TraceSchema(
    "BookSim 2 file injection: cycle source target flits",
    "github.com/sseyyeda/Booksim2_TraceFileInjection",
    "the version of 2014-03-08",
    "fileinjecttrafficmanager.cpp",
)
SCHEMAS = (CONFIG_SCHEMA, TRACE_SCHEMA)

TASK_KINDS = ("note", "work", "block", "packet")
"""Words of `machine.task_kinds`, in their order."""

PATTERNS = {
    "uniform": "uniform",
    "transpose": "transpose",
    "bit_complement": "bitcomp",
    "tornado": "tornado",
    "neighbour": "neighbor",
}
"""Traffic patterns by BookSim's names; hotspots list their nodes."""

LEAST_HOP = 3
"""Cycles of a hop of the fastest router that BookSim's mesh has: allocation, the switch and the link."""


def write_booksim_program(run: ProgramRun, folder: Path, most: int) -> dict[str, Any]:
    """Write trace, configuration and dependency tables of a program; returns totals.

    Args:
        run: program and machine.
        folder: of the files, which exists.
        most: packets that the trace may have.

    Raises:
        DesignError: BookSim has no such network, or there are too many packets.
    """
    refuse_network(run)
    refuse_many(count_messages(run.program), most, "messages of cores")
    trace = trace_program(run)
    refuse_many(len(trace.packets.flits), most, "packets")
    side, order = max(run.program.rows, run.program.cols), np.argsort(np.ceil(trace.packets.start), kind="stable")
    packets = _sorted_packets(trace.packets, order)
    cycle = np.ceil(packets.start).astype(np.int64)
    source, target = (_square_nodes(nodes, run.program.cols, side) for nodes in (packets.source, packets.target))
    word, count = float(run.fabric.word_bytes), len(cycle)
    write_rows(folder / f"{run.name}.trace", (cycle, source, target, packets.flits), " ")
    write_rows(
        folder / f"{run.name}.packets.csv",
        (np.arange(count), packets.task, packets.parent, cycle, source, target, packets.flits, packets.flits * word),
        ",",
        "packet,task,parent,cycle,source,target,flits,bytes",
    )
    _write_dependencies(folder / run.name, trace)
    write_lines(folder / f"{run.name}.cfg", program_config_lines(run, side))
    hops = link_counts(packets, run.program.cols)
    return {
        "program": run.name,
        "rows": run.program.rows,
        "cols": run.program.cols,
        "packets": count,
        "flits": int(packets.flits.sum()),
        "flit_hops": int(packets.flits @ hops),
        "hop_bytes": float(packets.flits @ hops) * word,
        "activity_hop_bytes": float(run.activity.hop_bytes),
        "cycles": trace.cycles,
        "seconds_per_cycle": float(run.fabric.cycle),
        "router_hop_cycles": round(float(run.fabric.hop / run.fabric.cycle)),
        "word_pace_cycles": float(run.fabric.pace / run.fabric.cycle),
    }


def refuse_network(run: ProgramRun) -> None:
    """Refuse networks that BookSim's mesh does not have.

    Raises:
        DesignError: locked channels, several dies, faults, or links that need several cycles for a word.
    """
    fabric = run.fabric
    if fabric.locked > 0:
        raise DesignError(
            "chip.noc.routing: BookSim has no channels that a message locks from end to end; use chip.noc.routing=wormhole"
        )
    if run.faults:
        raise DesignError("chip.faults: BookSim's dimension-ordered routes do not go around faults; use chip.faults=none")
    if fabric.is_divided:
        raise DesignError("chip: BookSim's mesh has links of one kind, but the cores are on several dies; use cores of one die")
    if abs(float(fabric.word / fabric.cycle) - 1) > 1e-6:
        raise DesignError(
            f"chip.noc.word_cycles: BookSim's links take 1 cycle for a flit, got {float(fabric.word / fabric.cycle):g}; use 1"
        )


def link_counts(packets: NetworkPackets, cols: int) -> Array:
    """Links that each packet crosses. [-]"""
    (row, col), (to_row, to_col) = np.divmod(packets.source, cols), np.divmod(packets.target, cols)
    return np.asarray(np.abs(row - to_row) + np.abs(col - to_col))


def program_config_lines(run: ProgramRun, side: int) -> list[str]:
    """Lines of the configuration of a program's mesh."""
    hop = round(float(run.fabric.hop / run.fabric.cycle))
    router = router_of_hop(max(hop, LEAST_HOP), int(run.fabric.vcs), int(run.fabric.depth))
    notes = [f"// {run.name} on {run.program.rows} x {run.program.cols} cores; a flit is {run.fabric.word_bytes:g} B"]
    if side != run.program.rows or side != run.program.cols:
        notes.append(f"// BookSim's meshes are square: nodes are row * {side} + column, those beyond the program stay idle")
    if hop < LEAST_HOP:
        notes.append(f"// a hop of this chip takes {hop} cycles, and BookSim's mesh takes {LEAST_HOP} at least")
    pace = float(run.fabric.pace / run.fabric.cycle)
    if pace > 1:
        notes.append(f"// cores of this chip send a flit every {pace:g} cycles, and BookSim's sources one every cycle")
    return [
        *_header(notes),
        *_mesh_lines(side),
        *router_lines(router),
        "sim_type = file_inject;  // of the extension named above, not of BookSim 2 itself",
        "time_ratio = 1.0;",
    ]


def traffic_config_lines(chip: Chip, case: NocTrafficCase) -> list[str]:
    """Lines of the configuration of synthetic traffic on a mesh of routers.

    Raises:
        DesignError: the mesh is not square, or has faults, or flits that take several cycles.
    """
    rows, cols, router = int(chip.mesh.rows), int(chip.mesh.cols), chip.router
    if rows != cols:
        raise DesignError(
            f"chip.mesh.rows: synthetic traffic of BookSim needs a square mesh, got {rows} x {cols}; make it square"
        )
    if chip.faults not in (None, "none"):
        raise DesignError("chip.faults: BookSim's dimension-ordered routes do not go around faults; use chip.faults=none")
    if router.flit_x != 1 or router.flit_y != 1:
        raise DesignError("chip.router.flit_x: BookSim's links take 1 cycle for a flit; use 1 for flit_x and flit_y")
    if case.pattern in PATTERNS:
        traffic = PATTERNS[case.pattern]
    else:
        spots = ",".join(str(int(spot)) for spot in traffic_targets(case, rows, cols)[0])
        traffic = f"hotspot({{{{{spots}}}}})"
    return [
        *_header([f"// synthetic traffic: {case.label}"]),
        *_mesh_lines(rows),
        *router_lines(router),
        "sim_type = latency;",
        f"traffic = {traffic};",
        "injection_process = bernoulli;",
        "injection_rate_uses_flits = 1;",
        f"injection_rate = {case.rate:.10g};",
        f"packet_size = {case.flits};",
        f"sample_period = {max(case.period, ceil(case.packets / (rows * cols * case.rate / case.flits)))};",
        "warmup_periods = 3;",
        "max_samples = 10;",
        "include_queuing = 1;",
        f"seed = {case.seed};",
    ]


def router_lines(router: Router) -> list[str]:
    """Lines of the configuration of a router: channels, buffers and pipeline stages."""
    return [
        "router = iq;",
        f"num_vcs = {int(router.vcs)};",
        f"vc_buf_size = {int(router.vc_depth)};",
        "vc_allocator = islip;",
        "sw_allocator = islip;",
        "alloc_iters = 1;",
        "priority = none;",
        "input_speedup = 1;",
        "output_speedup = 1;",
        "internal_speedup = 1.0;",
        "wait_for_tail_credit = 0;",
        "hold_switch_for_packet = 0;",
        f"routing_delay = {int(router.route_cycles)};",
        f"vc_alloc_delay = {int(router.vc_alloc)};",
        f"sw_alloc_delay = {int(router.switch_alloc)};",
        "st_prepare_delay = 0;",
        f"st_final_delay = {int(router.switch_traversal)};",
        "output_delay = 0;",
        f"credit_delay = {int(router.credit)};",
        f"speculative = {int(bool(router.speculative))};",
    ]


def write_booksim_traffic(chip: Chip, case: NocTrafficCase, name: str, folder: Path) -> dict[str, Any]:
    """Write the configuration of synthetic traffic; returns what it asks for.

    Raises:
        DesignError: as of `traffic_config_lines`.
    """
    write_lines(folder / f"{name}.cfg", traffic_config_lines(chip, case))
    return {"program": name, "pattern": case.pattern, "rate": case.rate, "flits": case.flits, "rows": int(chip.mesh.rows)}


def _header(notes: list[str]) -> list[str]:
    return [f"// {CONFIG_SCHEMA.text}", f"// trace: {TRACE_SCHEMA.text}", *notes]


def _mesh_lines(side: int) -> list[str]:
    return ["topology = mesh;", f"k = {side};", "n = 2;", "routing_function = dor;", "use_noc_latency = 1;"]


def _square_nodes(nodes: Array, cols: int, side: int) -> Array:
    row, col = np.divmod(nodes, cols)
    return np.asarray(row * side + col)


def _sorted_packets(packets: NetworkPackets, order: Array) -> NetworkPackets:
    """Packets in the order of the trace, with the places of their parents there."""
    place = np.empty(len(order) + 1, np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
    columns = NetworkPackets(*(np.asarray(column)[order] for column in packets))
    return columns._replace(parent=place[columns.parent.astype(int)])


def _write_dependencies(stem: Path, trace: ProgramTrace) -> None:
    """Write the tasks of a program with their times, and which waits for which."""
    kinds = np.array(TASK_KINDS)[trace.kind]
    write_rows(
        stem.with_name(f"{stem.name}.tasks.csv"),
        (np.arange(len(kinds)), kinds, trace.place.astype(np.int64), trace.ready, trace.done),
        ",",
        "task,kind,place,ready_cycle,done_cycle",
    )
    write_rows(stem.with_name(f"{stem.name}.waits.csv"), (trace.before, trace.after), ",", "before,after")
