"""Findings on random access: bandwidth of stacks, dies, tiles and wafers, and gains of sparse reads."""

from functools import cache
from math import log
from pathlib import Path

from dse.commands.notebook_api import find_study
from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import explain
from dse.space.dram import peak_bandwidth
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

GENERATIONS = ("hbm2", "hbm3", "hbm4")
PIECES = (128, 256, 512, 640, 1152, 2304, 4608)
SPREAD = (256, 512, 1024)
SCATTER = {"hbm2": 120.0, "hbm3": 290.0}
"""Bytes of overhead per random access, as chips state them (`chip.hbm.random_access_overhead`)."""

LAID = 512
"""Bytes in one channel at which these are fitted."""

LATENT = ("model=deepseek_v2_lite", "+model.deepseek_v2_lite.mtp=0")
INDEX = "+model.deepseek_v2_lite.indexer={{heads: 32, dim: 128, top: 2048, block: {block}}}"
ON = {
    "h200": ("chip=h200", "mapping.both.tp=1"),
    "tile_gh200": ("chip=tile_gh200",),
    "wse2": ("chip=wse2", "mapping.simulated_layers=2"),
}
CONTEXTS = (4096, 16384, 65536, 131072)
BLOCKS = (1, 4, 16, 64)


def finding() -> str:
    """Tables of stack bandwidth by piece and spread, and attention by context, chip and piece."""
    return "\n\n".join(
        [
            "Share of a sequential stream that pieces at random places get, by bytes of a piece and bytes that lie in one "
            "channel (rows hashed, played); and what chips take for it: piece over piece and "
            "`chip.hbm.random_access_overhead`.",
            table(
                ["memory", "a channel", *(f"{piece} B" for piece in PIECES)],
                [row for chip in GENERATIONS for row in _stack(chip)],
            ),
            "Mixing of one layer for a token of eight requests, latent attention with 16 heads (rows of 1,152 B), by context: "
            "over all positions; over 2,048 that an indexer of 32 heads picks one by one, and its part of that; and in blocks.",
            table(
                ["chip", "context", "all", "picked", "of that scored", *(f"blocks of {block}" for block in BLOCKS[1:])],
                [_attention(chip, context) for chip in ON for context in CONTEXTS],
            ),
        ]
    )


def _stack(chip: str) -> list[list[str]]:
    rows = []
    for spread in SPREAD:
        patterns = ",".join(f"chunk{piece}" for piece in PIECES)
        words = (f"chip={chip}", f"chip.memory.granularity='{spread} B'", f"workload.patterns=[{patterns},sequential]")
        question = find_study("sparse_gather", *words).question
        shares = [_share(question, place) for place in range(len(PIECES) + 1)]
        parts = [share / shares[-1] for share in shares[:-1]]
        rows.append([chip, f"{spread} B", *(f"{share:.0%}" for share in parts)])
        if spread == LAID:
            fitted = _fitted(parts)
    rows.append([chip, f"fitted, {fitted} B", *(f"{piece / (piece + fitted):.0%}" for piece in PIECES)])
    if chip in SCATTER:
        rows.append([chip, "as chips say", *(f"{piece / (piece + SCATTER[chip]):.0%}" for piece in PIECES)])
    return rows


def _fitted(shares: list[float]) -> int:
    """Bytes of overhead with which piece / (piece + overhead) fits shares best, by least squares of logarithms."""

    def missed(scatter: int) -> float:
        return sum(log(piece / (piece + scatter) / share) ** 2 for piece, share in zip(PIECES, shares, strict=True))

    return min(range(1, 1000), key=missed)


def _share(question: Question, place: int) -> float:
    row = explain(question.base, question.workload.cases[place], fidelity="events").rows[0]
    return float(row.nbytes / row.seconds / peak_bandwidth(question.base.chip.memory))


@cache
def _asked(chip: str, context: int, *more: str) -> Question:
    words = [*ON[chip], *LATENT, *more, "workload.batch=[8]", f"workload.prompt=[{context}]", "workload.output=[2]"]
    words += ["workload.speculation=none", "model.max_position=1048576"]
    return build_question(compose(words), Path(__file__).parent)


@cache
def _spent(chip: str, context: int, *more: str) -> dict[str, float]:
    """Seconds of operators of one layer's mixing, of a token."""
    question = _asked(chip, context, *more)
    rows = [
        row
        for row in explain(question.base, question.workload.cases[0]).rows
        if row.phase == "decode" and "attention" in row.segment
    ]
    seconds_by_operator: dict[str, float] = {}
    for row in rows:
        seconds_by_operator[row.operator] = (
            seconds_by_operator.get(row.operator, 0.0) + row.seconds / question.workload.cases[0].model.layers
        )  # type: ignore[union-attr]
    return seconds_by_operator


def _attention(chip: str, context: int) -> list[str]:
    dense = sum(_spent(chip, context).values())
    seconds_by_block = [_spent(chip, context, INDEX.format(block=block)) for block in BLOCKS]
    each = [sum(seconds.values()) for seconds in seconds_by_block]
    scored = sum(seconds for name, seconds in seconds_by_block[0].items() if "index" in name or "choice" in name)
    cells = [format_quantity(dense, "s"), format_quantity(each[0], "s"), f"{scored / each[0]:.0%}"]
    return [chip, f"{context // 1024}k", *cells, *(format_quantity(seconds, "s") for seconds in each[1:])]
