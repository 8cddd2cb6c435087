"""Loads of the study's curves: routers, patterns and packet lengths."""

from functools import cache
from pathlib import Path

from dse.config.compose import compose
from dse.config.question import Question, build_question

CONFIGURATIONS = {
    "4 channels of 8": ("chip=mesh8",),
    "1 channel of 8": ("chip=mesh8", "chip.router.vcs=1"),
    "4 channels of 8, lookahead and speculation": ("chip=mesh8_fast",),
}
PATTERNS = ("uniform", "transpose", "bit_complement", "tornado", "neighbour", "hotspot4")
LOADS = (0.02, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Shares of what the busiest link or core can carry."""


@cache
def make_question(routers: str, pattern: str, flits: int, rate: float) -> Question:
    """Question of one load on a mesh of routers."""
    load = (f"workload.traffic=[{pattern}]", f"workload.flits=[{flits}]", f"workload.rates=[{rate}]")
    return build_question(compose([*CONFIGURATIONS[routers], "workload=traffic", *load]), Path())
