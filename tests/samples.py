"""Designs and workloads that tests share, from the project's own configuration."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dse.config.compose import CONF, compose
from dse.config.question import Question, build_question
from dse.config.record_parser import parse_record
from dse.evaluators import Outcomes, evaluate
from dse.space.design import Design, stack_designs
from dse.space.dram import MemorySystem
from dse.space.fields import replace_leaves
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.space.workload import ServingLoad


@cache
def asked(*overrides: str) -> Question:
    """What some overrides ask."""
    return build_question(compose(overrides), Path(__file__).parent)


def metrics(*overrides: str) -> dict[str, float]:
    """Metrics of what some overrides ask, in closed form."""
    return {name: float(column[0]) for name, column in typed(asked(*overrides)).columns.items()}


def typed(question: Question) -> Outcomes:
    """The base of a question, in closed form; words that do not go together are raised, as where one design is typed."""
    return evaluate(stack_designs([question.base]), question.workload).require_compatible()


def load_of(*overrides: str) -> tuple[Design, ServingLoad]:
    """A design and the requests that some overrides ask of it."""
    question = asked(*overrides)
    load = question.workload.cases[0]
    assert isinstance(load, ServingLoad)
    return question.base, load


def base() -> Design:
    """The default design."""
    return asked().base


def memory(name: str, **changes: Any) -> MemorySystem:
    """A memory of the project's own, with some leaves changed; `timing_` and `controller_` begin those inside."""
    record = parse_record(MemorySystem, yaml.safe_load((CONF / f"memory/{name}.yaml").read_text()), "memory", [])
    inside = ("timing", "controller")
    parts = (key.split("_", 1) if key.split("_")[0] in inside else [key] for key in changes)
    return replace_leaves(record, {".".join(part): value for part, value in zip(parts, changes.values(), strict=True)})


def wide(base: Design) -> Space:
    """Every kind of knob, over ranges wide enough that each resource binds somewhere."""
    return Space(
        base,
        (
            ChoiceKnob("chip.cores", tuple(range(1, 601, 37))),
            IntervalKnob("chip.core.matrix", 1e10, 1e13, log=True),
            IntervalKnob("chip.core.vector", 1e9, 1e13, log=True),
            ChoiceKnob("mapping.stack.attention_passes", (0, 8, 20)),
            IntervalKnob("chip.l2.size", 1e5, 1e9, log=True),
            IntervalKnob("chip.l2.bandwidth", 1e11, 1e14, log=True),
            IntervalKnob("chip.hbm.bandwidth", 1e10, 1e13, log=True),
            IntervalKnob("chip.hbm.strided_row_overhead", 0.0, 1e-8),
            IntervalKnob("chip.network.bandwidth", 1e8, 1e12, log=True),
            IntervalKnob("chip.network.latency", 1e-8, 1e-4, log=True),
            ChoiceKnob("chip.network.ports", (2, 7, 127)),
            ChoiceKnob("chip.network.latency_per", ("collective", "hop")),
            IntervalKnob("mapping.stack.operator_launch", 0.0, 3e-5),
            ChoiceKnob("mapping.both.tp", (1, 2, 3, 4, 8, 16, 32, 100)),
            ChoiceKnob("mapping.both.prefetch", ("none", "whole", "partial")),
            IntervalKnob("mapping.both.prefetch_share", 0.0, 1.0),
            ChoiceKnob("mapping.both.allreduce", ("ring", "bidirectional_ring", "full_mesh", "ktree", "two_level")),
            ChoiceKnob("mapping.precision.weights", ("int8", "bf16")),
        ),
    )


AT_ONE_RATE = (
    "workload.rate=null",
    "workload.resample=false",
    "workload.arrivals=trace",
    "workload.rate_scale=0.2",
    "workload.requests=150",
    "~objectives.capacity_per_mm2",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tbt_p99=min",
    "+constraints.slo_attainment='>= 0.9'",
)
"""Overrides by which the study mesh_llm serves a replayed trace of one request a second with each of its designs."""
