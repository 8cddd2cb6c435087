"""Exports to other simulators: what is written is read back, and has the packets, bytes and dependencies of the program."""

import csv
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import build_question
from dse.documents import build_schema
from dse.evaluators.cost_models.program_trace import NetworkPackets, ProgramRun, replay_packets, trace_program, tree_links
from dse.evaluators.machine.memory_system import map_addresses
from dse.evaluators.machine.task_kinds import PACKET
from dse.evaluators.program.activity_counts import count_macs, iterate_instructions
from dse.evaluators.program.kernel_ir import MultiplyInstruction, SendInstruction
from dse.exports import chakra
from dse.exports.chakra import NODE_TYPES, read_rank_file
from dse.exports.export_program import export_question
from dse.exports.kernel_programs import case_programs
from dse.exports.memory_requests import stream_trace
from dse.exports.protobuf_wire import decode_fields, decode_packed, encode_field, encode_packed, encode_varint, read_messages
from dse.space.dram import pseudo_channel_count
from dse.space.errors import DesignError

SMALL = ("chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4")
EXCHANGE = (
    "workload=collective", "workload.pattern=all_to_all", "mapping.collective=direct", "workload.group=mesh",
    "workload.group_axis=rectangle", "workload.root=0",
)  # fmt: skip
PROGRAMS = {
    "meshgemm": ("chip=wse2", "workload=gemm", "workload.shapes=[32x32x32]", "mapping.rows=4", "mapping.gemm=meshgemm"),
    "ktree": ("chip=wse2", "workload=gemv", "workload.shapes=[1x64x64]", "mapping.rows=4", "mapping.gemv=ktree"),
    "not square": ("chip=wse2", "workload=gemm", "workload.shapes=[24x24x24]", "mapping.rows=3", "mapping.cols=4"),
    "summa": ("chip=tile32", "workload=gemm", "workload.shapes=[128x128x128]", *SMALL),
    "attention": ("chip=tile32", "workload=attention", "workload.batch=1", "workload.heads=1", "workload.keys=[512]", *SMALL),
    "all_to_all": ("chip=tile32", *EXCHANGE, "workload.bytes=[2 KiB]", *SMALL),
    "trees": ("chip=tile32", "workload=collective", "workload.pattern=allreduce", "workload.bytes=[2 KiB]", *SMALL),
}
FROM_MEMORY = ("summa", "attention")
MOST = 200_000


def run_of(name: str) -> ProgramRun:
    question = build_question(compose(list(PROGRAMS[name])), Path())
    (run,) = case_programs(question.base, question.workload.cases[0])
    return run


def exported(name: str, to: str, folder: Path) -> dict[str, Any]:
    (entry,) = entries_of(list(PROGRAMS[name]), to, folder)
    return entry


def entries_of(words: list[str], to: str, folder: Path) -> list[dict[str, Any]]:
    """Totals of each program that was written, with its name."""
    document = export_question(compose(words), to, folder, MOST)
    return [{"program": entry.program, **entry.totals} for entry in document.entries]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def is_acyclic(pairs: list[tuple[Any, Any]]) -> bool:
    """Whether things that wait for one another have an order."""
    after, waits = defaultdict(list), Counter(b for _, b in pairs)
    for a, b in pairs:
        after[a].append(b)
    ready = [node for node in {a for a, _ in pairs} if not waits[node]]
    done = 0
    while ready:
        for node in after[ready.pop()]:
            done += 1
            waits[node] -= 1
            if not waits[node]:
                ready.append(node)
    return done == len(pairs)


def test_a_circle_is_noticed() -> None:
    assert is_acyclic([(1, 2), (2, 3), (1, 3)])
    assert not is_acyclic([(1, 2), (2, 3), (3, 2)])


@pytest.mark.parametrize("name", PROGRAMS)
def test_booksim_packets_are_those_of_the_program(name: str, tmp_path: Path) -> None:
    entry, run = exported(name, "booksim", tmp_path), run_of(name)
    trace = np.loadtxt(tmp_path / f"{entry['program']}.trace", dtype=int, ndmin=2)
    side, word = max(run.program.rows, run.program.cols), float(run.fabric.word_bytes)
    assert trace.shape == (entry["packets"], 4)
    assert (np.diff(trace[:, 0]) >= 0).all()
    (row, col), (to_row, to_col) = np.divmod(trace[:, 1], side), np.divmod(trace[:, 2], side)
    assert max(row.max(), to_row.max()) < run.program.rows
    assert max(col.max(), to_col.max()) < run.program.cols
    hops = np.abs(row - to_row) + np.abs(col - to_col)
    assert (hops > 0).all() or name in FROM_MEMORY  # a channel is at the router of a core
    assert trace[:, 3] @ hops * word == run.activity.hop_bytes == entry["activity_hop_bytes"] == entry["hop_bytes"]
    packets = rows_of(tmp_path / f"{entry['program']}.packets.csv")
    told = [[int(packet[key]) for key in ("cycle", "source", "target", "flits")] for packet in packets]
    assert told == trace.tolist()
    assert sum(float(packet["bytes"]) for packet in packets) == trace[:, 3].sum() * word


@pytest.mark.parametrize("name", PROGRAMS)
def test_booksim_dependencies_have_an_order_that_times_keep(name: str, tmp_path: Path) -> None:
    entry = exported(name, "booksim", tmp_path)
    tasks = {row["task"]: row for row in rows_of(tmp_path / f"{entry['program']}.tasks.csv")}
    waits = [(row["before"], row["after"]) for row in rows_of(tmp_path / f"{entry['program']}.waits.csv")]
    assert waits
    assert is_acyclic(waits)
    for before, after in waits:
        assert float(tasks[before]["ready_cycle"]) <= float(tasks[after]["done_cycle"]) + 1e-6
    packets = rows_of(tmp_path / f"{entry['program']}.packets.csv")
    assert {tasks[packet["task"]]["kind"] for packet in packets} == {"packet"}
    for number, packet in enumerate(packets):
        parent = int(packet["parent"])
        assert parent < number  # words come to a link of a tree before they leave it
        if parent >= 0:
            assert packets[parent]["target"] == packet["source"]
            assert packets[parent]["flits"] == packet["flits"]
    assert any(packet["parent"] != "-1" for packet in packets) == (name in ("trees", "summa", "attention"))


@pytest.mark.parametrize(
    ("name", "more", "near"),
    [
        ("meshgemm", ("chip.core.word_copy=1 cycle",), 1e-9),
        ("ktree", ("chip.core.word_copy=1 cycle",), 1e-9),
        ("all_to_all", (), 1e-9),
        ("summa", (), 0.05),
        ("attention", (), 0.05),
        ("trees", (), 0.2),
    ],
)
def test_a_trace_arrives_when_its_program_does(name: str, more: tuple[str, ...], near: float, tmp_path: Path) -> None:
    """Sources send a flit a cycle, and packets of trees have ways in and out of routers between."""
    words = [*PROGRAMS[name], *more]
    (entry,) = entries_of(words, "booksim", tmp_path)
    question = build_question(compose(words), Path())
    (run,) = case_programs(question.base, question.workload.cases[0])
    start, *rest = np.loadtxt(tmp_path / f"{entry['program']}.trace", dtype=int, ndmin=2).T
    packets = NetworkPackets(start.astype(float), *rest, rest[0], rest[0])
    trace, last = trace_program(run), float(replay_packets(run, packets).max())
    came = float(trace.ready[trace.after[trace.kind[trace.before] == PACKET]].max())
    assert last == pytest.approx(came, rel=near)


def test_sources_that_are_slower_are_said_in_the_configuration(tmp_path: Path) -> None:
    exported("ktree", "booksim", tmp_path)
    assert "send a flit every 3.1 cycles" in (tmp_path / "gemv_ktree.cfg").read_text()


def test_links_of_a_sum_are_fed_by_the_longest_branch() -> None:
    out = np.array([0b10000, 0b0010, 0b0010, 0, 0b1000, 0], np.uint8)  # 2 x 3: 2 to 1 to 0, and 4 to 1
    source, target, depth, parent = tree_links(out, 0, 3, True)
    links = dict(zip(zip(source.tolist(), target.tolist(), strict=True), depth.tolist(), strict=True))
    assert links == {(1, 0): 1, (2, 1): 0, (4, 1): 0}
    assert parent.tolist()[0] in (1, 2)


def settings(path: Path) -> dict[str, str]:
    """Settings of a configuration file, without comments."""
    pairs = re.findall(r"^(\w+) *= *([^;\n]+)", path.read_text(), re.MULTILINE)
    return {key: value.strip() for key, value in pairs}


ROUTER_A = {
    "topology": "mesh", "k": "8", "n": "2", "routing_function": "dor", "router": "iq", "num_vcs": "4", "vc_buf_size": "8",
    "vc_allocator": "islip", "sw_allocator": "islip", "alloc_iters": "1", "routing_delay": "1", "vc_alloc_delay": "1",
    "sw_alloc_delay": "1", "st_prepare_delay": "0", "st_final_delay": "1", "output_delay": "0", "credit_delay": "1",
    "speculative": "0", "use_noc_latency": "1", "input_speedup": "1", "internal_speedup": "1.0", "wait_for_tail_credit": "0",
}  # fmt: skip
"""Router with which the reference curves were measured."""


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (["chip=mesh8"], ROUTER_A),
        (["chip=mesh8_fast"], ROUTER_A | {"routing_delay": "0", "speculative": "1"}),
        (["chip=mesh8", "chip.router.vcs=1"], ROUTER_A | {"num_vcs": "1"}),
    ],
)
def test_booksim_traffic_has_the_reference_router(overrides: list[str], wanted: dict[str, str], tmp_path: Path) -> None:
    loads = ["workload.traffic=[transpose]", "workload.flits=[5]", "workload.rates=[0.14]"]
    export_question(compose([*overrides, "workload=traffic", *loads]), "booksim", tmp_path, MOST)
    told = settings(tmp_path / "traffic.cfg")
    assert wanted.items() <= told.items()
    load = {"traffic": "transpose", "injection_rate": "0.14", "packet_size": "5", "injection_rate_uses_flits": "1"}
    assert load.items() <= told.items()


def test_a_program_has_the_router_of_its_chip(tmp_path: Path) -> None:
    export_question(
        compose([*PROGRAMS["ktree"], "chip.noc.hop_cycles=5 cycle", "chip.noc.ramp_cycles=6 cycle"]), "booksim", tmp_path, MOST
    )
    told = settings(tmp_path / "gemv_ktree.cfg")
    assert told["routing_delay"] == "1"
    assert told["sim_type"].startswith("file_inject")
    text = (tmp_path / "gemv_ktree.cfg").read_text()
    assert "0105eb4" in text
    assert "takes 3 at least" not in text


def split_bits(address: int, sizes: list[tuple[str, int]]) -> dict[str, int]:
    """Fields of an address, the lowest first."""
    found = {}
    for name, size in sizes:
        address, found[name] = divmod(address, size)
    assert address == 0
    return found


LOW_FIRST = {
    "dramsim3": ("column", "channel", "bank", "group", "row"),  # rorabgbachco
    "ramulator": ("channel", "column", "group", "bank", "row"),  # RoBaRaCoCh
}
WRITES = {"dramsim3": "WRITE", "ramulator": "ST"}


@pytest.mark.parametrize("to", LOW_FIRST)
@pytest.mark.parametrize("overrides", [(), ("chip.dram.hashed=bank", "chip.dram.order=row_bank_column_group")])
def test_addresses_of_a_stream_are_at_the_places_of_the_memory(to: str, overrides: tuple[str, ...], tmp_path: Path) -> None:
    words = [
        "chip=hbm2_legacy",
        "workload=stream",
        "workload.patterns=[random]",
        "workload.requests=500",
        "workload.writes=[0.3]",
    ]
    words = [word.replace("chip.dram", "chip.memory") for word in (*words, *overrides)]
    export_question(compose(words), to, tmp_path, MOST)
    question = build_question(compose(words), Path())
    trace = stream_trace(question.base, question.workload.cases[0], MOST)
    memory, lines = trace.memory, [line.split() for line in (tmp_path / "stream.trace").read_text().splitlines()]
    column = int(memory.row / memory.access)
    extents = {
        "column": column,
        "channel": int(pseudo_channel_count(memory)),
        "bank": int(memory.banks),
        "group": int(memory.groups),
        "row": int(memory.rows),
    }
    sizes = [("byte", int(memory.access)), *((name, extents[name]) for name in LOW_FIRST[to])]
    at, word = (0, 1) if to == "dramsim3" else (1, 0)
    places = [split_bits(int(line[at], 16), sizes) for line in lines]
    assert [line[word] == WRITES[to] for line in lines] == trace.write.tolist()
    assert 100 < sum(trace.write) < 200
    for name in LOW_FIRST[to]:
        assert [place[name] for place in places] == getattr(trace, name).tolist()


def test_dramsim3_has_the_reference_memory(tmp_path: Path) -> None:
    export_question(compose(["chip=hbm2_legacy", "workload=stream"]), "dramsim3", tmp_path, MOST)
    told = settings(tmp_path / "stream.ini")
    wanted = {
        "bankgroups": "4", "banks_per_group": "4", "rows": "32768", "columns": "64", "device_width": "128", "BL": "4",
        "tCK": "1", "CL": "14", "CWL": "4", "tRCDRD": "14", "tRCDWR": "14", "tRP": "14", "tRAS": "34", "tRFC": "260",
        "tREFI": "3900",
        "tRRD_S": "4", "tRRD_L": "6", "tWTR_S": "6", "tWTR_L": "8", "tFAW": "30", "tWR": "16", "tCCD_S": "1", "tCCD_L": "2",
        "bus_width": "128", "channels": "1", "address_mapping": "rorabgbachco", "queue_structure": "PER_BANK",
        "cmd_queue_size": "8", "trans_queue_size": "32", "row_buf_policy": "OPEN_PAGE",
    }  # fmt: skip
    assert wanted.items() <= told.items()
    assert int(told["channel_size"]) == 4 * 4 * 32768 * 2048 >> 20


@pytest.mark.parametrize("to", LOW_FIRST)
@pytest.mark.parametrize("name", FROM_MEMORY)
def test_memory_requests_are_those_of_the_program(name: str, to: str, tmp_path: Path) -> None:
    entries, run = entries_of(list(PROGRAMS[name]), to, tmp_path), run_of(name)
    assert run.banks is not None
    access = int(run.banks.memory.access)
    assert sum(entry["program_bytes"] for entry in entries) == run.activity.memory_bytes
    count = 0
    for entry in entries:
        lines = [line.split() for line in (tmp_path / f"{entry['program']}.trace").read_text().splitlines()]
        count += len(lines)
        assert len(lines) == entry["requests"] == entry["reads"] + entry["writes"]
        if to == "dramsim3":
            cycles = [int(line[2]) for line in lines]
            assert cycles == sorted(cycles)
        if to == "ramulator":
            assert f"path: {entry['program']}.trace" in (tmp_path / f"{entry['program']}.yaml").read_text()
    assert count * access == run.activity.memory_bytes


def test_addresses_of_a_program_stay_in_their_channel() -> None:
    run = run_of("summa")
    assert run.banks is not None
    channel, _ = map_addresses(run.banks.channel_memory, np.arange(0, 1 << 20, 4096))
    assert channel.max() < run.banks.pseudo


def schema() -> Any:
    """Messages of et_def.proto, built without this package's encoder."""
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="t", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name: str, fields: list[tuple[str, int, int, bool, str]]) -> None:
        part = file.message_type.add(name=name)
        for field, number, kind, repeated, of in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            part.field.add(name=field, number=number, type=kind, label=label, **({"type_name": of} if of else {}))

    text, whole, flag = kinds.TYPE_STRING, kinds.TYPE_UINT64, kinds.TYPE_BOOL
    message("Flags", [("values", 1, flag, True, "")])
    message(
        "Attribute",
        [
            ("name", 1, text, False, ""), ("double_val", 3, kinds.TYPE_DOUBLE, False, ""),
            ("int32_val", 7, kinds.TYPE_INT32, False, ""), ("int64_val", 9, kinds.TYPE_INT64, False, ""),
            ("uint64_val", 13, whole, False, ""), ("bool_val", 27, flag, False, ""),
            ("bool_list", 28, kinds.TYPE_MESSAGE, False, ".t.Flags"), ("string_val", 29, text, False, ""),
        ],
    )  # fmt: skip
    message("Metadata", [("version", 1, text, False, ""), ("attr", 2, kinds.TYPE_MESSAGE, True, ".t.Attribute")])
    message(
        "Node",
        [
            ("id", 1, whole, False, ""), ("name", 2, text, False, ""), ("type", 3, kinds.TYPE_INT32, False, ""),
            ("ctrl_deps", 4, whole, True, ""), ("data_deps", 5, whole, True, ""), ("start_time_micros", 6, whole, False, ""),
            ("duration_micros", 7, whole, False, ""), ("attr", 10, kinds.TYPE_MESSAGE, True, ".t.Attribute"),
        ],
    )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in ("Metadata", "Node")}


FIELDS = {
    "num_ops": "int64_val", "tensor_size": "uint64_val", "comm_type": "int64_val", "comm_size": "int64_val",
    "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val", "is_cpu_op": "bool_val", "pg_name": "string_val",
    "duration_ns": "double_val",
}  # fmt: skip
"""Field of an attribute in which ASTRA-sim looks for it; the last one is this project's."""


def test_chakra_files_are_what_protocol_buffers_read(tmp_path: Path) -> None:
    entry, classes = exported("summa", "chakra", tmp_path), schema()
    for rank in range(entry["ranks"]):
        path = tmp_path / f"{entry['program']}.{rank}.et"
        head, *messages = read_messages(path)
        assert classes["Metadata"].FromString(head).version == "0.0.4"
        told = [classes["Node"].FromString(message) for message in messages]
        for node, read in zip(told, read_rank_file(path), strict=True):
            assert (node.id, node.name, node.type) == (read.number, read.name, NODE_TYPES[read.kind])
            assert list(node.data_deps) == list(read.needs)
            values = {each.name: getattr(each, FIELDS[each.name]) for each in node.attr if each.name in FIELDS}
            assert values == {name: value for name, value in read.attributes.items() if name in FIELDS}
            assert node.duration_micros == (max(round(read.seconds * 1e6), 1) if read.seconds else 0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_chakra_nodes_are_those_of_the_program(name: str, tmp_path: Path) -> None:
    entry, run = exported(name, "chakra", tmp_path), run_of(name)
    ranks = [read_rank_file(tmp_path / f"{entry['program']}.{rank}.et") for rank in range(entry["ranks"])]
    assert len(ranks) == run.program.rows * run.program.cols
    assert sum(map(len, ranks)) == entry["nodes"]
    pairs, sent, came = [], {}, {}
    for rank, nodes in enumerate(ranks):
        numbers = {node.number for node in nodes}
        for node in nodes:
            assert set(node.needs) <= numbers
            pairs += [((rank, need), (rank, node.number)) for need in node.needs]
            if node.kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
                key = tuple(node.attributes[name] for name in ("comm_src", "comm_dst", "comm_tag", "comm_size"))
                assert rank == key[node.kind == "COMM_RECV_NODE"]
                (sent if node.kind == "COMM_SEND_NODE" else came)[key] = (rank, node.number)
    assert sent.keys() == came.keys()
    assert is_acyclic([*pairs, *((sent[key], came[key]) for key in sent)])
    every = [node for nodes in ranks for node in nodes]
    products = sum(node.attributes["num_ops"] for node in every if node.name == "product")
    assert products == 2 * run.activity.macs
    assert sum(node.attributes["tensor_size"] for node in every if node.kind.startswith("MEM_")) == run.activity.memory_bytes
    if all(isinstance(step, SendInstruction) for step, _ in iterate_instructions(run.program) if hasattr(step, "via")):
        assert sum(size for *_, size in sent) == run.activity.sent_bytes


def test_macs_are_those_of_the_shape() -> None:
    run = run_of("meshgemm")
    slots = {slot.name: slot for slot in run.program.slots}
    steps = [(step, times) for step, times in iterate_instructions(run.program) if isinstance(step, MultiplyInstruction)]
    assert sum(times * count_macs(step, slots) * 16 for step, times in steps) == 32**3


STEP = ("chip=h100", "model=llama3_8b", "workload.batch=[2]", "workload.prompt=512", "workload.output=8")


@pytest.mark.parametrize("tp", [2, 4])
def test_a_step_of_dies_has_its_collectives_and_its_time(tp: int, tmp_path: Path) -> None:
    entries = entries_of([*STEP, f"mapping.both.tp={tp}", "mapping.both.prefetch=none"], "chakra", tmp_path)
    assert [entry["program"] for entry in entries] == ["prefill", "decode"]
    for entry in entries:
        ranks = [read_rank_file(tmp_path / f"{entry['program']}.{rank}.et") for rank in range(tp)]
        assert all(rank == ranks[0] for rank in ranks)
        assert sum(node.seconds for node in ranks[0]) == pytest.approx(entry["iteration_seconds"], rel=1e-9)
        sums = [node for node in ranks[0] if node.kind == "COMM_COLL_NODE"]
        assert len(sums) == 2 * 32
        tokens = 2 * 512 if entry["program"] == "prefill" else 2
        assert {node.attributes["comm_size"] for node in sums} == {tokens * 4096 * 2}
        assert all(need < node.number for node in ranks[0] for need in node.needs)
    assert entries[0]["operations"] * tp == pytest.approx(2 * 512 * 2 * 7.5e9, rel=0.1)  # parameters of its layers


def test_a_prefetch_is_a_load_that_its_call_waits_for(tmp_path: Path) -> None:
    entries = entries_of(["chip=ascend910b", *STEP[1:], "mapping.both.tp=4", "mapping.both.prefetch=whole"], "chakra", tmp_path)
    nodes = read_rank_file(tmp_path / "decode.0.et")
    loads = [node for node in nodes if node.kind == "MEM_LOAD_NODE"]
    assert entries[1]["MEM_LOAD_NODE"] == len(loads) > 0
    awaited = {need for node in nodes for need in node.needs if node.kind == "COMP_NODE"}
    assert {node.number for node in loads} <= awaited


def test_collectives_of_dies_are_one_node_a_rank(tmp_path: Path) -> None:
    words = (
        "chip=h100",
        "mapping.both.tp=4",
        "workload=collective",
        "workload.pattern=allreduce",
        *EXCHANGE[3:],
        "workload.bytes=[64 KiB]",
    )
    words = tuple(word for word in words if not word.startswith("mapping.collective"))
    (entry,) = entries_of(list(words), "chakra", tmp_path)
    assert entry["ranks"] == 4
    for rank in range(4):
        (node,) = read_rank_file(tmp_path / f"allreduce.{rank}.et")
        assert node.kind == "COMM_COLL_NODE"
        assert node.attributes["comm_size"] == 65536
        assert node.attributes["comm_type"] == 0
        assert node.seconds == pytest.approx(entry["seconds"])


@pytest.mark.parametrize(
    ("to", "words", "why"),
    [
        ("booksim", ["chip=wse2", "workload=gemm"], "--max-packets: 746,496,000 messages of cores exceed 200,000"),
        ("chakra", ["chip=wse2", "workload=gemm"], "--max-packets: "),
        ("dramsim3", ["chip=hbm2_legacy", "workload=stream", "workload.requests=1000000"], "1,000,000 memory requests exceed"),
        ("ramulator", list(PROGRAMS["ktree"]), "loads nothing from memory whose banks are known"),
        ("booksim", ["chip=h100"], "has no programs of a mesh of cores"),
        ("booksim", ["chip=npu64", "workload=collective"], "has no channels that a message locks"),
        ("booksim", [*PROGRAMS["ktree"], "chip.noc.word_cycles=2 cycle"], "BookSim's links take 1 cycle for a flit, got 2"),
        ("booksim", ["chip=mesh8", "workload=traffic", "chip.faults=3-4"], "do not go around faults"),
        ("booksim", ["chip=mesh8", "workload=traffic", "chip.mesh.rows=4"], "needs a square mesh, got 4 x 8"),
        (
            "booksim",
            ["chip=tile32", "workload=gemm", "chip.tile.sram=1 kB"],
            "violates a limit: needs 5.12 kB of chip.tile.sram",
        ),
        ("chakra", ["chip=h100", "model=llama3_70b", "mapping.both.tp=1"], "violates a limit: needs 186.2 GB"),
        ("softhier", ["chip=tile32", "workload=gemm"], "no format of tile programs"),
        ("chakra", ["chip=wafer64", "model=deepseek_v3", "workload.batch=[256]"], "one pipeline stage"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(to: str, words: list[str], why: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as refused:
        export_question(compose(words), to, tmp_path / "out", MOST)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_it_wrote(tmp_path: Path, typed: Any) -> None:
    code, out, err = typed("export-program", *PROGRAMS["ktree"], "--to", "booksim", "--out", str(tmp_path / "a"), "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["entries"][0]["totals"]["packets"] > 0
    jsonschema.validate(document, build_schema("export-program"))
    assert {schema["source"] for schema in document["schemas"]} == {
        "github.com/booksim/booksim2", "github.com/sseyyeda/Booksim2_TraceFileInjection"
    }  # fmt: skip
    assert document == json.loads((tmp_path / "a/summary.json").read_text())
    code, _, err = typed("export-program", *PROGRAMS["ktree"], "--to", "booksim", "--out", str(tmp_path / "a"))
    assert code == 0
    assert "0105eb4" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--to", "booksi"), "did you mean 'booksim'?"),
        ((), "--to: missing; choose one of booksim, chakra, dramsim3, ramulator, softhier"),
        (("--to", "booksim", "--max-packets", "many"), "'many' is not a number"),
        (("--to", "booksim", "--max-packets", "0"), "0 is below the minimum, 1"),
        (("--to", "booksim", "--out", "/dev/null/x"), "name another folder"),
    ],
)
def test_the_command_refuses_in_one_line(words: tuple[str, ...], why: str, typed: Any) -> None:
    code, _, err = typed("export-program", *PROGRAMS["ktree"], *words)
    assert code != 0
    assert why in err
    assert err.count("\n") == 1


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.text(max_size=20), st.floats(allow_nan=False))
def test_fields_are_read_as_written(values: list[int], text: str, number: float) -> None:
    message = encode_packed(5, values) + encode_field(2, text) + encode_field(3, number) + encode_field(1, -1)
    fields = dict(decode_fields(message))
    assert decode_packed(fields.get(5, b"")) == values
    assert fields[2].decode() == text
    assert fields[3] == number
    assert fields[1] == 2**64 - 1


@given(st.binary(max_size=60))
def test_damaged_files_are_refused_in_one_line(content: bytes) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path, said = Path(folder) / "x.et", ""
        path.write_bytes(content)
        try:
            nodes = read_rank_file(path)
        except DesignError as error:
            said, nodes = str(error), []
        assert "\n" not in said
        assert all(node.kind in NODE_TYPES for node in nodes)


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    entry = exported("ktree", "chakra", tmp_path)
    path = tmp_path / f"{entry['program']}.0.et"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DesignError, match="the file is cut"):
        read_rank_file(path)
    path.write_bytes(encode_varint(1 << 40))
    with pytest.raises(DesignError, match="exceeds"):
        read_rank_file(path)
    assert chakra.VERSION == "0.0.4"
