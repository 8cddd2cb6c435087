"""Findings on expert placement: time of a token by placement and expert parallelism, link loads."""

from functools import cache
from itertools import product
from pathlib import Path

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

PLACEMENTS = ("linear", "snake", "blocks", "interleave")
SPLITS = ((4, 16), (8, 8), (16, 4), (32, 2), (64, 1))
LINKS = (("mesh", 1000), ("mesh", 160), ("torus", 160))
"""Topologies, and bandwidth of a link. [GB/s]"""

NEAR = ((16, 4), (32, 2), (64, 1))
"""Splits with several dies per attention replica, one of which sends tokens to experts."""

SHARED = (0, 32, 64)
"""Copies of the shared expert that are placed as experts; 0 for one on every die."""


def finding() -> str:
    """One table per kind of links: time of a token by split and placement, and its exchange share."""
    tables = []
    for topology, rate in LINKS:
        tables.append(
            f"Time of a token on a {topology} of {rate} GB/s, 64 requests a die; in brackets what of it dies exchange."
        )
        rows = []
        for ep, pp in SPLITS:
            words = (f"mapping.both.ep={ep}", f"mapping.both.pp={pp}", *_links(topology, rate))
            rows.append([f"EP{ep}-PP{pp}", *(_cell(*words, f"mapping.both.placement={name}") for name in PLACEMENTS)])
        tables.append(table(["split", *PLACEMENTS], rows))
    tables.append("Tensor parallelism beside it: attention of a request on so many dies, EP32-PP2, mesh of 1 TB/s, blocks.")
    rows = []
    for tp in (1, 2, 4, 8):
        words = (f"mapping.both.tp={tp}", "mapping.both.placement=blocks")
        rows.append([f"{tp}", *(_cell(*words, f"workload.batch=[{batch}]") for batch in (64, 1024, 4096))])
    tables.append(table(["TP", "1 a die", "16 a die", "64 a die"], rows))
    return "\n\n".join([*tables, *_forwarded(), *_shared()])


def _forwarded() -> list[str]:
    """Table of splits with attention on several dies: placement in a stage, and the dies that send tokens to experts."""
    caption = "Who sends tokens to experts, 64 requests a die, mesh of 160 GB/s: all that share attention alike, in blocks"
    rows = []
    for (ep, pp), tp in product(NEAR, (2, 4)):
        words = (f"mapping.both.ep={ep}", f"mapping.both.pp={pp}", f"mapping.both.tp={tp}", *_links("mesh", 160))
        ways = (("blocks", "direct"), ("entwine", "direct"), ("entwine", "nearest_replica"))
        cells = [_cell(*words, f"mapping.both.placement={at}", f"mapping.both.all_to_all={how}") for at, how in ways]
        rows.append([f"EP{ep}-PP{pp}, TP {tp}", *cells])
    return [
        f"{caption} or entwined; or, entwined, the nearest one.",
        table(["split", "blocks", "entwined", "entwined, nearest"], rows),
    ]


def _shared() -> list[str]:
    """Of the shared expert on every die, and copies of it among the others."""
    rows = []
    for copies in SHARED:
        words = (f"mapping.both.experts.shared_copies={copies}", "mapping.both.placement=blocks")
        rows.append([f"{copies or 'every die'}", *(_cell(*words, f"workload.batch=[{batch}]") for batch in (64, 1024, 4096))])
    caption = "Copies of the shared expert that are placed as experts, EP32-PP2, mesh of 1 TB/s."
    return [caption, table(["copies", "1 a die", "16 a die", "64 a die"], rows)]


def make_question(*more: str) -> Question:
    """Question of the study with overrides."""
    return build_question(compose(["study=ep_placement", *more]), Path(__file__).parent)


def _links(topology: str, rate: int) -> tuple[str, str]:
    return f"chip.d2d.topology={topology}", f"chip.d2d.bandwidth='{rate} GB/s'"


@cache
def _cell(*more: str) -> str:
    question = make_question(*more)
    if explain_infeasibility(question.base, question.workload) is not None:
        return "-"
    seconds = float(evaluate(stack_designs([question.base]), question.workload).columns["tpot"][0])
    rows = [row for row in explain(question.base, question.workload.cases[0]).rows if row.phase == "decode"]
    exchanged = sum(row.seconds for row in rows if "d2d" in row.parts) / sum(row.seconds for row in rows)
    return f"{format_quantity(seconds, 's')} ({exchanged:.0%})"
