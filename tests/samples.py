"""Designs and workloads that tests share, from the project's own configuration."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dse.build import Question, question
from dse.compose import CONF, compose
from dse.evaluators import evaluate
from dse.records import record
from dse.space.design import Design, stacked
from dse.space.fields import replaced
from dse.space.knobs import Choice, Interval, Space
from dse.space.memory import Memory
from dse.space.workload import Load

ALIKE = (
    "codellama_34b", "llama2_13b", "llama2_7b", "llama3_405b", "llama3_8b", "mistral_small_3", "phi3_medium", "phi_4",
    "deepseek_v4_pro", "gemma2_27b", "gemma3_12b", "gpt_oss_120b", "llama4_scout", "mixtral_8x7b", "qwen15_110b", "qwen2_7b",
    "qwen_7b", "qwen35_122b_a10b", "qwen35_397b_a17b", "qwen3_next_80b_a3b", "qwen3_32b", "qwen3_8b", "qwen3_4b",
    "qwen3_30b_a3b",
)  # fmt: skip
"""Models that ship with another of the same structure, sizes apart (`tests/space/test_model.py`): what every model goes
through leaves them out, unless MODELS=all."""


def shipped() -> list[str]:
    """Models that ship: one of each structure, or with MODELS=all every one."""
    names = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
    return names if os.environ.get("MODELS") == "all" else [name for name in names if name not in ALIKE]


@cache
def asked(*overrides: str) -> Question:
    """What some overrides ask."""
    return question(compose(overrides), Path(__file__).parent)


def metrics(*overrides: str) -> dict[str, float]:
    """Metrics of what some overrides ask, in closed form."""
    found = asked(*overrides)
    outcomes = evaluate(stacked([found.base]), found.workload)
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


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
            Choice("mapping.both.allreduce", ("ring", "bidirectional_ring", "full_mesh")),
            Choice("mapping.precision.weights", ("int8", "bf16")),
        ),
    )
