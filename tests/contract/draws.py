"""Random designs around a given one: the words that a mapping may have, and numbers beside those of a chip."""

from typing import Any

import numpy as np

from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.collective import ALLREDUCE, EXCHANGES, TEAMS
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.kv import KV
from dse.evaluators.serving.scheduling_policy import POLICIES
from dse.space.design import Design
from dse.space.dram import check_memory
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.mapping import AUTO

REGISTRIES: dict[str, Any] = {
    "allreduce": ALLREDUCE,
    "gemm": GEMM,
    "gemv": GEMV,
    "kv_placement": KV,
    "dataflow": ATTENTION,
    "collective": TEAMS | EXCHANGES,
    "policy": POLICIES,
    "prefill_policy": POLICIES,
}
"""Of words whose options a registry has, by the name of the leaf."""

LISTED = ("graph_batch_sizes", "version", "vendors", "weight_formats")
"""Leaves that hold a list or a text of an engine, and no word of a choice: they stay as they are."""


def words(design: Design) -> dict[str, tuple[str, ...]]:
    """Options of all words of a mapping, by address."""
    words = {}
    for address, _, spec in iterate_leaves(design.mapping, "mapping."):
        if "options" in spec.metadata and spec.name not in LISTED:
            open_ = (AUTO,) if spec.name in ("gemm", "gemv") else ()
            words[address] = (spec.metadata["options"] or tuple(REGISTRIES[spec.name])) + open_
    return words


def shaken(design: Design, rng: np.random.Generator, share: float = 0.2) -> Design:
    """A design with a share of its numbers others: counts up to twice, rates to 8 times; memories that make sense."""
    changes: dict[str, Any] = {}
    for address, value, spec in iterate_leaves(design):
        if isinstance(value, str | bool) or rng.random() > share:
            continue
        low, high = spec.metadata["low"], spec.metadata.get("high", np.inf)
        if "whole" in spec.metadata:
            group = (low, 1, 2, 3, 4, 8, 16, value, value // 2, 2 * value)
            changes[address] = float(max(rng.choice(group), low))
        elif value:
            changes[address] = float(np.clip(value * 8 ** rng.uniform(-1, 1), low, high))
        else:
            changes[address] = float(low + rng.random() * (min(high, low + 1) - low)) if rng.random() < 0.5 else low
    sensible: dict[str, Any] = {}
    for address, value in changes.items():
        if makes_sense(replace_leaves(design, sensible | {address: value})):
            sensible[address] = value
    return replace_leaves(design, sensible)


def makes_sense(design: Design) -> bool:
    """Whether the numbers of a memory of channels and banks go together; others may be what they are."""
    chip: Any = design.chip
    banks = chip.memory or getattr(chip.hbm, "banks", None)
    try:
        if banks is not None:
            check_memory(banks)
    except DesignError:
        return False
    return True
