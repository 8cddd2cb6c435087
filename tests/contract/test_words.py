"""Designs are worked out together as each alone: every word of every mapping, on every kind of chip, with random numbers.

WORDS=1000 pytest tests/contract/test_words.py draws so many batches for each of all words, on all chips; the suite
one for a few words, on one chip of a kind.
"""

import os
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.contract.draws import shaken, words
from tests.marks import slow_if
from tests.samples import asked

MANY = int(os.environ.get("WORDS", "0"))
DRAWS, DESIGNS, SEED = MANY or 1, 6, 3

SERVED = ("model=qwen3_1b7", "workload=serving", "workload.requests=6", "workload.prompt=300", "workload.output=8")
MODEL = ("workload.batch=[1,3]", "workload.prompt=300", "workload.output=20")
SHAPES = "workload.shapes=[300x512x700,1x512x300]"
SMALL = ("workload.requests=200",)
DIES = ("chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", "workload.batch=[32,64]", *MODEL[1:])
POOLED = ("chip.dies.rows=2", "workload.batch=[32,64]", *MODEL[1:])
ON: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model=qwen3_1b7", *MODEL): ("npu_dse", "ascend910b", "a100", "wse2", "wse3", "dojo"),
    ("model=qwen3_1b7", "mapping=npu", *MODEL): ("npu64", "npu256", "tile32"),
    ("model=qwen3_1b7", "mapping=npu_prefetch", *MODEL): ("npu64",),
    ("model=qwen3_1b7", "mapping=npu_ktree", *MODEL): ("npu64",),
    ("model=qwen3_1b7", "mapping=npu_flat_attention", *MODEL): ("npu64",),
    ("model=qwen3_1b7", "mapping=flat", "workload.batch=[2]", *MODEL[1:]): ("tile_gh200", "tile32", "npu64"),
    ("model=deepseek_v2_lite", "mapping.both.ep=4", "chip.dies.rows=2", "chip.dies.cols=4", *DIES): (
        "wafer64",
        "wafer64_nvlink",
    ),
    ("model=deepseek_v2_lite", "mapping.both.ep=8", *POOLED): ("h800_ep", "cm384"),
    ("model=deepseek_v2_lite", "mapping.both.ep=4", "chip.dies.rows=2", "chip.dies.cols=4", "chip.nodes.size=4", *DIES[3:]): (
        "h800_ep",
    ),
    ("workload=gemm", SHAPES): ("wse2", "wse3", "dojo"),
    ("workload=gemm", "mapping=tensor_parallel", SHAPES): ("npu_dse", "a100", "ascend910b"),
    ("workload=gemm", "mapping=summa", SHAPES): ("tile32", "npu64", "npu256", "tile_gh200"),
    ("workload=gemv", "workload.shapes=[1x512x700]"): ("wse2", "dojo"),
    ("workload=attention", "workload.keys=[256,1000]", "workload.heads=8", "workload.kv_heads=2"): ("tile32", "npu64"),
    ("workload=attention", "workload.keys=[600]", "workload.queries=2", "workload.causal=true"): ("tile_gh200", "npu256"),
    ("workload=collective", "workload.pattern=[reduce,allreduce]"): ("tile32", "npu64"),
    ("workload=collective", "workload.pattern=[all_to_all,allreduce]", "workload.group_axis=rectangle", "workload.root=0"): (
        "tile_gh200",
        "npu256",
    ),
    SERVED: ("npu64", "npu_dse", "npu256", "a100"),
    (*SERVED, "mapping=waferllm_serving"): ("wse2", "wse3"),
    (*SERVED, "mapping=flat_serving", "model.qwen3_1b7.layers=2", "chip.mesh.rows=4", "chip.mesh.cols=4"): ("tile32", "npu64"),
    ("workload=stream", "workload.patterns=[sequential,random]", *SMALL): ("hbm3", "tile32", "hbm2", "hbm4", "hbm2_legacy"),
    ("workload=traffic", "chip.mesh.rows=4", "chip.mesh.cols=4", "workload.period=100", "workload.packets=50"): ("mesh8",),
}
"""What is asked, small, of which chips, one of each kind of chip first."""

LONG = {
    "mapping=npu", "mapping=npu_prefetch", "mapping=npu_flat_attention", "chip=wafer64", "mapping.both.ep=8",
    "workload.keys=[256,1000]",
}  # fmt: skip
"""What takes long, and so does serving on all but wafers."""


def bases() -> list[tuple[str, ...]]:
    """What is asked of a chip: of one of each kind, or of all."""
    return [(f"chip={chip}", *question) for question, chips in ON.items() for chip in (chips if MANY else chips[:1])]


def drawn(question: Question, word: dict[str, str], seed: int) -> list[Design]:
    """Designs with a word, if any, and others drawn once for all of them, so that they are worked out together."""
    rng = np.random.default_rng([seed, crc32(repr(word).encode())])
    # formats that differ are refused by some
    others = {place: options for place, options in words(question.base).items() if ".precision." not in place}
    options = {place: str(rng.choice(options)) for place, options in others.items() if rng.random() < 0.2}
    base = replace_leaves(question.base, options | word)
    return [shaken(base, rng) for _ in range(DESIGNS)]


def alike(question: Question, designs: list[Design]) -> int:
    """Checks that designs together are as each alone; how many have an answer. Others are refused in one line."""
    answered, alone, refused = [], [], []
    for design in designs:
        try:
            alone.append(evaluate(stack_designs([design]), question.workload, cases=True))
        except DesignError as error:
            refused.append(str(error))
            continue
        answered.append(design)
    assert all(line.strip() for line in refused)
    if not answered:
        return 0
    together = evaluate(stack_designs(answered), question.workload, cases=True)
    for place, outcomes in enumerate(alone):
        assert binding(together, place) == binding(outcomes, 0)
        worst = explain_infeasibility(answered[place], question.workload)
        assert (worst.limit if worst else "") == binding(outcomes, 0)
        for columns, single in ((together.columns, outcomes.columns), (together.cases, outcomes.cases)):
            for name, column in columns.items():
                values, wanted = column[..., place], single[name][..., 0]
                assert np.allclose(values, wanted, rtol=1e-12, atol=0, equal_nan=True), (name, values, wanted)
    return len(answered)


def binding(outcomes: Any, place: int) -> str:
    """The limit that a design breaks; nothing where it fits."""
    return list(SILICON_LIMITS)[outcomes.limit[place]] if not outcomes.feasible[place] else ""


def cells(overrides: tuple[str, ...]) -> list[dict[str, str]]:
    """Every word of a mapping by itself, and none."""
    return [{}, *({address: option} for address, options in words(asked(*overrides).base).items() for option in options)]


@slow_if(lambda overrides: not LONG.isdisjoint(overrides) or (SERVED[1] in overrides and "chip=wse2" not in overrides))
@pytest.mark.sampled
@pytest.mark.parametrize("overrides", bases(), ids=lambda words: "-".join(word.split("=")[-1] for word in words[:3]))
def test_designs_with_any_word_are_together_as_each_alone(overrides: tuple[str, ...]) -> None:
    served = "workload=serving" in overrides
    selected_cells = cells(overrides)
    if not MANY:  # a few words of each, others with other seeds
        selected_cells = [
            selected_cells[place]
            for place in np.random.default_rng(SEED).permutation(len(selected_cells))[: 1 if served else 3]
        ]
    answers = sum(
        alike(asked(*overrides), drawn(asked(*overrides), word, seed)) for word in selected_cells for seed in range(DRAWS)
    )
    assert answers or served or len(selected_cells) < 4
