"""Measured allreduces of inference engines and frameworks, and the stack parts fitted on them.

Long vectors use the rings of NCCL as conf has them, which `collectives` fits before.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from dse.config.compose import CONF
from dse.config.record_parser import parse_record
from dse.evaluators.kernels.library.node_collectives import NodeGroup, one_shot_seconds, ring_seconds
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.errors import DesignError
from dse.space.libraries.node_collectives import OneShotAllreduce, RingCollectives
from dse.studies.gpu_measured.collectives import DEVICES, RINGS, links_of, part_of, row
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

SHORT = ("start", "peer", "reach", "second", "one", "two")
BY_HOST = ("floor", "call")

UNSTARTED = "no row is started by the host: as vllm_h100"
HOST = {"floor": 2.17e-5, "call": 5e-6}
"""Of an allreduce that the host starts, as vllm_h100 has them. [s]"""

OTHERS = "as rings of nccl_a100: rows here are too few, or too large, to say"


def parts(folder: Path) -> list[FittedPart]:
    """Allreduce parts of engines, then of frameworks."""
    parts = [_short(folder, f"trtllm_{chip}", chip, SHORT, "TRTLLM") for chip in ("h100", "a100")]
    return [*parts, _short(folder, "vllm_h100", "h100", (*SHORT, *BY_HOST), "vLLM"), _profiled(folder), _eager(folder)]


def _short(folder: Path, stack: str, chip: str, names: tuple[str, ...], library: str) -> FittedPart:
    constants, links = of_conf(f"nccl_{chip}"), links_of(chip)
    start, low = (4e-6, 1e-7, 6e3, 4e-6, 0.6, 0.4), (0.0, 0.0, 10.0, 0.0, 0.02, 0.02)
    high: tuple[float, ...] = (2e-5, 2e-6, 2e5, 2e-5, 1.0, 1.0)
    if len(names) > len(start):
        start, low, high = (*start, 2.1e-5, 6e-6), (*low, 0.0, 0.0), (*high, 5e-5, 4e-5)
    rows = []
    for entry, where in table(folder, "aic_collectives.csv"):
        if entry["library"].startswith(library) and entry["device"] == DEVICES[chip]:
            recorded = not entry["library"].endswith("eager")
            sizes = int(entry["gpus"]), int(entry["bytes"]), float(entry["seconds"])
            rows.append(row("allreduce", *sizes, where, recorded=recorded))

    def made(values: Vector) -> OneShotAllreduce:
        return OneShotAllreduce(**(HOST | dict(zip(names, map(float, values), strict=True))))

    priced = partial(_shortened, links, constants)
    reasons = dict.fromkeys(set(BY_HOST) - set(names), UNSTARTED)
    return FittedPart(
        "one_shot_allreduce", stack, chip, tuple(rows), made, priced, names, start, low, high, reasons, "aiconfigurator2025"
    )


def _shortened(
    links: float, long: RingCollectives, sizes: dict[str, Vector], sort: str, constants: OneShotAllreduce, silicon: LibraryDie
) -> Vector:
    group = NodeGroup(sizes["peers"], links, silicon.bandwidth)
    otherwise = ring_seconds("allreduce", sizes["bytes"], group, long)
    shot_seconds: Vector = one_shot_seconds(sizes["bytes"], group, constants, otherwise, recorded=sort == "allreduce")
    return shot_seconds


def _profiled(folder: Path) -> FittedPart:
    """Of vLLM's operators on A100: allreduces of 1 MB and more in a node, since below that dies wait for each other."""
    names = ("start", "middle", "bulk_start", "bulk")
    return part_of(
        "ring_collectives", "vllm_a100", "a100", _vidur(folder), names, _beside(names),
        dict.fromkeys(set(RINGS) - set(names), OTHERS),
        "vidur2024",
        ((1e-5, 0.36, 2e-5, 0.7), (0.0, 0.05, 0.0, 0.2), (4e-5, 0.8, 8e-5, 1.0)),
    )  # fmt: skip


def _eager(folder: Path) -> FittedPart:
    """Of a framework that launches each: allreduces of four dies, whose steps cannot be told from the start."""
    names = ("start", "low", "middle_start", "middle", "bulk_start", "bulk")
    return part_of(
        "ring_collectives", "eager_a100", "a100", _llmcompass(folder), names, _beside(names),
        dict.fromkeys(set(RINGS) - set(names), OTHERS), "zhang2024",
        ((8e-6, 0.03, 2e-6, 0.36, 2e-5, 0.75), (0.0, 0.002, 0.0, 0.05, 0.0, 0.2), (3e-5, 0.2, 2e-5, 0.8, 8e-5, 1.0)),
    )  # fmt: skip


def _others(names: tuple[str, ...]) -> dict[str, str]:
    return dict.fromkeys(set(RINGS) - set(names), OTHERS)


def _beside(names: tuple[str, ...]) -> Callable[[Vector], RingCollectives]:
    """Rings of which some numbers are fitted, and the others are those of nccl_a100."""
    others = of_conf("nccl_a100")
    return lambda values: replace(others, **dict(zip(names, map(float, values), strict=True)))


def of_conf(stack: str) -> RingCollectives:
    """Ring constants of a stack in conf, from an earlier fit."""
    path = CONF / "library" / "ring_collectives" / f"{stack}.yaml"
    if not path.exists():
        raise DesignError(f"gpu_measured: no {path}; fit rings first")
    return parse_record(RingCollectives, yaml.safe_load(path.read_text()), f"mapping.stack.ring_collectives ({path.name})", [])


def _vidur(folder: Path) -> tuple[PartRow, ...]:
    rows = []
    for entry, where in table(folder, "vidur_a100_collectives.csv"):
        peers, nbytes = int(entry["gpus"]), int(entry["bytes"])
        if entry["kind"] == "all_reduce" and peers == int(entry["gpus_per_node"]) and nbytes >= 1e6:
            rows.append(row("allreduce", peers, nbytes, float(entry["seconds"]), where))
    return tuple(rows)


def _llmcompass(folder: Path) -> tuple[PartRow, ...]:
    rows = (entry for entry in table(folder, "llmcompass_a100_ops.csv") if entry[0]["kind"] == "all_reduce")
    return tuple(row("allreduce", int(entry["n"]), int(entry["m"]), float(entry["seconds"]), where) for entry, where in rows)
