"""Findings on whole models: chips of equal peak rate, and the breakdown of the paper's chip."""

from pathlib import Path
from typing import Any

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

CHIPS = ((32, 32, 32, 16, 384, 128, 64), (8, 16, 128, 32, 768, 256, 64))
"""Tiles, elements, L1 in KiB, bytes of a link, channels: the paper's chip, and one of the front, where few tiles do."""

HEAD = [
    "tiles",
    "elements",
    "L1",
    "link",
    "channels",
    "mm2",
    "first token",
    "a token",
    "token/s/mm2",
    "HBM in decode",
    "engines in prefill",
]


def finding() -> str:
    """One row per chip, analytical and (in brackets) by events; then operators of the first chip."""
    rows = [_row(chip) for chip in CHIPS]
    question = make_question(CHIPS[0])
    spent: dict[str, dict[str, Any]] = {}
    totals = {"prefill": 0.0, "decode": 0.0}
    for row in explain(question.base, question.workload.cases[0]).rows:
        spent.setdefault(row.operator, {})[row.phase] = row
        totals[row.phase] += row.seconds
    lines = []
    for name, phases in spent.items():
        cells = []
        for phase, total in totals.items():
            row = phases.get(phase)
            cells += ["", ""] if row is None else [f"{row.seconds / total:.1%}", row.bound]
        lines.append([name, *cells])
    parts = ["operator", "of prefill", "bound by", "of decode", "bound by"]
    return "\n\n".join(
        [
            table(HEAD, rows),
            "In brackets by events. Where the time of the first chip goes, by the closed form:",
            table(parts, lines),
            "A token on that chip, products of decode with so many groups to a depth (`mapping.decode.gemm.split_k`):",
            table(
                ["groups", "chosen", *map(str, GROUPS)], [["a token", *(_token(f"split_k={most}") for most in (0, *GROUPS))]]
            ),
            "And with the depth divided by none, on groups of so many of its 32 rows of tiles:",
            table(
                ["rows", "chosen", *map(str, GROUPS)],
                [["a token", *(_token("split_k=1", f"rows={most}") for most in (0, *GROUPS))]],
            ),
        ]
    )


GROUPS = (1, 2, 4, 8, 16, 32)


def _token(*sizes: str) -> str:
    question = make_question(CHIPS[0], *(f"mapping.decode.gemm.{size}" for size in sizes))
    return format_quantity(float(evaluate(stack_designs([question.base]), question.workload).columns["tpot"][0]), "s")


def _row(chip: tuple[int, ...]) -> list[str]:
    question = make_question(chip)
    closed, events = (
        {
            name: float(column[0])
            for name, column in evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns.items()
        }
        for fidelity in ("analytical", "events")
    )
    found_rows = explain(question.base, question.workload.cases[0]).rows
    moved = sum(row.nbytes for row in found_rows if row.phase == "decode") / (closed["latency"] - closed["ttft"])
    flop = sum(row.flop for row in found_rows if row.phase == "prefill") / closed["ttft"]
    rows, cols, high, wide, sram, link, channels = chip
    return [
        f"{rows} x {cols}",
        f"{high} x {wide}",
        f"{sram} KiB",
        f"{link} B",
        f"{channels}",
        f"{closed['system_mm2']:.0f}",
        *(f"{format_quantity(closed[name], 's')} ({format_quantity(events[name], 's')})" for name in ("ttft", "tpot")),
        f"{closed['throughput_per_system_mm2']:.2f} ({events['throughput_per_system_mm2']:.2f})",
        f"{moved / (channels * 62.5e9):.0%}",
        f"{flop / closed['peak_flops']:.0%}",
    ]


def make_question(chip: tuple[int, ...], *more: str) -> Question:
    """Question of the study's workload on one of its chips."""
    rows, cols, high, wide, sram, link, channels = chip
    texts = [
        f"chip.mesh.rows={rows}",
        f"chip.mesh.cols={cols}",
        f"chip.tile.matrix.rows={high}",
        f"chip.tile.matrix.cols={wide}",
    ]
    texts += [f"chip.tile.sram='{sram} KiB'", f"chip.noc.word_bytes='{link} B'", f"chip.hbm.channels={channels}"]
    return build_question(compose(["study=flat_models", *texts, *more]), Path(__file__).parent)
