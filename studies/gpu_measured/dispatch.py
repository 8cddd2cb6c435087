"""Measured expert dispatch and combine, and the stack parts fitted on them.

Rows inside one node are from the collector of AIConfigurator; those across nodes are from DeepEP's README, with starts
that were fitted inside one node.
"""

from collections.abc import Callable, Iterator
from functools import cache
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.cost_models.die_exchange_jobs import analytical_exchange, make_die_groups
from dse.evaluators.kernels.library.node_collectives import NodeGroup, expert_exchange_seconds, token_bytes
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.libraries.moe_all_to_all import MoeAllToAllConstants
from dse.studies.gpu_measured.collectives import links_of
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

NAMES = ("dispatch_start", "dispatch", "combine_start", "combine")
SHARES = ("dispatch", "combine")

THROUGH = ("dispatch_token", "combine_token")
RATES = ("dispatch_core", "combine_core")
NO_CORES, MANY = "kernels of low latency write from all cores", 24

CORES, FORWARD = (
    20,
    "[deepseek2024] section 3.2.2: 20 multiprocessors make full use of both links; kernels of low latency take none",
)
"""That forward tokens, of kernels for many tokens."""

STARTS = {"dispatch_start": 9.159e-6, "combine_start": 9.841e-6, "dispatch_token": 2.011e9, "combine_token": 4.028e9}
"""As of deepep_h100. [s], [B/s]"""

ONE_WIDTH = "rows are of one width, which does not tell it from the start"

LOW_LATENCY = {8: (77, 114), 16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}
"""By dies, dispatch and combine of 128 tokens to eight experts each, DeepEP's README, first version, H800. [us]"""

TOKENS, COPIES, HIDDEN = 128, 8, 7168


def parts(folder: Path) -> list[FittedPart]:
    """Stack parts for dispatch and combine inside one node, and across nodes."""
    reasons = dict.fromkeys(STARTS, "as deepep_h100: one count of tokens does not tell a start from a rate") | {
        "cores": FORWARD
    }
    reasons |= dict.fromkeys(RATES, NO_CORES)
    return [
        FittedPart(
            "moe_all_to_all", "deepep_h100", "h100", _rows(folder), _record, _in_a_box, (*NAMES, *THROUGH),
            (1e-5, 0.5, 1e-5, 0.5, 2e9, 3e9), (0.0, 0.05, 0.0, 0.05, 2e8, 2e8), (5e-5, 1.0, 5e-5, 1.0, 1e11, 1e11),
            {"cores": FORWARD} | dict.fromkeys(RATES, NO_CORES), "aiconfigurator2025",
        ),
        FittedPart(
            "moe_all_to_all", "deepep_normal_h100", "h100", _many(folder), _cores, _in_a_box, (*NAMES, *RATES),
            (2.7e-5, 0.6, 4.9e-5, 0.6, 1.5e10, 1.7e10), (0.0, 0.05, 0.0, 0.05, 1e9, 1e9),
            (1e-4, 1.0, 1e-4, 1.0, 1e11, 1e11),
            {"cores": "as many as rows have beside 8"} | dict.fromkeys(THROUGH, ONE_WIDTH), "aiconfigurator2025",
        ),
        FittedPart(
            "moe_all_to_all", "deepep_h800", "h800_ep", _published(), _shares, _over_boxes, SHARES,
            (0.8, 0.8), (0.1, 0.1), (1.0, 1.0), reasons, "deepep2025",
        ),
    ]  # fmt: skip


def _record(values: Vector) -> MoeAllToAllConstants:
    return MoeAllToAllConstants(**dict(zip((*NAMES, *THROUGH), map(float, values), strict=True)), cores=CORES)


def _cores(values: Vector) -> MoeAllToAllConstants:
    return MoeAllToAllConstants(**dict(zip((*NAMES, *RATES), map(float, values), strict=True)), cores=MANY)


def _shares(values: Vector) -> MoeAllToAllConstants:
    return MoeAllToAllConstants(**STARTS, **dict(zip(SHARES, map(float, values), strict=True)), cores=CORES)


def _in_a_box(sizes: dict[str, Vector], sort: str, constants: MoeAllToAllConstants, silicon: LibraryDie) -> Vector:
    """Copies to experts of other dies, over all links of one; those of its own stay."""
    each = token_bytes(sort, sizes["hidden"])
    current_constants = constants if "cores" not in sizes else replace_leaves(constants, {"cores": sizes["cores"]})
    return np.asarray(
        expert_exchange_seconds(
            sort, sizes["bytes"], each, NodeGroup(sizes["peers"], links_of("h100"), silicon.bandwidth), current_constants
        )
    )


def _over_boxes(sizes: dict[str, Vector], sort: str, constants: MoeAllToAllConstants, silicon: LibraryDie) -> Vector:
    """Times as `dse evaluate` computes them, by link loads. [s]"""
    seconds = []
    for peers in sizes["peers"].astype(int).tolist():
        where = make_die_groups(_boxes(peers), "linear", 1, peers, 1, 1, library=constants)
        each = token_bytes(sort, float(HIDDEN))
        job = where.build_job("all_to_all", TOKENS * COPIES * each, back=sort == "combine", each=each)
        seconds.append(float(analytical_exchange(job).seconds))
    return np.array(seconds)


@cache
def _boxes(peers: int) -> Chip:
    """Chip record of dies in nodes of eight."""
    return build_question(
        compose(["chip=h800_ep", f"chip.dies.rows={peers // 8}", f"mapping.both.ep={peers}"]), Path()
    ).base.chip


def _rows(folder: Path) -> tuple[PartRow, ...]:
    """Kernels of low latency: a copy of a token for each of its experts."""
    return tuple(_exchanges(folder, "deepep_low_latency", lambda entry: float(entry["topk"])))


def _many(folder: Path) -> tuple[PartRow, ...]:
    """Kernels for many tokens: one for each die that has some of them, of experts that are drawn evenly."""

    def dies(entry: dict[str, str]) -> float:
        peers, experts, top_k = int(entry["gpus"]), int(entry["experts"]), int(entry["topk"])
        return peers * (1 - comb(experts - experts // peers, top_k) / comb(experts, top_k))

    return tuple(_exchanges(folder, "deepep_normal", dies))


def _exchanges(folder: Path, kind: str, copies: Callable[[dict[str, str]], float]) -> Iterator[PartRow]:
    for entry, where in table(folder, "aic_deepep.csv", "dispatch_s"):
        if entry["kind"] == kind:
            for sort in SHARES:
                each = float(token_bytes(sort, float(entry["hidden"])))
                sizes = {"tokens": float(entry["tokens"]), "peers": float(entry["gpus"]), "hidden": float(entry["hidden"])}
                sizes |= {"bytes": float(round(float(entry["tokens"]) * copies(entry) * each))}
                words = asked_as(sort, entry["gpus"], sizes["bytes"], entry["hidden"])
                if entry["sms"]:
                    sizes |= {"cores": float(entry["sms"])}
                    words += f" mapping.stack.moe_all_to_all.cores={entry['sms']}"
                yield PartRow(sizes, sort, words, float(entry[f"{sort}_s"]), where)


def asked_as(sort: str, peers: str, copies: Any, hidden: str) -> str:
    """Overrides for an exchange of a number of bytes per die, those for its own experts included."""
    words = "workload=collective mapping=sglang mapping.both.allreduce=library workload.group_axis=rectangle workload.root=0"
    return f"{words} mapping.both.tp={peers} workload.pattern={sort} workload.hidden={hidden} workload.bytes=[{copies:.0f}B]"


def _published() -> tuple[PartRow, ...]:
    return tuple(
        PartRow({"peers": float(peers)}, sort, "", seconds * 1e-6, f"low latency, {peers} dies")
        for peers, both in LOW_LATENCY.items()
        for sort, seconds in zip(SHARES, both, strict=True)
    )
