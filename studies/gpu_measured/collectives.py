"""Measured NCCL collectives between dies of a node, and the stack parts fitted on them."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.kernels.library.node_collectives import NodeGroup, all_to_all_seconds, ring_seconds
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.libraries.node_collectives import AllToAll, RingCollectives, SwitchAllreduce
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

RINGS = ("start", "step", "low", "middle_start", "middle", "bulk_start", "bulk")
SWITCHED = ("switched.start", "switched.share")
EXCHANGES = ("start", "lane", "buffered", "low", "bulk_start", "bulk")
PATTERNS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}
"""Names of collectives in the tables, and in a workload."""

LEAST = 65536
"""Bytes of an exchange of each with all below which times of eight dies jump between two values, without order: such rows are
reports. Those of fewer dies do not, and come after all others, which keep their roles."""


def parts(folder: Path) -> list[FittedPart]:
    """Collective parts from NCCL's benchmark on each chip."""
    rows = {chip: _nccl(folder, device) for chip, device in DEVICES.items()}
    tested, many = (6e-6, 9e-7, 0.03, 2e-6, 0.36, 2e-5, 0.7), (3e-5, 5e-6, 0.2, 2e-5, 0.8, 8e-5, 1.0)
    low = (0.0, 0.0, 0.002, 0.0, 0.05, 0.0, 0.2)
    nvidia = "aiconfigurator2025"
    parts = [
        part_of(
            "ring_collectives",
            "nccl_h100",
            "h100",
            rows["h100"][0],
            (*RINGS, *SWITCHED),
            _record(RingCollectives),
            {},
            nvidia,
            ((*tested, 5e-5, 0.66), (*low, 0.0, 0.2), (*many, 2e-4, 1.0)),
        ),
        part_of(
            "ring_collectives",
            "nccl_a100",
            "a100",
            rows["a100"][0],
            RINGS,
            _record(RingCollectives),
            {},
            nvidia,
            (tested, low, many),
        ),
    ]
    for chip, row in rows.items():
        bounds = (8e-6, 5e9, 6e-6, 0.3, 2e-5, 0.7), (0.0, 1e9, 0.0, 0.02, 0.0, 0.1), (3e-5, 5e10, 3e-5, 1.0, 1e-4, 1.0)
        parts.append(part_of("all_to_all", f"nccl_{chip}", chip, row[1], EXCHANGES, _record(AllToAll), {}, nvidia, bounds))
    return parts


JUMPS = 8
"""Dies whose short exchanges jump."""

DEVICES = {"h100": "H100-SXM5-80GB", "a100": "A100-SXM4-80GB"}
"""Chips of conf, as the tables call them."""


def _record(make_record: Any) -> Callable[[Vector], Any]:
    names = {RingCollectives: RINGS, AllToAll: EXCHANGES}[make_record]

    def record(values: Vector) -> Any:
        found_values = dict(zip(names, map(float, values), strict=False))
        rest = [float(value) for value in values[len(names) :]]
        return make_record(**found_values, **({"switched": SwitchAllreduce(start=rest[0], share=rest[1])} if rest else {}))

    return record


def part_of(
    kind: str, stack: str, chip: str, rows: tuple[PartRow, ...], names: tuple[str, ...], made: Any, reasons: dict[str, str],
    sources: str, ends: tuple[tuple[float, ...], ...],
) -> FittedPart:  # fmt: skip
    """A part of rings or exchanges with fitted numbers, their start values and bounds."""
    seconds = {"ring_collectives": _ringed, "all_to_all": _exchanged}[kind]
    priced = partial(seconds, links_of(chip))
    return FittedPart(kind, stack, chip, rows, made, priced, names, *ends, reasons, sources)


@cache
def links_of(chip: str) -> float:
    """Bandwidth of all links of a preset chip, in one direction. [B/s]"""
    network = build_question(compose([f"chip={chip}"]), Path()).base.chip.network
    return float(network.ports) * float(network.bandwidth)


def _ringed(links: float, sizes: dict[str, Vector], sort: str, constants: RingCollectives, silicon: LibraryDie) -> Vector:
    seconds: Vector = ring_seconds(sort, sizes["bytes"], NodeGroup(sizes["peers"], links, silicon.bandwidth), constants)
    return seconds


def _exchanged(links: float, sizes: dict[str, Vector], sort: str, constants: AllToAll, silicon: LibraryDie) -> Vector:
    seconds: Vector = all_to_all_seconds(sizes["bytes"], NodeGroup(sizes["peers"], links, silicon.bandwidth), constants)
    return seconds


def row(pattern: str, peers: int, nbytes: int, seconds: float, where: str, *, recorded: bool = True) -> PartRow:
    """Measured row of one collective."""
    words = "workload=collective mapping=sglang mapping.both.allreduce=library workload.group_axis=rectangle workload.root=0"
    words += f" mapping.both.tp={peers} workload.pattern={pattern} workload.bytes=[{nbytes}B]"
    words += "" if recorded else " workload.recorded=false"
    sort = pattern if recorded else f"{pattern} by the host"
    return PartRow({"bytes": float(nbytes), "peers": float(peers)}, sort, words, seconds, where)


def _nccl(folder: Path, device: str) -> tuple[tuple[PartRow, ...], tuple[PartRow, ...]]:
    """Rings, and exchanges of each with all."""
    rows: tuple[list[PartRow], list[PartRow], list[PartRow]] = [], [], []
    for entry, where in table(folder, "aic_collectives.csv"):
        if entry["library"] == "nccl" and entry["device"] == device:
            pattern, nbytes, peers = PATTERNS[entry["kind"]], int(entry["bytes"]), int(entry["gpus"])
            exchanged = pattern == "all_to_all"
            short = exchanged and nbytes < LEAST
            if not short or peers < JUMPS:
                rows[exchanged + short].append(row(pattern, peers, nbytes, float(entry["seconds"]), where))
    return tuple(rows[0]), (*rows[1], *rows[2])
