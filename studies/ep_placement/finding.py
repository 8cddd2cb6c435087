"""Time of a token by where the dies of a stage are, and by how many share out experts; what a link carries."""

from functools import cache
from pathlib import Path

from dse.build import Question, question
from dse.compose import compose
from dse.evaluators import evaluate, explain
from dse.evaluators.evaluation import infeasible
from dse.space.design import stacked
from dse.space.units import show
from dse.studies.write import table

PLACEMENTS = ("linear", "snake", "blocks", "interleave")
SPLITS = ((4, 16), (8, 8), (16, 4), (32, 2), (64, 1))
LINKS = (("mesh", 1000), ("mesh", 160), ("torus", 160))
"""Topologies, and bandwidth of a link. [GB/s]"""


def finding() -> str:
    """A table for each kind of links: time of a token by split and placement, and what of it dies exchange on the best."""
    found = []
    for topology, rate in LINKS:
        found.append(
            f"Time of a token on a {topology} of {rate} GB/s, 64 requests a die; in brackets what of it dies exchange."
        )
        rows = []
        for ep, pp in SPLITS:
            words = (f"mapping.both.ep={ep}", f"mapping.both.pp={pp}", *_links(topology, rate))
            rows.append([f"EP{ep}-PP{pp}", *(_cell(*words, f"mapping.both.placement={name}") for name in PLACEMENTS)])
        found.append(table(["split", *PLACEMENTS], rows))
    found.append("Tensor parallelism beside it: attention of a request on so many dies, EP32-PP2, mesh of 1 TB/s, blocks.")
    rows = []
    for tp in (1, 2, 4, 8):
        words = (f"mapping.both.tp={tp}", "mapping.both.placement=blocks")
        rows.append([f"{tp}", *(_cell(*words, f"workload.batch=[{batch}]") for batch in (64, 1024, 4096))])
    found.append(table(["TP", "1 a die", "16 a die", "64 a die"], rows))
    return "\n\n".join(found)


def asked(*more: str) -> Question:
    """The study's question."""
    return question(compose(["study=ep_placement", *more]), Path(__file__).parent)


def _links(topology: str, rate: int) -> tuple[str, str]:
    return f"chip.d2d.topology={topology}", f"chip.d2d.bandwidth='{rate} GB/s'"


@cache
def _cell(*more: str) -> str:
    of = asked(*more)
    if infeasible(of.base, of.workload) is not None:
        return "-"
    seconds = float(evaluate(stacked([of.base]), of.workload).columns["tpot"][0])
    rows = [row for row in explain(of.base, of.workload.cases[0]).rows if row.phase == "decode"]
    exchanged = sum(row.seconds for row in rows if "d2d" in row.parts) / sum(row.seconds for row in rows)
    return f"{show(seconds, 's')} ({exchanged:.0%})"
