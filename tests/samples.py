"""Designs and workloads that tests share, from the project's own configuration."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dse.config.build import Question, question
from dse.config.compose import CONF, compose
from dse.config.records import record
from dse.evaluators import Outcomes, evaluate
from dse.space.design import Design, stacked
from dse.space.fields import replaced
from dse.space.knobs import Choice, Interval, Space
from dse.space.memory import Memory
from dse.space.workload import Load


@cache
def asked(*overrides: str) -> Question:
    """What some overrides ask."""
    return question(compose(overrides), Path(__file__).parent)


def metrics(*overrides: str) -> dict[str, float]:
    """Metrics of what some overrides ask, in closed form."""
    return {name: float(column[0]) for name, column in typed(asked(*overrides)).columns.items()}


def typed(of: Question) -> Outcomes:
    """The base of a question, in closed form; words that do not go together are raised, as where one design is typed."""
    return evaluate(stacked([of.base]), of.workload).accepted()


def load_of(*overrides: str) -> tuple[Design, Load]:
    """A design and the requests that some overrides ask of it."""
    found = asked(*overrides)
    load = found.workload.cases[0]
    assert isinstance(load, Load)
    return found.base, load


def base() -> Design:
    """The default design."""
    return asked().base


def memory(name: str, **changes: Any) -> Memory:
    """A memory of the project's own, with some leaves changed; `timing_` and `controller_` begin those inside."""
    found = record(Memory, yaml.safe_load((CONF / f"memory/{name}.yaml").read_text()), "memory", [])
    inside = ("timing", "controller")
    parts = (key.split("_", 1) if key.split("_")[0] in inside else [key] for key in changes)
    return replaced(found, {".".join(part): value for part, value in zip(parts, changes.values(), strict=True)})


def wide(base: Design) -> Space:
    """Every kind of knob, over ranges wide enough that each resource binds somewhere."""
    return Space(
        base,
        (
            Choice("chip.cores", tuple(range(1, 601, 37))),
            Interval("chip.core.matrix", 1e10, 1e13, log=True),
            Interval("chip.core.vector", 1e9, 1e13, log=True),
            Choice("mapping.stack.attention_passes", (0, 8, 20)),
            Interval("chip.l2.size", 1e5, 1e9, log=True),
            Interval("chip.l2.bandwidth", 1e11, 1e14, log=True),
            Interval("chip.hbm.bandwidth", 1e10, 1e13, log=True),
            Interval("chip.hbm.gap", 0.0, 1e-8),
            Interval("chip.network.bandwidth", 1e8, 1e12, log=True),
            Interval("chip.network.latency", 1e-8, 1e-4, log=True),
            Choice("chip.network.ports", (2, 7, 127)),
            Choice("chip.network.latency_per", ("collective", "hop")),
            Interval("mapping.stack.operator_overhead", 0.0, 3e-5),
            Choice("mapping.both.tp", (1, 2, 3, 4, 8, 16, 32, 100)),
            Choice("mapping.both.prefetch", ("none", "whole", "partial")),
            Interval("mapping.both.prefetch_cap", 0.0, 1.0),
            Choice("mapping.both.allreduce", ("ring", "bidirectional_ring", "full_mesh", "ktree", "two_level")),
            Choice("mapping.precision.weights", ("int8", "bf16")),
        ),
    )
