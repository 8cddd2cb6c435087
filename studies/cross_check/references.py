"""Reference points of BookSim 2 and DRAMsim3, reproduced from exported files alone.

Each point is exported as `dse export-program` does. The files are read back, and what they say is simulated: routers and load
of a BookSim configuration, or memory and requests of a DRAMsim3 configuration and trace. The result is compared with what the
simulator itself gave for that point.
"""

import csv
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.cost_models.program_trace import NetworkPackets, ProgramRun, replay_packets
from dse.evaluators.machine.memory_system import simulate_memory
from dse.evaluators.program.kernel_ir import Program
from dse.evaluators.workloads.kernels import evaluate_cases
from dse.exports.booksim import PATTERNS
from dse.exports.export_files import LARGEST_MAX_PACKETS
from dse.exports.export_program import export_question
from dse.space.dram import MemorySystem
from dse.space.fields import replace_leaves
from dse.space.main_memory import main_memory

STUDIES = Path(__file__).parents[1]
LINK_CYCLES = 1
"""Cycles of a link of BookSim's mesh."""

POINTS = {"booksim": STUDIES / "noc_curves" / "published.csv", "dramsim3": STUDIES / "hbm_patterns" / "published.csv"}
"""Files of points that a simulator gave, by simulator."""


class ReferencePoint(NamedTuple):
    """A point of a reference simulator, and what its exported files give here.

    Attributes:
        simulator: that the point is from.
        name: of the point, its id in the study's file.
        metric: what is compared.
        reference: of the simulator, in cycles or as a ratio.
        replayed: of the exported files, simulated here.
    """

    simulator: str
    name: str
    metric: str
    reference: float
    replayed: float


def replay_points() -> Iterator[ReferencePoint]:
    """All points, exported and simulated from their files; equal exports are simulated once."""
    for simulator, path in POINTS.items():
        known: dict[str, dict[str, float]] = {}
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            words = row["overrides"]
            if words not in known:
                known[words] = replay(simulator, [word for word in shlex.split(words) if not word.startswith("fidelity=")])
            metric = row["metric"]
            yield ReferencePoint(simulator, row["id"], metric, float(row["value"]), known[words][metric])


def replay(simulator: str, words: list[str]) -> dict[str, float]:
    """Metrics of an export, from its files."""
    with TemporaryDirectory() as folder:
        export_question(compose(words), simulator, Path(folder), LARGEST_MAX_PACKETS)
        if simulator == "booksim":
            return replay_traffic(Path(folder) / "traffic.cfg")
        return replay_requests(Path(folder) / "stream.ini", Path(folder) / "stream.trace")


def read_settings(path: Path) -> dict[str, str]:
    """Settings of a configuration, ``name = value`` in each line, without comments."""
    pairs = re.findall(r"^(\w+) *= *([^;\n]+)", path.read_text(), re.MULTILINE)
    return {name: value.strip() for name, value in pairs}


def replay_traffic(path: Path) -> dict[str, float]:
    """Metrics of routers under the load of a BookSim configuration, cycle by cycle."""
    settings = read_settings(path)
    patterns = {word: pattern for pattern, word in PATTERNS.items()}
    words = [
        "chip=mesh8",
        f"chip.mesh.rows={settings['k']}",
        f"chip.mesh.cols={settings['k']}",
        f"chip.router.vcs={settings['num_vcs']}",
        f"chip.router.vc_depth={settings['vc_buf_size']}",
        f"chip.router.route_cycles={settings['routing_delay']} cycle",
        f"chip.router.vc_alloc={settings['vc_alloc_delay']} cycle",
        f"chip.router.switch_alloc={settings['sw_alloc_delay']} cycle",
        f"chip.router.switch_traversal={settings['st_final_delay']} cycle",
        f"chip.router.credit={settings['credit_delay']} cycle",
        f"chip.router.speculative={'true' if settings['speculative'] == '1' else 'false'}",
        "workload=traffic",
        f"workload.traffic=[{patterns[settings['traffic']]}]",
        f"workload.rates=[{settings['injection_rate']}]",
        f"workload.flits=[{settings['packet_size']}]",
    ]
    question = build_question(compose(words), Path())
    (outcome,) = evaluate_cases(question.base, question.workload, "cycles")
    return {name: float(np.ravel(value)[0]) for name, value in outcome.metrics.items()}


def replay_requests(config: Path, trace: Path) -> dict[str, float]:
    """Metrics of a memory under the requests of a DRAMsim3 trace, command by command. [1], [cycle]"""
    memory = read_memory(read_settings(config))
    lines = [line.split() for line in trace.read_text().splitlines()]
    address = np.array([int(line[0], 16) for line in lines])
    write = np.array([line[1] == "WRITE" for line in lines])
    arrival = np.array([int(line[2]) for line in lines]) / float(memory.clock)
    report = simulate_memory(memory, address, int(memory.access), write, arrival)
    latency = float(report.latencies.mean()) * float(memory.clock)
    return {"bandwidth_efficiency": report.share, "read_latency": latency}


def replay_trace(config: Path, trace: Path, run: ProgramRun) -> float:
    """Last arrival of the packets of an exported trace on its exported routers, open loop. [cycle]

    Args:
        config, trace: exported files of a program.
        run: the program's network, of which only the ways between core and router and the clock are taken.
    """
    settings = read_settings(config)
    side, stages = int(settings["k"]), ("routing_delay", "vc_alloc_delay", "sw_alloc_delay", "st_final_delay")
    hop = (
        sum(int(settings[name]) for name in stages)
        + LINK_CYCLES
        - int(settings["speculative"]) * int(settings["vc_alloc_delay"])
    )
    start, source, target, flits = np.loadtxt(trace, dtype=np.int64, ndmin=2).T
    fabric = run.fabric._replace(hop=hop * run.fabric.cycle, vcs=int(settings["num_vcs"]), depth=int(settings["vc_buf_size"]))
    mesh = ProgramRun(run.name, Program(side, side, (), ()), fabric)
    packets = NetworkPackets(start.astype(float), source, target, flits, source, np.full(len(source), -1))
    return float(replay_packets(mesh, packets).max(initial=0.0))


def read_memory(settings: dict[str, str]) -> MemorySystem:
    """Memory of a DRAMsim3 configuration; only path and hashing are those of this project's memory."""
    base = main_memory(build_question(compose(["chip=hbm2_legacy", "workload=stream"]), Path()).base.chip).banks
    assert base is not None
    number = {name: float(value) for name, value in settings.items() if re.fullmatch(r"[\d.]+", value)}
    access = number["bus_width"] / 8 * number["BL"]
    burst = number["BL"] / 2
    values: dict[str, Any] = {
        "stacks": 1, "channels": number["channels"], "pseudo": 1, "groups": number["bankgroups"],
        "banks": number["banks_per_group"], "rows": number["rows"], "access": access, "granularity": access,
        "row": 2 * number["columns"] * number["device_width"] / 8, "clock": 1e9 / number["tCK"],
        "controller.waiting": number["trans_queue_size"], "controller.queue": number["cmd_queue_size"],
        "timing.cl": number["CL"], "timing.cwl": number["CWL"], "timing.rcd_read": number["tRCDRD"],
        "timing.rcd_write": number["tRCDWR"], "timing.rp": number["tRP"], "timing.ras": number["tRAS"],
        "timing.rrd_s": number["tRRD_S"], "timing.rrd_l": number["tRRD_L"], "timing.faw": number["tFAW"],
        "timing.ccd_s": number["tCCD_S"], "timing.ccd_l": number["tCCD_L"], "timing.wtr_s": number["tWTR_S"],
        "timing.wtr_l": number["tWTR_L"], "timing.rtw": number["CL"] + burst - number["CWL"] + number["tRPRE"],
        "timing.wr": number["tWR"], "timing.rtp": number["tRTP_L"], "timing.burst": burst, "timing.refi": number["tREFI"],
        "timing.rfc": number["tRFC"],
    }  # fmt: skip
    memory: MemorySystem = replace_leaves(base, {name: _whole(value) for name, value in values.items()})
    return memory


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value
