"""Leaves of mappings that change nothing beside a word: python -m tests.leaves [--draws 30] [--seed 0] [WORD ...]

Of each question of `tests.contract.test_words` that has all the words given, and of presets that none of them has, random
designs are drawn, and each leaf of their mapping is changed. What never changes a result, or does not beside one word of
another leaf and does beside others, and is not declared so (`unread` in `dse.space.mapping`, `unasked` in
`dse.config.unread_settings`), is printed.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from dse.config.question import Question
from dse.config.unread_settings import find_unread_by_workload
from dse.evaluators import evaluate
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import field_at, iterate_leaves, leaf_at, replace_leaves
from dse.space.unread_leaves import deciding_leaves, explain_unread
from dse.space.workload import Workload
from tests.contract.draws import shaken, words
from tests.contract.test_words import DIES, MODEL, ON, POOLED, SERVED
from tests.samples import asked

EXPECTED = 12.0
"""Results that changes of a leaf beside a word would have changed, were they as those beside other words: at so many, none
of them is chance in one of 100,000 cases."""

NEVER = 8
"""Changes of a leaf that never do anything, before it is said."""

LISTED: dict[str, tuple[str, ...]] = {
    "graph_batch_sizes": ("3", "1 7 900", "2 64"),
    "version": ("0.1", "0.2", "0.3"),
    "vendors": ("nvidia", "amd", "nvidia amd intel"),
    "weight_formats": ("bf16", "bf16 int8", "bf16 fp8"),
}
"""Texts and lists of leaves that are no word of a choice, by the name of the leaf."""

MORE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("model=qwen3_1b7", "mapping=waferllm_prefetch", *MODEL): ("wse2_hbm",),
    ("model=qwen3_30b_a3b", "mapping.simulated_layers=4", "chip.core.sram='2 MB'", *MODEL): ("wse2",),
    ("model=qwen3_1b7", "mapping=flat_prefetch", "workload.batch=[2]", *MODEL[1:]): ("tile_gh200",),
    ("model=qwen3_1b7", "mapping=sglang", *MODEL): ("h100",),
    ("model=deepseek_v2_lite", "mapping=expert_parallel_int8", "mapping.both.ep=8", *POOLED): ("cm384",),
    (*SERVED, "mapping=npu_serving_prefetch"): ("npu64",),
    (*SERVED, "mapping=npu_serving_wsc_llm", "mapping.serving.prefill_cores=16"): ("npu64",),
    (*SERVED, "mapping=expert_parallel_serving", "model=deepseek_v2_lite", "mapping.both.ep=8", POOLED[0]): ("h800_ep",),
    (*SERVED, "mapping=flat_dies_serving", "model=deepseek_v2_lite", "mapping.both.ep=4", *DIES[:3]): ("wafer64",),
    ("workload=collective", "mapping=die_collective", "workload.pattern=[allreduce]"): ("wafer64", "h800_ep"),
    ("workload=gemm", "mapping=product", "workload.shapes=[64x96x80]", "mapping.rows=8"): ("tile32",),
}
"""What else is asked, of presets of mappings and of chips that tests of words do not have."""


def outcome(design: Design, workload: Workload) -> tuple[Any, ...] | None:
    """All that the closed form says of a design; None where it is refused."""
    try:
        outcomes = evaluate(stack_designs([design]), workload).require_compatible()
    except DesignError:
        return None
    numbers = {name: repr(float(column[0])) for name, column in outcomes.columns.items()}
    return int(outcomes.limit[0]), repr(float(outcomes.need[0])), repr(float(outcomes.have[0])), *numbers.items()


def others(design: Design, address: str, rng: np.random.Generator) -> list[Any]:
    """Two other values of a leaf."""
    value, spec = leaf_at(design, address), field_at(design, address)
    if spec.name in LISTED:
        selected_words: list[Any] = [text for text in LISTED[spec.name] if text != value]
    elif isinstance(value, str):
        selected_words = [word for word in words(design)[address] if word != value]
    elif "whole" in spec.metadata:
        low = int(spec.metadata["low"])
        selected_words = [number for number in (low, 1, 2, 3, 4, 8, 2 * int(value)) if number >= low and number != value]
    else:
        high = spec.metadata.get("high", np.inf)
        selected_words = [number for number in (value / 2, min(2 * value + 0.01, high), min(0.3, high)) if number != value]
    return [selected_words[place] for place in rng.permutation(len(selected_words))[:2]]


def drawn(question: Question, count: int, seed: int) -> Iterator[tuple[Design, np.random.Generator]]:
    """Designs of a question with random words, alike in both phases half of the time, and random numbers."""
    options = {place: word for place, word in words(question.base).items() if ".precision." not in place}
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        chosen = {place: str(rng.choice(option)) for place, option in options.items() if rng.random() < 0.5}
        if rng.random() < 0.5:
            phases = {place.replace(".prefill.", ".decode."): word for place, word in chosen.items() if ".prefill." in place}
            chosen |= {place: word for place, word in phases.items() if place in options}
        yield shaken(replace_leaves(question.base, chosen), rng), rng


def found_idle(question: Question, draws: int, seed: int) -> list[str]:
    """Leaves beside words that are not declared, in words."""
    changed, tried = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    idle = find_unread_by_workload(question.base, question.workload)
    for design, rng in drawn(question, draws, seed):
        before = outcome(design, question.workload)
        if before is None:
            continue
        settings = [(place, str(leaf_at(design, place))) for place in words(design)]
        for address, _, _ in iterate_leaves(design.mapping, "mapping."):
            if (
                address.startswith(("mapping.stack.", "mapping.precision."))
                or explain_unread(design, address)
                or address in idle
            ):
                continue
            for value in others(design, address, rng):
                after = outcome(replace_leaves(design, {address: value}), question.workload)
                pairs = (
                    [(address,), *((address, *pair) for pair in settings if pair[0] != address)] if after is not None else []
                )
                tried.update(pairs)
                changed.update(pairs if after != before else ())
    never = [
        f"{tried_words[0]}: {count} changes did nothing"
        for tried_words, count in tried.items()
        if not tried_words[1:] and count > NEVER and not changed[tried_words]
    ]
    return never + [
        f"{tried_words[0]} beside {'='.join(tried_words[1:])}: {count} changes did nothing"
        for tried_words, count in tried.items()
        if tried_words[1:]
        and not changed[tried_words]
        and changed[tried_words[:1]]
        and count * changed[tried_words[:1]] / tried[tried_words[:1]] > EXPECTED
    ]


def declared(design: Design) -> list[tuple[str, dict[str, tuple[str, ...]]]]:
    """Leaves of a mapping that nothing reads beside some words, with those by the leaf that has them."""
    conditions = ((address, deciding_leaves(design, address)) for address, _, _ in iterate_leaves(design.mapping, "mapping."))
    return [(address, beside) for address, beside in conditions if beside]


def main() -> None:
    """Looks, and says what it finds."""
    parser = argparse.ArgumentParser(description="Look for leaves of mappings that change nothing beside a word.")
    parser.add_argument("words", nargs="*", help="of questions to ask, as chip=npu64")
    parser.add_argument("--draws", type=int, default=30, help="designs of each question")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    given = parser.parse_args()
    for question, chips in (ON | MORE).items():
        for chip in chips if given.words else chips[:1]:
            text = (f"chip={chip}", *question)
            if set(given.words) <= set(text):
                print(" ".join(text), *found_idle(asked(*text), given.draws, given.seed), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
