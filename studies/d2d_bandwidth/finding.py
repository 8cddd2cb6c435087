"""Findings on die-to-die links: throughput by bandwidth and topology, exchange times, hot links."""

from functools import cache
from pathlib import Path

import numpy as np

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.machine.die_network import die_network, die_routes, link_loads, place_groups
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

TOPOLOGIES = ("mesh", "torus", "ring", "switch")
RATES = (50, 100, 160, 250, 400, 630, 1000, 1600, 2500, 4000)
"""Of a link in one direction. [GB/s]"""

BATCHES = (1024, 4096, 16384)


def finding() -> str:
    """Tables of throughput by bandwidth, topology and requests, hop latencies, and link loads."""
    head = ["GB/s a link", *TOPOLOGIES, "mesh, halves", "exchanged", "die", "token/s/mm2"]
    return "\n\n".join(
        [
            "Tokens/s a die, EP32-PP2, 256 requests a die, by topology, and on a mesh with halves of a micro-batch in turn; of "
            "the mesh the share of a token's time that dies exchange, area of a die, and tokens/s for all dies' area.",
            table(head, [_row(rate) for rate in RATES]),
            "Tokens/s a die on a mesh, by requests a die:",
            table(
                ["GB/s a link", *(f"{batch // 64}" for batch in BATCHES)],
                [
                    [f"{rate}", *(f"{_per_die(f'workload.batch=[{batch}]', _rate(rate)):,.0f}" for batch in BATCHES)]
                    for rate in RATES
                ],
            ),
            "Time of a token on a mesh of 1 TB/s, by latency of a hop and requests a die:",
            table(
                ["latency", *(f"{batch // 64}" for batch in BATCHES)],
                [[f"{ns} ns", *(_token(ns, batch) for batch in BATCHES)] for ns in (25, 256, 1000)],
            ),
            "Bytes over links while one stage of 32 dies exchanges, of those that leave a die:",
            table(["links", "busiest", "mean", "idle"], [[name, *_loads(name)] for name in TOPOLOGIES]),
        ]
    )


def make_question(*more: str) -> Question:
    """Question of the study with overrides."""
    return build_question(compose(["study=d2d_bandwidth", *more]), Path(__file__).parent)


def _rate(rate: int) -> str:
    return f"chip.d2d.bandwidth='{rate} GB/s'"


@cache
def _columns(*more: str) -> dict[str, float]:
    question = make_question(*more)
    return {
        name: float(column[0]) for name, column in evaluate(stack_designs([question.base]), question.workload).columns.items()
    }


def _per_die(*more: str) -> float:
    return _columns(*more)["decode_throughput"] / 64


def _on_mesh(rate: int, batch: int) -> str:
    return f"{_per_die(f'workload.batch=[{batch}]', _rate(rate)):,.0f}"


def _token(ns: int, batch: int) -> str:
    return format_quantity(_columns(f"chip.d2d.latency='{ns} ns'", f"workload.batch=[{batch}]")["tpot"], "s")


def _row(rate: int) -> list[str]:
    each = [f"{_per_die(_rate(rate), f'chip.d2d.topology={name}'):,.0f}" for name in TOPOLOGIES]
    question = make_question(_rate(rate))
    rows = [row for row in explain(question.base, question.workload.cases[0]).rows if row.phase == "decode"]
    exchanged = sum(row.seconds for row in rows if "d2d" in row.parts) / sum(row.seconds for row in rows)
    columns = _columns(_rate(rate))
    area = f"{columns['system_mm2'] / 64:.0f} mm2"
    halves = f"{_per_die(_rate(rate), 'mapping.both.overlap=two_batch'):,.0f}"
    return [f"{rate}", *each, halves, f"{exchanged:.0%}", area, f"{columns['decode_throughput_per_system_mm2']:.2f}"]


def _loads(topology: str) -> list[str]:
    question = make_question(f"chip.d2d.topology={topology}")
    network, at = die_network(question.base.chip), place_groups("blocks", 8, 8, 2, 32)
    ways = die_routes(network.rows, network.cols, network.topology)
    ends = np.broadcast_to(at[:, :, None], (2, 32, 32)), np.broadcast_to(at[:, None, :], (2, 32, 32))
    links = link_loads(ways, 64, ends[0].ravel(), ends[1].ravel(), np.full(2 * 32 * 32, 1 / 32)).links
    return [f"{links.max():.2f}", f"{links[links > 0].mean():.2f}", f"{(links == 0).mean():.0%}"]
